"""What `page check` does not look at: named, counted by kind, never called damaged, and never called sound."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from incremental_backups import take_backups
from leadline.cli import run


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `full`, `incremental` and `combined`, of a server of 18."""
    folder = tmp_path_factory.mktemp("backups")
    take_backups(folder, 18)
    return folder


def checked(capsys: pytest.CaptureFixture[str], *paths: Path, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["page", "check", *map(str, paths), "--json"]) == code, capsys.readouterr().out
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_tables_of_an_incremental_backup_are_not_read(backups: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = backups / "incremental"
    one = next(path for path in place.rglob("INCREMENTAL.*") if path.name.partition(".")[2].isdigit())
    whole, chain = "pg_combinebackup", "--based-on"
    for hint, command in (
        (chain, ["rows", place, "kept", "--database", "postgres"]), (chain, ["rows", place, "pg_class", "--database", "5"]),
        (whole, ["rows", one]), (whole, ["alter", "pending", place]), (whole, ["recover", place]),
        (whole, ["recover", place, "--archive", backups, "--to-end"]),
    ):  # fmt: skip
        capsys.readouterr()
        assert run([*map(str, command), "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["message"].startswith("this is an incremental backup")
        assert hint in error["hint"], command
    assert run(["rows", str(backups / "combined"), "kept", "--database", "postgres", "--limit", "3", "--json"]) == 0


def test_all_files_of_a_data_directory_are_counted(backups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    shutil.copytree(backups / "combined", root, symlinks=True)
    database = next(path.parent for path in root.glob("base/*/1259"))
    (database / "16384.bak").write_bytes(b"?" * 100)
    (database / "t3_16999").write_bytes(bytes(8192))
    (root / "base" / "pgsql_tmp").mkdir()
    (root / "base" / "pgsql_tmp" / "pgsql_tmp77.0").write_bytes(b"x")
    (root / "notes.txt").write_text("mine")
    # As other people's servers have them: an extension's file in base, another engine's folder, a cache that was left half written.
    (root / "base" / "zhparser_dict_template1.tag").write_bytes(b"")
    (root / "orioledb_data" / "5").mkdir(parents=True)
    (root / "orioledb_data" / "5" / "16384").write_bytes(b"o" * 8192)
    (database / "pg_internal.init.83188").write_bytes(b"c" * 20000)
    (database / "folder").mkdir()
    (database / "folder" / "16384").write_bytes(b"f" * 8192)
    (root / "pg_wal" / "archive_status").mkdir(exist_ok=True)
    (root / "pg_wal" / "archive_status" / "000000010000000000000004.done").write_bytes(b"")
    (root / "pg_wal" / "00000002.history").write_text("1\t0/4000000\tno recovery target specified\n")
    (root / "log").mkdir()
    (root / "log" / "postgresql-1.log").write_text("LOG: ready")
    found = checked(capsys, root)["summary"]
    kinds = {of["kind"]: of["files"] for of in found["not_checked"]}
    every = sum(1 for path in root.rglob("*") if path.is_file())
    assert found["files"] + sum(kinds.values()) == every
    assert (kinds["unknown"], kinds["temporary"], kinds["temporary relation"], kinds["server log"]) == (5, 1, 1, 1)
    assert kinds["multixact"] == 2 and kinds["WAL"] >= 3 and kinds["transaction status"] == 1 and kinds["relation cache"] >= 1
    capsys.readouterr()
    assert run(["page", "check", str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("not checked: 5 unknown files, such as") for line in lines)
    assert all(len(line) <= 80 for line in lines if line.startswith("not checked, "))


def test_other_files_are_not_called_damaged_pages(backups: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = backups / "combined"
    others = ("pg_multixact/offsets/0000", "pg_multixact/members/0000", "pg_xact/0000", "backup_label", "PG_VERSION", "global/pg_control")
    for path in others:
        capsys.readouterr()
        assert run(["page", "check", str(root / path), "--json"]) == 2, path
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["message"] == "cannot read pages here" and "relation" in error["detail"], path
    segment = next(path for path in (root / "pg_wal").iterdir() if len(path.name) == 24)
    for place, word in ((segment, "WAL"), (root / "pg_wal", "WAL"), (root / "pg_multixact" / "members", "multixact")):
        capsys.readouterr()
        assert run(["page", "check", str(place), "--json"]) == 2, place
        assert word in json.loads(capsys.readouterr().out)["error"]["detail"]
    # Whoever knows better can say so.
    assert run(["page", "check", str(root / "pg_multixact" / "offsets" / "0000"), "--block-size", "8192"]) in (0, 1)


def test_a_copy_of_such_a_file_keeps_its_folder_name(backups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "pg_multixact" / "offsets"
    place.mkdir(parents=True)
    shutil.copy(backups / "combined" / "pg_multixact" / "offsets" / "0000", place)
    assert run(["page", "check", str(place / "0000"), "--json"]) == 2
    assert "multixact" in json.loads(capsys.readouterr().out)["error"]["detail"]
