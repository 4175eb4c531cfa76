"""A capture that takes long to open: the page is there meanwhile, and says how far it is; what fails ends the command as one error."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import wait_until
from findings_synthetic import SyntheticCapture
from leadline.capture import reader
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.explore.answers import open_explored
from leadline.explore.opening import Opening, Stopped


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    cap = SyntheticCapture(tmp_path, seconds=2)
    cap.sample(cap.add_session(), "active", None, 0, 2)
    return cap.write()


def test_each_step_of_a_large_capture_is_told(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "is_small", lambda path, samples: False)
    told: list[tuple[int, int, str]] = []
    explorer = open_explored(capture, lambda db, done, of, what: told.append((done, of, what)))
    assert [done for done, _, _ in told] == list(range(len(told))) and {of for _, of, _ in told} == {len(told)}
    assert "session_sample" in [what for _, _, what in told]
    explorer.capture.close()


def test_what_is_opened_comes_when_it_is_there() -> None:
    told, go, ended = threading.Event(), threading.Event(), threading.Event()

    def make(tell: Any) -> str:
        tell(None, 3, 7, "session_sample")
        told.set()
        go.wait()
        return "opened"

    opening = Opening(make, ended.set).begin()
    assert told.wait(60)
    assert opening.state() == {"ready": False, "done": 3, "of": 7, "what": "session_sample"} and not opening.is_ready
    go.set()
    assert opening.get() == "opened" and opening.is_ready and ended.wait(60)
    assert opening.state()["ready"]


def test_what_fails_is_raised_by_who_asks() -> None:
    def make(tell: Any) -> str:
        raise LeadlineError("invalid", "a segment is damaged")

    opening = Opening(make).begin()
    for asked in (opening.get, opening.state):
        with pytest.raises(LeadlineError, match="a segment is damaged"):
            asked()


def test_an_end_before_it_is_open_interrupts_its_query() -> None:
    begun = threading.Event()

    def make(tell: Any) -> str:
        with reader.memory_database() as db:
            tell(db, 0, 1, "a query of hours")
            begun.set()
            db.execute("select count(*) from range(100_000_000) a, range(100_000_000) b where a.range % 7 = b.range % 11").fetchall()
        return "never"

    opening = Opening(make).begin()
    assert begun.wait(60)
    opening.stop()
    with pytest.raises(LeadlineError, match="the page has ended"):
        opening.get()


def test_an_end_between_two_steps_needs_no_query() -> None:
    begun, stopping = threading.Event(), threading.Event()
    raised: list[type] = []

    def make(tell: Any) -> str:
        begun.set()
        stopping.wait()
        try:
            tell(None, 1, 2, "the next step")
        except Stopped:
            raised.append(Stopped)
            raise
        return "never"

    opening = Opening(make).begin()
    assert begun.wait(60)
    opening._stopping = True
    stopping.set()
    opening.stop()
    assert raised == [Stopped] and not opening.is_ready


SLOW = """
import sys, time
from pathlib import Path
from leadline.explore import answers

real = answers.open_capture

def slow(path, **given):
    while not go.exists():
        given["tell"](None, 2, 9, "session_run")
        time.sleep(0.02)
    return real(path, **given)

answers.open_capture = slow
from leadline.__main__ import main
go = Path(sys.argv.pop())
sys.argv[1:] = ["explore", sys.argv[1], "--no-browser"]
main()
"""


@contextmanager
def slowly(capture: Path, go: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, whose capture opens when the file `go` is there, and its address."""
    line = [sys.executable, "-c", SLOW, str(capture), str(go)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def ask(url: str, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_page_is_there_before_the_capture_is(capture: Path, tmp_path: Path) -> None:
    with slowly(capture, tmp_path / "go") as (_, url):
        status, page = ask(url, "/?from=99")
        assert (status, "The capture is being read" in page) == (200, True)
        wait_until(lambda: json.loads(ask(url, "/api/opening")[1])["of"] == 9, what="its first step")
        assert json.loads(ask(url, "/api/opening")[1]) == {"ready": False, "done": 2, "of": 9, "what": "session_run"}
        (tmp_path / "go").touch()
        assert json.loads(ask(url, "/api/about")[1])["window_s"] == 2  # waits until it is open
        assert json.loads(ask(url, "/api/opening")[1])["ready"] is True
        assert ask(url, "/?from=99")[0] == 400  # now that its length is known


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_it_opens(capture: Path, tmp_path: Path, number: signal.Signals) -> None:
    with slowly(capture, tmp_path / "never") as (process, _):
        process.send_signal(number)
        assert (process.wait(60), process.stderr.read() if process.stderr else "") == (0, "Ctrl-C ends it\n")


def test_a_damaged_capture_is_one_error_of_the_command(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [segment] = (capture / "tick").glob("*.parquet")
    segment.write_bytes(b"PAR1" + bytes(1000))
    assert run(["explore", str(capture), "--no-browser"]) == 2
    assert capsys.readouterr().err.count("error:") == 1
