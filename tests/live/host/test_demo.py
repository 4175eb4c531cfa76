"""The demo: it finds the troubles of its load, its files are its own, and it leaves nothing running. test_demo_load.py: the load."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import leadline
import pytest
from conftest import background, is_running, wait_until
from leadline.capture.reader import open_capture
from leadline.demo import run
from leadline.demo.load import CLIENTS
from leadline.errors import LeadlineError


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A TMPDIR of its own, with a short path, open to the server's user: what the demo leaves behind stays visible in it."""
    folder = Path(tempfile.mkdtemp(prefix="leadline-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def demo(temporary: Path, out: Path, *options: str, prefix: Sequence[str] = ()) -> Any:
    """`leadline demo` as a child for a `with` block."""
    command = [*prefix, sys.executable, "-m", "leadline", "demo", "-o", out, *options]
    environment = os.environ | {"TMPDIR": str(temporary), "LEADLINE_BOOK": str(out / "book")}
    return background(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def read_until(process: Any, text: str) -> str:
    """What the process told on stderr up to the first line with `text`."""
    told = ""
    for line in process.stderr:
        told += line
        if text in line:
            return told
    pytest.fail(f"the demo ended before it said {text!r}: {told}")


def is_gone(told: str, temporary: Path) -> bool:
    """No postmaster, and nothing in the temporary folder."""
    match = re.search(r"postmaster (\d+)", told)
    assert match is not None
    return not is_running(int(match[1])) and list(temporary.iterdir()) == []


@pytest.mark.live
@pytest.mark.parametrize("rights", ["as they are", "of an ordinary user"])
def test_the_demo_finds_its_troubles_by_measurement(rights: str, temporary: Path, tmp_path: Path) -> None:
    """An ordinary user's own server is copied from instead of mapped, and the sampler has no priority over the load."""
    privileges = "-sys_admin,-checkpoint_restore,-sys_nice"
    ordinary = rights == "of an ordinary user" and os.geteuid() == 0
    prefix = ["setpriv", f"--bounding-set={privileges}", f"--inh-caps={privileges}"] if ordinary else []
    with demo(temporary, tmp_path, "--json", prefix=prefix) as process:
        stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert is_gone(stderr, temporary)
    result = json.loads(stdout)
    [shown] = re.findall(r"^logbook: (LEADLINE_BOOK=\S+ )leadline (book show \w{5})$", stderr, re.MULTILINE)
    look = f"{shown[0]} {sys.executable} -m leadline {shown[1]}"
    said = subprocess.run(look, shell=True, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^(?:name|status) +(\w+)$", said, re.MULTILINE) == ["demo", "ok"]
    folder = tmp_path / "leadline-demo"
    assert (result["capture"], result["report"]) == (str(folder / "capture.leadline"), str(folder / "report.html"))
    assert (folder / "report.html").stat().st_size > 10_000
    assert sorted(path.name for path in folder.iterdir()) == ["capture.leadline", "report.html"]
    if ordinary:
        access = json.loads((folder / "capture.leadline" / "manifest.json").read_text())["probes"]["sessions"]["access"]
        assert (access["shared_memory"], result["window"]["tier"]) == ("process_vm_readv", "shm")
    found = {(f["id"], f["subject"]): f for f in result["findings"]}

    def one(name: str, subject: str) -> str:
        """The statement of the finding of that id about that subject."""
        matches = [f["statement"] for (found_id, about), f in found.items() if found_id == name and subject in about]
        assert matches, f"no {name} about {subject} among {sorted(found)}"
        return str(matches[0])

    blockers = [tree for tree in result["lock_trees"] if "checkout" in tree["who"]]
    assert blockers
    root = one("BLOCK-CHAIN", f"pid {blockers[0]['pid']}")
    assert "idle in transaction" in root
    assert re.search(r"\b[4-9] ", root), "the number of victims"
    one("SLOW-CLIENT", "report-export")
    assert any("stock-sync" in subject for _, subject in found)
    if result["window"]["tier"] == "shm":
        assert "right-most leaf" in one("RIGHT-EDGE-INDEX", "order_event_pkey")
        one("SEQUENCE-PAGE", "invoice_number")
        assert_the_sequence_costs_what_its_clients_wait(folder / "capture.leadline")


def assert_the_sequence_costs_what_its_clients_wait(path: Path) -> None:
    """They wait for the content of no other page, and no one else draws these numbers."""
    with closing(open_capture(path)) as capture:
        page = capture.rows("select sum(wait_s) as s from page_wait where object = 'public.invoice_number'")[0]["s"]
        clients = capture.rows(
            "select sum(weight_s) as s from db_time where application_name = 'invoice-batch' and wait_event = 'BufferContent'"
        )[0]["s"]
    assert page == pytest.approx(clients, rel=0.05)


@pytest.mark.live
def test_ctrl_c_before_the_capture_clears_up(temporary: Path, tmp_path: Path) -> None:
    with demo(temporary, tmp_path) as process:
        told = read_until(process, "postmaster")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (130, ""), stderr
    assert "Traceback" not in stderr
    wait_until(lambda: is_gone(told, temporary), what="the end of the server and the removal of its folder")


@pytest.mark.live
def test_ctrl_c_during_the_capture_shows_what_there_is(temporary: Path, tmp_path: Path) -> None:
    with demo(temporary, tmp_path, "--seconds", "60") as process:
        told = read_until(process, "taking a capture")
        segments = tmp_path / "leadline-demo" / "capture.leadline"
        wait_until(lambda: list(segments.glob("tick/*.parquet")), 20, "the first segment of the capture")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert is_gone(told, temporary)
    assert "Database time" in stdout
    assert "stopped by the user" in stdout


@pytest.mark.live
def test_a_demo_that_is_killed_leaves_no_server(temporary: Path, tmp_path: Path) -> None:
    with demo(temporary, tmp_path) as process:
        told = read_until(process, "clients are running")
        process.kill()
        process.communicate(timeout=120)
    wait_until(lambda: is_gone(told, temporary), what="the end of the server and the removal of its folder")


def test_a_foreign_folder_is_one_error_on_the_command_line(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "leadline-demo").mkdir()
    (tmp_path / "leadline-demo" / "thesis.txt").touch()
    with demo(temporary, tmp_path) as process:
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (2, "")
    assert stderr.startswith("error: the directory contains files")
    assert "hint: " in stderr


def test_only_an_earlier_demo_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "x" / run.DIRECTORY
    result = run.prepare_directory(folder)
    assert (result.capture, result.report) == (folder / "capture.leadline", folder / "report.html")
    (result.capture / "tick").mkdir(parents=True)
    (result.capture / "manifest.json").write_text("{}")
    result.report.write_text("<html>")
    run.prepare_directory(folder)
    assert list(folder.iterdir()) == []

    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(LeadlineError, match="not from an earlier demo") as told:
        run.prepare_directory(folder)
    assert (told.value.kind, told.value.detail, told.value.where) == ("usage", "thesis.txt", str(folder))
    assert (folder / "thesis.txt").read_text() == "mine"


def test_a_capture_folder_that_is_no_capture_is_kept(tmp_path: Path) -> None:
    (tmp_path / "capture.leadline").mkdir()
    (tmp_path / "capture.leadline" / "notes.txt").write_text("mine")
    with pytest.raises(LeadlineError, match="not from an earlier demo"):
        run.prepare_directory(tmp_path)
    assert (tmp_path / "capture.leadline" / "notes.txt").exists()


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LeadlineError) as told:
        run.prepare_directory(tmp_path / "file" / run.DIRECTORY)
    assert told.value.kind == "storage"


def test_too_little_room_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(0, 0, 3 * 1024**3))
    run.check_room(20)
    with pytest.raises(LeadlineError) as told:
        run.check_room(60)
    assert (told.value.kind, "TMPDIR" in told.value.hint) == ("storage", True)


def test_nothing_that_measures_or_judges_knows_the_demo() -> None:
    """Only the command and the demo itself import the demo; no other file names its clients or its tables."""
    root = Path(leadline.__file__).parent
    names = {client.name for client in CLIENTS} - {"payment", "refund", "campaign", "checkout"} | {"order_event", "invoice_number"}
    for path in root.rglob("*.py"):
        if path.is_relative_to(root / "demo") or path == root / "cli" / "demo.py":
            continue
        text = path.read_text(encoding="utf-8")
        imported = {n.module or "" for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
        assert not any(module.startswith("leadline.demo") for module in imported), path
        assert not [name for name in names if name in text], path
    for path in (root / "findings").glob("*.sql"):
        assert not [name for name in names if name in path.read_text(encoding="utf-8")], path
