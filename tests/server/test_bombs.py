"""Captures that are small on the disk and large in memory, damaged, or slow: who asks gets one clear error, and the server goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.recorder import Recorder
from leadline.book.retention import Retention, prune
from leadline.errors import LeadlineError
from leadline.server.read import sandbox
from serving import Served, serving, wait_until

WHOLE = Path(__file__).resolve().parents[2] / "testdata" / "capture" / "format1"
BOUND = "the capture cannot be read within the bounds of a server"
ROWS = 1_200_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("bombs")) as served:
        yield served


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture two of whose tables are some kilobytes of Parquet, and 2.4 GB each when they are read."""
    capture: Path = shutil.copytree(WHOLE, tmp_path_factory.mktemp("bomb") / "bomb.leadline")
    made = capture.parent / "made.parquet"
    with duckdb.connect() as db:
        rows = f"select 'work_mem' as name, repeat('x', 2000) as value, value as setting from range({ROWS})"
        db.execute(f"copy ({rows}) to '{made}' (format parquet, compression zstd)")
    assert made.stat().st_size < 1 << 20
    for table in ("host_fact", "setting"):
        [file] = (capture / table).glob("*.parquet")
        shutil.copyfile(made, file)
    return capture


def recorded(served: Served, capture: Path) -> str:
    """A run that made this capture."""
    recorder = Recorder(Place(served.book))
    recorder.begin("leadline", "take", ["leadline", "take"])
    recorder.artifact("capture", capture)
    recorder.end(0)
    uid: str = recorder.uid
    client = served.client()
    wait_until(lambda: client.get(f"/runs/{uid}.json").json.get("run", {}).get("status") == "ok", "the run")
    return uid


def address_of(served: Served, uid: str) -> str:
    """The report of its capture."""
    [made] = served.client().get(f"/runs/{uid}.json").json["run"]["artifacts"]
    return f"/runs/{uid}/files/{made['n']}/report"


def rss_kb(served: Served) -> int:
    assert served.process is not None
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def test_what_expands_to_gigabytes_is_an_error_and_no_harm(served: Served, bomb: Path) -> None:
    client, uid = served.client(), recorded(served, bomb)
    before = rss_kb(served)
    shown = client.get(f"/api/v1{address_of(served, uid)}", Accept="text/html,*/*")
    assert (shown.status, shown.header("content-type")) == (400, "text/html; charset=utf-8")
    assert BOUND[1:] in shown.text
    assert "leadline report CAPTURE" in shown.text
    whole = recorded(served, WHOLE)
    differences = client.call("GET", f"/compare?one={whole}&other={uid}").json["differences"]
    assert "setting" not in {d["part"] for d in differences}  # they are not known, and the page is there all the same
    assert rss_kb(served) - before < 100_000
    assert list(served.book.glob("reports/*/*")) == []
    assert served.complaints() == ""


SETTINGS = ", ".join(f"current_setting($${name}$$)" for name in ("memory_limit", "threads", "temp_directory"))
BEYOND = {
    "memory": ("len(bytearray(sandbox.PROCESS_MEMORY))", "MemoryError"),
    "what is written": ("open(sys.argv[1], 'wb').truncate(sandbox.MOST_BYTES + 1)", "File too large"),
    "CPU time": ("resource.getrlimit(resource.RLIMIT_CPU)[0]", str(sandbox.THREADS * sandbox.PATIENCE_S)),
    "DuckDB": (f"memory_database().execute('select {SETTINGS}').fetchone()", "('2.0 GiB', 2, '')"),
}  # fmt: skip


@pytest.mark.parametrize(("do", "told"), BEYOND.values(), ids=list(BEYOND))
def test_each_bound_of_a_reader_holds(do: str, told: str, tmp_path: Path) -> None:
    script = f"""
import resource, sys
from leadline.capture.reader import memory_database
from leadline.server.read import sandbox
sandbox.bound("report")
print({do})"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "file")], capture_output=True, text=True, timeout=60)
    assert (done.stdout + done.stderr).splitlines()[-1].endswith(told), done.stderr


def test_a_reader_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox, "PATIENCE_S", 0.01)
    with pytest.raises(LeadlineError, match=BOUND) as told:
        sandbox.compared(str(WHOLE))
    assert told.value.detail == "It took more than 0.01 s."


@pytest.mark.parametrize("damage", [b"PAR1", b"PAR1" + b"\xff" * 4000 + b"PAR1", b"\x00" * 100], ids=["cut", "overwritten", "zeros"])
def test_a_damaged_capture_is_told_in_its_own_words(served: Served, tmp_path: Path, damage: bytes) -> None:
    capture = shutil.copytree(WHOLE, tmp_path.resolve() / "damaged.leadline")
    for file in (capture / "session_run").glob("*.parquet"):
        file.write_bytes(damage)
    answer = served.client().call("GET", address_of(served, recorded(served, capture)))
    assert (answer.status, answer.json["error"]["message"]) == (400, "table session_run of the capture is damaged")


def test_a_report_is_made_once_for_each_state_and_goes_with_its_run(served: Served, tmp_path: Path) -> None:
    capture = shutil.copytree(WHOLE, tmp_path.resolve() / "kept.leadline")
    client, uid = served.client(), recorded(served, capture)
    folder = served.book / "reports" / uid

    def made() -> list[tuple[str, int]]:
        answer = client.call("GET", address_of(served, uid))
        assert answer.status == 200, answer.text
        assert answer.header("content-security-policy").startswith("sandbox")
        [file] = folder.iterdir()
        assert file.read_bytes() == answer.body
        return [(file.name, file.stat().st_mtime_ns)]

    first = made()
    assert made() == first
    os.utime(capture / "manifest.json", ns=(1, 1))
    assert made() != first
    book = Book(Place(served.book))
    assert prune(book, Retention(most_runs=0), really=True).runs > 0
    book.close()
    assert not folder.exists()
