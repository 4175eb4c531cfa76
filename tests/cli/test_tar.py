"""Backups as tar archives: commands that do not read inside of them say so. `page check`, `rows` and `wal` do: tests/differential."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest
from leadline.cli import run

COMMANDS = [["page", "show"], ["recover"], ["alter", "pending"]]


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """What pg_basebackup -Ft makes, in small."""
    folder = tmp_path / "backup"
    folder.mkdir()
    for name, inside in (("base.tar", "PG_VERSION"), ("pg_wal.tar", "000000010000000000000001")):
        (tmp_path / inside).write_bytes(b"17\n")
        with tarfile.open(folder / name, "w") as tar:
            tar.add(tmp_path / inside, inside)
    (folder / "pg_wal.tar.gz").write_bytes(gzip.compress((folder / "pg_wal.tar").read_bytes()))
    (folder / "wal-of-monday").write_bytes((folder / "pg_wal.tar").read_bytes())
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_tar_archive_is_named_as_what_it_is(command: list[str], backup: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("base.tar", "pg_wal.tar.gz", "wal-of-monday"):
        assert run([*command, str(backup / name), "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["message"] == "this is a tar archive, and files are not read inside of one"
        assert error["hint"] == f"extract it first: mkdir FOLDER && tar -xf {name} -C FOLDER"
    if command != ["page", "show"]:
        assert run([*command, str(backup), "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["message"] == "this folder has a backup as tar archives, and files are not read inside of them"
        assert error["detail"] == "for example base.tar"
