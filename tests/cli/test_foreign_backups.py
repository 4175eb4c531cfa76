"""Backups that look like data directories and are none: what reads files says what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from leadline.cli import run


@pytest.mark.parametrize("line", ["rows {} t", "page check {}", "salvage {} -o saved", "alter pending {}"])
def test_a_backup_of_pg_probackup_is_named(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have a header in front of each page: read as they are, all pages would be damaged."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "backups" / "main" / "R1A2B3" / "database"
    (root / "base" / "5").mkdir(parents=True)
    (root / "PG_VERSION").write_text("17\n")
    (root / "base/5/1259").write_bytes(bytes(8200))
    for name in ("backup.control", "backup_content.control"):
        (root.parent / name).write_text("")
    assert run([*line.format(root).split(), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == "this is a backup of pg_probackup, which is not read in place"
    assert (error["kind"], error["where"], "pg_probackup restore" in error["hint"]) == ("unsupported", str(root), True)
