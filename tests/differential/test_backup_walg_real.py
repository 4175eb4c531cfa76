"""Backups and WAL of a real WAL-G where they lie. Oracle: the clusters that it restores of them, and the server's COPY.

Only with LEADLINE_LONG_TESTS=1: WAL-G is in no package. It is named by LEADLINE_WALG, or on the PATH.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import fetched_or_skip
from leadline._core.backups import BackupFiles
from leadline.cli import run
from quiet_tables import without_places
from recovery import only_in_long_runs
from walg_changes import TABLES
from walg_folders import VARIANTS, Folder, folder, program

pytestmark = pytest.mark.live
BLOCK = 8192
PAGES = ("pages", "items", "checksums", "kinds", "classes")
OF_ROWS = re.compile(r"(base|global|pg_tblspc|pg_xact|pg_multixact)/(?!.*pg_internal)")


@pytest.fixture(scope="module", params=VARIANTS)
def made(request: pytest.FixtureRequest) -> Iterator[Folder]:
    with folder(Path(fetched_or_skip(16).bin_dir), VARIANTS[request.param]) as found:
        yield found


@pytest.fixture(scope="module", params=[13, 18])
def remote(request: pytest.FixtureRequest) -> Iterator[Folder]:
    with folder(Path(fetched_or_skip(request.param).bin_dir), {"WALG_TAR_SIZE_THRESHOLD": "1000000"}, "--remote") as found:
        yield found


def asked(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*map(str, words), "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def same_pages(made: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    increments = 0
    for backup, restored in zip(made.backups, made.restored):
        found = asked(capsys, "page", "check", backup)
        assert found["problems"] == [] and found["summary"]["backups"] == [[str(backup), "WAL-G backup"]]
        if "_D_" in backup.name:
            increments = found["summary"]["incremental"]
            continue
        wanted = asked(capsys, "page", "check", restored)
        assert {key: found["summary"][key] for key in PAGES} == {key: wanted["summary"][key] for key in PAGES}
    assert (increments > 5) == ("_D_" in made.backups[-1].name)
    found = asked(capsys, "page", "check", "--all-backups", made.path)
    assert [(one["backup"], one["result"]) for one in found] == [(str(backup), "sound") for backup in made.backups]


def same_files(made: Folder, into: Path) -> None:
    """The files are those that WAL-G restores, of each backup."""
    for number, (backup, restored) in enumerate(zip(made.backups, made.restored)):
        files = BackupFiles.open(str(backup), [])
        assert files is not None
        wanted = {str(path.relative_to(restored)) for path in restored.rglob("*") if path.is_file()}
        spaces = restored / "pg_tblspc"
        wanted |= {
            f"pg_tblspc/{link.name}/{path.relative_to(link)}" for link in spaces.iterdir() for path in link.rglob("*") if path.is_file()
        }
        wanted = {name for name in wanted if OF_ROWS.match(name)}
        assert {name for name in files.files() if OF_ROWS.match(name)} == wanted and len(wanted) > 800
        folder = into / str(number)
        folder.mkdir()
        assert files.extract(str(folder), wanted) == []
        for name in wanted:
            assert (folder / name).read_bytes() == (restored / name).read_bytes(), name


def same_rows(made: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    for table in TABLES:
        assert run(["rows", str(made.backups[-1]), table, "--csv"]) == 0, capsys.readouterr()
        said = capsys.readouterr()
        assert without_places(said.out) == made.rows[table], table
        assert "warning" not in said.err
    # Of an earlier one, what WAL-G restores of it.
    for backup, restored in zip(made.backups[:-1], made.restored):
        assert run(["rows", str(restored), "cut", "--csv"]) == 0, capsys.readouterr()
        wanted = capsys.readouterr().out
        assert run(["rows", str(backup), "cut", "--csv"]) == 0
        assert capsys.readouterr().out == wanted


@only_in_long_runs
def test_pages_are_those_of_the_restored_cluster(made: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    same_pages(made, capsys)


@only_in_long_runs
def test_files_are_those_of_the_restored_cluster(made: Folder, tmp_path: Path) -> None:
    same_files(made, tmp_path)


@only_in_long_runs
def test_rows_are_those_of_the_server(made: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    same_rows(made, capsys)


@only_in_long_runs
def test_a_full_backup_by_replication_and_deltas_of_it(remote: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WAL-G does not find its files again, and has all of them whole in the first delta backup."""
    same_pages(remote, capsys)
    same_files(remote, tmp_path)
    same_rows(remote, capsys)


@only_in_long_runs
def test_wal_is_that_of_the_server(made: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder also has lists of changes and of what it needs to make them."""
    wanted = asked(capsys, "wal", "stats", made.segments)
    assert len(wanted) > 5 and asked(capsys, "wal", "stats", made.path / "wal_005") == wanted


@only_in_long_runs
@pytest.mark.parametrize("made", ["not compressed, by databases"], indirect=True)
def test_a_flipped_byte_is_named_by_file_and_block(made: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the full backup and in the last delta backup, whose archives are not compressed."""
    home = Path(shutil.copytree(made.path / "basebackups_005", tmp_path / "basebackups_005"))
    for number, name, block in ((0, made.table, 1), (2, made.spaced, 2)):
        page = (made.restored[number] / name).read_bytes()[block * BLOCK : (block + 1) * BLOCK]
        backup = home / made.backups[number].name
        [part] = [part for part in (backup / "tar_partitions").iterdir() if page in part.read_bytes()]
        content = bytearray(part.read_bytes())
        content[content.index(page) + 5000] ^= 0x10
        part.write_bytes(content)
        [problem] = asked(capsys, "page", "check", backup, code=1)["problems"]
        path = Path(problem["path"])
        own = path.with_name(path.name.removeprefix("INCREMENTAL."))
        assert (problem["class"], own, problem["block"]) == ("checksum", backup / name, block)


@only_in_long_runs
def test_the_program_is_wal_g() -> None:
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, timeout=60).stdout
    assert said.startswith("wal-g version")
