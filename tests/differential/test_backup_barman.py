"""Backups and WAL of a real barman where they lie. Oracle: what barman recovers of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from barman_catalogues import METHODS, Catalogue, catalogue
from leadline.cli import run
from tar_backups import Source, source

pytestmark = pytest.mark.live
BLOCK = 8192
PAGES = ("pages", "items", "checksums", "kinds", "classes")


@pytest.fixture(scope="module")
def primary() -> Iterator[Source]:
    with source() as made:
        yield made


@pytest.fixture(scope="module", params=METHODS)
def made(request: pytest.FixtureRequest, primary: Source) -> Iterator[Catalogue]:
    with catalogue(primary, request.param) as found:
        yield found


def asked(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*map(str, words), "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def test_pages_are_those_of_the_recovered_cluster(made: Catalogue, capsys: pytest.CaptureFixture[str]) -> None:
    found, wanted = asked(capsys, "page", "check", made.backup), asked(capsys, "page", "check", made.restored)
    assert found["problems"] == [] and found["summary"]["backups"] == [[str(made.backup), "barman backup"]]
    assert {key: found["summary"][key] for key in PAGES} == {key: wanted["summary"][key] for key in PAGES}
    assert found["summary"]["checksums"] > 900


def test_rows_are_those_of_the_recovered_cluster(made: Catalogue, capsys: pytest.CaptureFixture[str]) -> None:
    for table in ("t", "s"):
        assert run(["rows", str(made.restored), table, "--database", "postgres"]) == 0
        wanted = capsys.readouterr().out
        assert run(["rows", str(made.backup), table, "--database", "postgres"]) == 0
        assert capsys.readouterr().out == wanted and wanted.count("\n") >= 2000


def test_wal_is_that_of_the_recovered_cluster(made: Catalogue, capsys: pytest.CaptureFixture[str]) -> None:
    """barman keeps packed segments by their plain names, beside its own list of them."""
    recovered = asked(capsys, "wal", "show", made.restored / "pg_wal")
    assert len(recovered) > 30
    assert [one for one in asked(capsys, "wal", "show", made.wals) if one in recovered] == recovered


def test_all_backups_are_checked(made: Catalogue, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "page", "check", "--all-backups", made.home)
    assert len(found) == 2 and {one["result"] for one in found} == {"sound"}


@pytest.mark.parametrize("made", ["files", "copied"], indirect=True)
def test_a_flipped_byte_is_named_by_file_and_block(
    made: Catalogue, primary: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = replace(made, backup=tmp_path / made.backup.name)
    shutil.copytree(made.backup, damaged.backup, symlinks=True)
    name = primary.spaced.removeprefix("pg_tblspc/")
    content = bytearray((damaged.backup / name).read_bytes())
    content[BLOCK + 5000] ^= 0x10
    (damaged.backup / name).write_bytes(content)
    problem = asked(capsys, "page", "check", damaged.backup, code=1)["problems"][0]
    assert (problem["class"], problem["path"], problem["block"]) == ("checksum", f"{damaged.backup}/{primary.spaced}", 1)
