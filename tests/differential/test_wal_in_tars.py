"""WAL in the tar archives of a real pg_basebackup. Oracle: the same segments as `tar` extracts them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import fetched_or_skip
from leadline.cli import run
from recovery import ChecksummedServer
from tar_backups import SETTINGS, Source, tool_dir


@pytest.fixture(scope="module", params=[13, 18])
def primary(request: pytest.FixtureRequest) -> Iterator[tuple[Source, Path]]:
    """A server, and a table of it; and where a pg_basebackup of it is."""
    with ChecksummedServer(fetched_or_skip(request.param).bin_dir, settings=SETTINGS) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("create table t as select i as n from generate_series(1, 1000) i")
        yield Source(server, "", ""), tool_dir(request.param)


def shown(capsys: pytest.CaptureFixture[str], place: Path, *words: str) -> Any:
    capsys.readouterr()
    assert run(["wal", "show", str(place), *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def unpacked(archive: Path, folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True, timeout=60)
    return folder


@pytest.mark.live
@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.lz4", "tar.zst"])
def test_pg_wal_tar_is_read_as_the_segments_in_it(
    primary: tuple[Source, Path], form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, tools = primary
    plain = source.take(tmp_path / "backup", "-Ft", "-X", "stream", tools=tools)
    wanted = shown(capsys, unpacked(plain / "pg_wal.tar", tmp_path / "unpacked"))
    assert len(wanted) > 3
    packing = {"tar": "cat", "tar.gz": "gzip", "tar.lz4": "lz4", "tar.zst": "zstd"}[form]
    packed = tmp_path / "packed"
    packed.mkdir()
    for name in ("base", "pg_wal"):
        with (plain / f"{name}.tar").open("rb") as content, (packed / f"{name}.{form}").open("wb") as out:
            subprocess.run([packing], stdin=content, stdout=out, check=True, timeout=60)
    for place in (packed, packed / f"pg_wal.{form}"):
        assert shown(capsys, place) == wanted
    assert run(["wal", "export", str(packed), "-o", str(tmp_path / "wal.leadline"), "--json"]) == 0
    said = capsys.readouterr().out
    assert json.loads(said)["target"]["name"] == str(packed) and "leadline-backup-" not in said


@pytest.mark.live
def test_wal_that_is_in_the_archive_of_the_data_directory(
    primary: tuple[Source, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, tools = primary
    backup = source.take(tmp_path / "backup", "-Ft", "-X", "fetch", tools=tools)
    wanted = shown(capsys, unpacked(backup / "base.tar", tmp_path / "unpacked") / "pg_wal")
    assert len(wanted) > 3 and shown(capsys, backup) == wanted
    without = source.take(tmp_path / "without", "-Ft", "-X", "none", tools=tools)
    assert run(["wal", "show", str(without), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["message"], error["where"]) == ("not_found", "no WAL in it", str(without))
