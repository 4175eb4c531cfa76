"""A scan of pages as tasks: in any order they make the same files, and a scan that was ended goes on where it was."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.files.pages import scan
from leadline.files.tasks import Receipt, Task
from leadline.files.tasks.receipts import RECEIPTS, Receipts
from page_tasks import WAITING, example_with, made

PAGES = Path(__file__).resolve().parents[2] / "testdata" / "postgres" / "9.6"
TABLES = ("page", "heap_tuple", "index_item")
BLOCK = 8192
BLOCKS = (0, 10_000, 18_000)  # of a file of three tasks, those that are not new
Work = Callable[[Task], Receipt]


@pytest.fixture(scope="module")
def relations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 156 MB, most of it never used, an index of one page, and an empty table."""
    folder = tmp_path_factory.mktemp("tasks") / "5"
    folder.mkdir()
    with (folder / "16384").open("wb") as file:
        for block in BLOCKS:
            file.seek(block * BLOCK)
            file.write((PAGES / "heap_4_rows.page").read_bytes())
        file.truncate(19_000 * BLOCK)
    shutil.copy(PAGES / "btree_4_keys.page", folder / "16385")
    (folder / "16386").touch()
    return folder


@pytest.fixture(scope="module")
def whole(relations: Path) -> Path:
    """The scan of it that nothing interrupts."""
    out = relations.parent / "whole.leadline"
    assert run(["page", "scan", str(relations), "-o", str(out)]) == 0
    return out


def test_three_tasks_have_all_rows(whole: Path) -> None:
    receipts = [json.loads(line) for line in (whole / RECEIPTS).read_text().splitlines()]
    assert [receipt["summary"]["pages"] for receipt in receipts] == [8192, 8192, 19_000 - 2 * 8192 + 1]
    with closing(open_capture(whole)) as capture:
        tuples = capture.rows("select block, count(*) as n from heap_tuple group by 1 order by 1")
        assert [tuple(row.values()) for row in tuples] == [(block, 4) for block in BLOCKS]
        counts = "select relfilenode, count(*), count(distinct block) from page join page_file using (file_id) group by 1 order by 1"
        pages = capture.rows(counts)
        assert [tuple(row.values()) for row in pages] == [(16384, 19_000, 19_000), (16385, 1, 1)]
        assert capture.scalar("select count(*) from page_file") == 3
        assert capture.scalar("select count(*) from index_item") == 4


def test_tasks_make_the_same_files_in_any_order(relations: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process would: what it is given and gives back is JSON."""

    def backwards(tasks: Iterable[Task], work: Work) -> Iterator[Any]:
        for task in reversed(list(tasks)):
            yield json.loads(json.dumps(work(json.loads(json.dumps(task)))))

    monkeypatch.setattr(scan, "engine_of", lambda *_: backwards)
    out = tmp_path / "out.leadline"
    assert run(["page", "scan", str(relations), "-o", str(out)]) == 0
    assert made(out, TABLES) == made(whole, TABLES)


def test_a_killed_scan_goes_on_where_it_was(relations: Path, whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.leadline"
    line = ["page", "scan", str(relations), "-o", str(out)]
    with subprocess.Popen([sys.executable, "-c", WAITING, "1", *line], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"kept\n"
        process.send_signal(signal.SIGKILL)
    assert read_manifest(out).status == "recording"
    [receipt] = [json.loads(line) for line in (out / RECEIPTS).read_text().splitlines()]
    kept = {part["file"]: (out / part["file"]).stat().st_ino for part in receipt["parts"]}
    with (out / RECEIPTS).open("a") as file:
        file.write('{"task": "half a l')  # it may be killed while it writes
    shutil.copy(out / next(iter(kept)), out / "page" / "of-another-task-1.parquet")
    capfd.readouterr()
    assert run([*line, "--resume"]) == 0
    assert capfd.readouterr().err == "1 task of 3 done before\n"
    assert made(out, TABLES) == made(whole, TABLES)
    assert {file: (out / file).stat().st_ino for file in kept} == kept
    assert read_manifest(out).tables == read_manifest(whole).tables
    assert read_manifest(out).probes == read_manifest(whole).probes


def test_an_error_ends_a_scan_that_can_go_on(relations: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(tasks: Iterable[Task], work: Work) -> Iterator[Receipt]:
        yield work(next(iter(tasks)))
        raise LeadlineError("storage", "no more")

    out = tmp_path / "out.leadline"
    line = ["page", "scan", str(relations), "-o", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(scan, "engine_of", lambda *_: failing)
        assert run(line) == 2
    manifest = read_manifest(out)
    assert manifest.status == "failed"
    assert manifest.error is not None
    assert manifest.error["message"] == "no more"
    assert run([*line, "--resume"]) == 0
    assert made(out, TABLES) == made(whole, TABLES)


def test_only_what_changed_is_read_again(whole: Path, relations: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.leadline"
    shutil.copytree(whole, out)
    line = ["page", "scan", str(relations), "-o", str(out), "--resume"]

    def done_before() -> str:
        capfd.readouterr()
        assert run(line) == 0
        return capfd.readouterr().err

    assert done_before() == "3 tasks of 3 done before\n"
    assert made(out, TABLES) == made(whole, TABLES)
    first = json.loads((out / RECEIPTS).read_text().splitlines()[0])
    os.truncate(out / first["parts"][0]["file"], 100)
    assert done_before() == "2 tasks of 3 done before\n"
    assert made(out, TABLES) == made(whole, TABLES)
    index = relations / "16385"
    before = index.stat()
    os.utime(index, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    try:
        assert done_before() == "2 tasks of 3 done before\n"
    finally:
        os.utime(index, ns=(before.st_atime_ns, before.st_mtime_ns))
    of_index = set(made(out, TABLES)) ^ set(made(whole, TABLES))
    assert {file.partition("/")[0] for file in of_index} == {"page", "index_item", "heap_tuple"}


def test_a_scan_of_something_else_is_not_gone_on_with(
    whole: Path, relations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made(whole, TABLES)
    assert run(["page", "scan", str(relations / "16385"), "-o", str(whole), "--resume", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["message"], error["detail"]) == ("this capture is of something else", f"it is of {relations}")
    assert made(whole, TABLES) == before
    assert run(["page", "scan", str(relations), "-o", str(whole), "--resume", "--force", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "--force and --resume contradict each other"


def test_without_ray_the_error_says_what_to_install(
    relations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["page", "scan", str(relations), "-o", str(tmp_path / "out.leadline"), "--engine", "ray", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["message"], "pip install leadline[ray]" in error["hint"]) == ("Ray is not installed", True)


def test_without_daft_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "daft", None)
    monkeypatch.delitem(sys.modules, "leadline.files.pages.on_daft", raising=False)
    with pytest.raises(LeadlineError, match="Daft is not installed") as raised:
        importlib.import_module("leadline.files.pages.on_daft")
    assert "pip install leadline[daft]" in raised.value.hint


def test_a_task_without_receipt_is_not_committed(whole: Path, tmp_path: Path) -> None:
    """As where another leadline ran it, in a loop of one's own."""
    out = tmp_path / "out.leadline"
    shutil.copytree(whole, out)
    before = made(out, TABLES)
    with pytest.raises(LeadlineError, match="tasks have no receipt") as raised:
        Receipts(out).commit(["of-another-leadline"], TABLES)
    assert raised.value.hint == "install the same version on all nodes"
    assert made(out, TABLES) == before


def test_the_example_of_another_engine_makes_the_same_files(relations: Path, whole: Path, tmp_path: Path) -> None:
    out, script = tmp_path / "rows", tmp_path / "example.py"
    script.write_text(example_with("multiprocessing", {"/shared/rows": str(out), "/shared/main": str(relations)}))
    subprocess.run([sys.executable, str(script)], check=True, timeout=60)
    assert made(out, TABLES) == made(whole, TABLES)
