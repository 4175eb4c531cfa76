"""Incremental backups of a real pg_basebackup, read in place. Oracle: the combined backup, and the files of the server itself."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from incremental_backups import Backups, take_backups
from leadline._core.pages import page_read
from leadline.cli import run
from leadline.errors import LeadlineError

MAGIC = 0xD3AE1F0D
BLOCK = 8192


@pytest.fixture(scope="module", params=[17, 18])
def backups(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backups:
    return take_backups(tmp_path_factory.mktemp(f"backups{request.param}"), request.param)


@pytest.fixture
def copied(backups: Backups, tmp_path: Path) -> Path:
    """The incremental backup, to be damaged."""
    return Path(shutil.copytree(backups.incremental, tmp_path / "incremental", symlinks=True))


def checked(capsys: pytest.CaptureFixture[str], *paths: Path, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["page", "check", *map(str, paths), "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def incremental_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("INCREMENTAL.*") if path.is_file())


def numbers(path: Path) -> tuple[list[int], int]:
    """The numbers of the blocks of a file, and where the first one begins."""
    content = path.read_bytes()
    magic, count, _ = struct.unpack_from("<III", content)
    assert magic == MAGIC
    start = (12 + 4 * count + BLOCK - 1) // BLOCK * BLOCK if count else 12
    assert len(content) == start + count * BLOCK
    return list(struct.unpack_from(f"<{count}I", content, 12)), start


def of_table(root: Path, filenode: int) -> Path:
    [path] = [path for path in incremental_files(root) if path.name == f"INCREMENTAL.{filenode}"]
    return path


def test_all_pages_of_an_incremental_backup_are_checked(backups: Backups, capsys: pytest.CaptureFixture[str]) -> None:
    root, there = backups.incremental, incremental_files(backups.incremental)
    found = checked(capsys, root)
    summary = found["summary"]
    assert found["problems"] == [] and summary["incremental"] == len(there) > 100
    every = [path for path in root.rglob("*") if path.is_file()]
    assert summary["files"] + sum(of["files"] for of in summary["not_checked"]) == len(every)
    relations = [path for path in every if path.name.split("_")[0].split(".")[0].isdigit() and path.parent.parent.name == "base"]
    relations += [path for path in (root / "global").iterdir() if path.name.split("_")[0].isdigit()]
    whole = sum(path.stat().st_size // BLOCK for path in relations)
    stored = sum(len(numbers(path)[0]) for path in there)
    assert stored >= 6 and summary["pages"] == whole + stored
    assert run(["page", "check", str(root)]) == 0
    text = capsys.readouterr().out
    assert f"{len(there):,} files of an incremental backup: " in text and text.endswith("no problems in what was checked\n")


def test_blocks_are_those_of_the_relation(backups: Backups) -> None:
    files = incremental_files(backups.incremental)
    assert len(numbers(of_table(backups.incremental, backups.table))[0]) >= 3
    compared = 0
    for path in files:
        name = path.name.removeprefix("INCREMENTAL.")
        below = path.relative_to(backups.incremental).with_name(name)
        # Nothing changed in the server's own file of this table after the backup; other tables may have had a last write.
        others = [backups.combined / below] if backups.combined else []
        others += [backups.data_dir / below] if name == str(backups.table) else []
        for other in others:
            for block in numbers(path)[0]:
                ours, theirs = page_read(str(path), block), page_read(str(other), block)
                assert (ours["raw"], ours["fork_block"], ours["fork"]) == (theirs["raw"], block, theirs["fork"]), (path, block)
                assert ours["problems"] == []
                compared += 1
    assert compared >= 3


def test_a_flipped_byte_is_named_by_file_and_block(backups: Backups, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (backups.table, backups.emptied):
        path = of_table(copied, name)
        blocks, start = numbers(path)
        nth = len(blocks) // 2
        content = bytearray(path.read_bytes())
        content[start + nth * BLOCK + 5000] ^= 0x10
        path.write_bytes(content)
        [problem] = [p for p in checked(capsys, copied, code=1)["problems"] if p["path"] == str(path)]
        assert (problem["class"], problem["block"]) == ("checksum", blocks[nth])
        # The same of this file alone.
        [problem] = checked(capsys, path, code=1)["problems"]
        assert (problem["class"], problem["block"]) == ("checksum", blocks[nth])


def headers() -> Iterator[Any]:
    def put(at: int, value: int) -> Any:
        return lambda content: content[:at] + struct.pack("<I", value) + content[at + 4 :]

    yield "magic", "incremental", "magic", put(0, MAGIC ^ 0x100)
    yield "too many blocks", "incremental", "num_blocks", put(4, 131073)
    yield "a length that no file has", "incremental", "truncation_block_length", put(8, 131073)
    yield "a block that no file has", "incremental", "relative_block_numbers", put(12, 131072)
    yield "a block twice", "incremental", "relative_block_numbers", lambda content: content[:16] + content[12:16] + content[20:]
    yield "cut off within a page", "short", "file", lambda content: content[:-100]
    yield "without its last page", "short", "file", lambda content: content[:-BLOCK]
    yield "cut off in the numbers", "incremental", "relative_block_numbers", lambda content: content[:20]
    yield "almost empty", "incremental", "file", lambda content: content[:7]
    yield "something behind it", "incremental", "file", lambda content: content + b"x"


@pytest.mark.parametrize("case", [pytest.param(case[1:], id=case[0]) for case in headers()])
def test_a_header_that_cannot_be_is_a_problem(case: Any, backups: Backups, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind, what, damage = case
    path = of_table(copied, backups.table)
    path.write_bytes(damage(path.read_bytes()))
    found = checked(capsys, copied, code=1)
    assert [(p["path"], p["class"], p["what"]) for p in found["problems"]] == [(str(path), kind, what)]


def test_pages_are_shown_by_the_number_of_their_block(backups: Backups, capsys: pytest.CaptureFixture[str]) -> None:
    path = of_table(backups.incremental, backups.table)
    blocks = numbers(path)[0]
    assert run(["page", "show", f"{path}:{blocks[-1]}"]) == 0
    assert f"block {blocks[-1]}: heap" in capsys.readouterr().out
    absent = next(block for block in range(blocks[-1]) if block not in blocks)
    with pytest.raises(LeadlineError) as failed:
        page_read(str(path), absent)
    assert f"block {absent} is not in this file" in failed.value.detail and str(blocks[0]) in failed.value.detail


def test_a_copy_elsewhere_has_its_page_size_from_its_length(backups: Backups, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = of_table(backups.incremental, backups.table)
    copy = Path(shutil.copy(path, tmp_path))
    found = checked(capsys, copy)
    assert (found["summary"]["pages"], found["problems"]) == (len(numbers(path)[0]), [])
    content = bytearray(copy.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    [problem] = checked(capsys, copy, code=1)["problems"]
    assert (problem["class"], problem["block"]) == ("checksum", numbers(path)[0][-1])


def test_segments_before_others_are_as_long_as_they_will_be(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = next(path.parent for path in copied.glob("base/*/PG_VERSION"))
    (database / "99999.1").write_bytes(bytes(BLOCK))
    first = database / "INCREMENTAL.99999"
    first.write_bytes(struct.pack("<III", MAGIC, 0, 131072))
    assert checked(capsys, copied)["problems"] == []
    first.write_bytes(struct.pack("<III", MAGIC, 0, 131071))
    [problem] = checked(capsys, copied, code=1)["problems"]
    assert (problem["class"], problem["path"]) == ("segment", str(database / "99999"))


def test_rows_of_the_blocks_that_are_there(backups: Backups, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = tmp_path / "pages.leadline"
    assert run(["page", "scan", str(backups.incremental), "-o", str(capture)]) == 0
    capsys.readouterr()
    query = f"""select block from page join page_file using (file_id) where relfilenode = {backups.table} and fork = 'main' order by 1"""
    assert run(["sql", str(capture), query, "--json"]) == 0
    found = [row["block"] for row in json.loads(capsys.readouterr().out)]
    assert found == numbers(of_table(backups.incremental, backups.table))[0]
