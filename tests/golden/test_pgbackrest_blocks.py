"""Files that pgBackRest stores by blocks (2.46 and later). Oracle: the SHA-1 of the whole file, which its manifest has.

`tests/differential/test_backup_pgbackrest.py` compares with what it restores, where a version that can is installed.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from leadline.cli import run

BLOCKS = Path(__file__).resolve().parents[2] / "testdata/pgbackrest/blocks.tar"
TABLE = "pg_data/base/5/16384.pgbi"


@pytest.fixture
def backups(tmp_path: Path) -> list[Path]:
    """The full backup and the incremental one."""
    with tarfile.open(BLOCKS) as tar:
        tar.extractall(tmp_path, filter="data")
    return sorted((tmp_path / "demo").iterdir())


def checked(backup: Path, capsys: pytest.CaptureFixture[str], code: int) -> Any:
    assert run(["page", "check", str(backup), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_file_is_put_together_from_both_backups(backups: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    for backup in backups:
        found = checked(backup, capsys, 0)
        assert (found["problems"], found["summary"]["pages"], found["summary"]["checksums"]) == ([], 87, 87)
        assert found["summary"]["digests"] == 1
    assert (backups[1] / TABLE).stat().st_size < (backups[0] / TABLE).stat().st_size / 10


def test_blocks_of_the_other_backup_that_are_damaged_or_gone(backups: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    full, incremental = backups
    content = bytearray((full / TABLE).read_bytes())
    content[20_000] ^= 0x10
    (full / TABLE).write_bytes(content)
    for backup in backups:
        problems = checked(backup, capsys, 1)["problems"]
        assert {problem["path"] for problem in problems} == {f"{backup}/base/5/16384"}
    (full / TABLE).unlink()
    [problem] = checked(incremental, capsys, 1)["problems"]
    assert (problem["class"], f"cannot open {full / TABLE}" in problem["message"]) == ("unreadable", True)


def test_a_map_that_is_damaged(backups: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    full, incremental = backups
    content = bytearray((incremental / TABLE).read_bytes())
    content[-559] = 1  # the map is at the end, and its version in front
    (incremental / TABLE).write_bytes(content)
    [problem] = checked(incremental, capsys, 1)["problems"]
    assert problem["class"] == "unreadable"
    assert "the map of its blocks is damaged: it is of a version that is not known" in problem["message"]
    assert checked(full, capsys, 0)["problems"] == []


def table_of(backup: Path) -> dict[str, Any]:
    """What the manifest says of the table."""
    [line] = [line for line in (backup / "backup.manifest").read_text().splitlines() if line.startswith("pg_data/base")]
    return dict(json.loads(line.partition("=")[2]))


def later_backup(backups: list[Path], about: dict[str, Any]) -> Path:
    """One more, with this in its manifest."""
    full, incremental = backups
    later = full.with_name(f"{full.name}_20261130-112356I")
    later.mkdir()
    head = (incremental / "backup.manifest").read_text().partition("pg_data/base")[0]
    head = head.replace(f'backup-label="{incremental.name}"', f'backup-label="{later.name}"')
    head = head.replace(f',{incremental.name}"', f',{incremental.name},{later.name}"')
    (later / "backup.manifest").write_text(f"{head}pg_data/base/5/16384={json.dumps(about)}\n")
    return later


@pytest.mark.parametrize("holder", [0, 1])
def test_a_manifest_that_lost_how_a_file_is_stored(backups: list[Path], holder: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to 2.46, of a file that is too small or too old for blocks by now: restore looks for NAME.lz4 (pgbackrest#2130, #2139, #2123)."""
    about = {key: value for key, value in table_of(backups[holder]).items() if key not in ("bi", "bim", "bic")}
    later = later_backup(backups, about | {"reference": backups[holder].name})
    found = checked(later, capsys, 0)
    assert (found["problems"], found["summary"]["checksums"], found["summary"]["digests"]) == ([], 87, 1)


def test_other_content_is_not_taken_for_it(backups: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    about = {key: value for key, value in table_of(backups[0]).items() if key not in ("bi", "bim", "bic")}
    later = later_backup(backups, about | {"reference": backups[0].name, "checksum": "0" * 40})
    [problem] = checked(later, capsys, 1)["problems"]
    assert (problem["class"], f"cannot open {backups[0]}/pg_data/base/5/16384.lz4" in problem["message"]) == ("unreadable", True)


def test_a_map_without_blocks_behind_another_file(backups: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Of a file whose time changed and nothing else (pgbackrest#2182, #2184)."""
    about = table_of(backups[1])
    later = later_backup(backups, about | {"bni": 1, "bno": 1000, "repo-size": about["bim"]})
    (later / "bundle").mkdir()
    (later / "bundle/1").write_bytes(bytes(1000) + (backups[1] / TABLE).read_bytes()[-about["bim"] :])
    found = checked(later, capsys, 0)
    assert (found["problems"], found["summary"]["checksums"], found["summary"]["digests"]) == ([], 87, 1)
