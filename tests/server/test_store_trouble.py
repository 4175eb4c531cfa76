"""A store without room, that may only be read, or that goes away, and a clock that is set: one clear message, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from books import Open
from leadline.book.place import VARIABLE, Place
from leadline.book.query import Book
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.server.accounts import login
from leadline.server.accounts.passwords import Throttle
from leadline.server.launch import schedules
from leadline.server.operation import perform
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME
from serving import PASSWORD, Served, book, wait_until


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=0700", "none", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def one_error(answer: Any) -> None:
    assert answer.status == 503, answer.text
    assert answer.json["error"]["message"] == "the book cannot be read or written now"
    assert answer.json["error"]["detail"]


def fill(folder: Path) -> Path:
    rest = folder / "rest"
    with pytest.raises(OSError, match="No space left"), open(rest, "wb", buffering=0) as file:
        while True:
            if file.write(b"x" * 4096) < 4096:
                raise OSError("No space left")
    return rest


def test_a_full_disk_is_one_clear_error_and_nothing_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, book(tmp_path) as served:
        served.book, served.environment[VARIABLE] = disk / "book", str(disk / "book")
        served.user("ann", "--admin")
        served.record("echo", "before", name="before")
        served.start()
        client = served.client(token=served.token_of("ann"))
        wait_until(lambda: client.call("GET", "/runs").json["runs"], "the first run")
        rest = fill(disk)
        answers = []
        for n in range(200):  # what is in the file of the write-ahead log already can be used again
            answers.append(client.call("PUT", "/runs/last/labels/k", value="x" * 20_000 + str(n)))
            if answers[-1].status != 200:
                break
        one_error(answers[-1])
        assert client.call("GET", "/runs").status == 200
        assert client.get("/runs").status == 200
        shown = served.leadline("book", "list")
        assert shown.stderr.count("error: ") + ("before" in shown.stdout) == 1, shown  # to open it may need a little room
        assert "Traceback" not in shown.stderr
        done = served.leadline("run", "--name", "meanwhile", "--", "echo", "printed")
        assert (done.returncode, done.stdout) == (0, "printed\n")
        rest.unlink()
        assert client.call("PUT", "/runs/last/labels/k", value="after").status == 200
        served.record("echo", "after", name="after")
        names = wait_until(
            lambda: "after" in (found := [run["name"] for run in client.call("GET", "/runs").json["runs"]]) and found, "the run after"
        )
        assert set(names) <= {"before", "meanwhile", "after"}
        assert {"before", "after"} <= set(names)
        assert served.do("user", "verify")["whole"] is True
        complaints = served.complaints().splitlines()
        assert len(complaints) <= 5, complaints
        assert [line for line in complaints if "Traceback" in line] == []


def test_a_folder_that_may_only_be_read_is_one_clear_error(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, book(tmp_path) as served:
        served.book, served.environment[VARIABLE] = disk / "book", str(disk / "book")
        served.record("echo", "before", name="before")
        served.do("book", "list")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for words in (("book", "list"), ("serve", "--listen", "127.0.0.1:0"), ("token", "list")):
            done = served.leadline(*words)
            assert (done.returncode, done.stdout, done.stderr.count("error: ")) == (2, "", 1), done.stderr
            assert "the book cannot be opened" in done.stderr
        done = served.leadline("run", "--", "echo", "printed")
        assert (done.returncode, done.stdout, done.stderr) == (0, "printed\n", "")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert [run["name"] for run in served.do("book", "list")["runs"]] == ["before"]


Fresh = Callable[..., Any]


def on(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A book in that server, not yet served."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "serve.err").touch()
    dsn = f"postgresql://postgres@/postgres?host={server.private.socket_dir}&port={server.private.port}"
    return Served(tmp_path / "book", dict(os.environ) | {VARIABLE: dsn})


def test_a_database_that_may_only_be_read_and_then_written_again(
    fresh_server: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = fresh_server(18)
    served = on(server, tmp_path, monkeypatch)
    served.user("ann", "--admin")
    token = served.token_of("ann")
    try:
        server.sql("alter system set default_transaction_read_only = on")
        server.sql("select pg_reload_conf()")
        served.start()
        client = served.client(token=token)
        assert client.call("GET", "/runs").json["runs"] == []
        one_error(client.call("PUT", "/projects/main/templates/t", command="true"))
        one_error(client.call("POST", "/tokens", name="x"))
        served.record("echo", "waits", name="waits")
        shown = served.leadline("book", "list", "--json")
        assert shown.returncode == 0
        assert shown.stderr.startswith("warning: what was recorded since cannot be taken into the book, and waits beside it: ")
        assert client.call("GET", "/runs").json["runs"] == []
        server.sql("alter system reset default_transaction_read_only")
        server.sql("select pg_reload_conf()")
        wait_until(lambda: [run["name"] for run in client.call("GET", "/runs").json["runs"]] == ["waits"], "what waited")
        assert client.call("PUT", "/projects/main/templates/t", command="true").status == 200
        assert len(served.complaints().splitlines()) <= 3, served.complaints()
    finally:
        served.stop()


def test_a_database_that_goes_away_and_comes_back(fresh_server: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = fresh_server(18)
    served = on(server, tmp_path, monkeypatch)
    served.user("ann", "--admin")
    token = served.token_of("ann")
    try:
        served.start()
        client = served.client(token=token)
        assert client.call("PUT", "/projects/main/templates/t", command="echo through").status == 200
        server.private.stop()
        for _ in range(3):
            answer = client.call("GET", "/runs")
            assert (answer.status, answer.json["error"]["kind"]) == (503, "storage"), answer.text
        assert client.get("/healthz").status == 200
        served.record("echo", "meanwhile", name="meanwhile")
        server.private.start()
        wait_until(lambda: all(client.call("GET", "/runs").status == 200 for _ in range(5)), "the store")
        wait_until(lambda: [run["name"] for run in client.call("GET", "/runs").json["runs"]] == ["meanwhile"], "what was recorded")
        assert client.call("PUT", "/projects/main/templates/t", command="echo again").status == 200
    finally:
        served.stop()


# -- the clock ---------------------------------------------------------------------------------------------------------


class Clock:
    """time.time and time.time_ns, set forward and back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset_ns, real = 0, time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + self.offset_ns)
        monkeypatch.setattr(time, "time", lambda: (real() + self.offset_ns) / 1e9)

    def step(self, seconds: float) -> None:
        self.offset_ns += int(seconds * 1e9)


@pytest.mark.parametrize("step", [-3600, 3600, -86400 * 400])
def test_a_clock_that_is_set_while_a_run_goes_on(place: Place, open_book: Open, step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    recorder = Recorder(place)
    recorder.begin("command", "stepped", ["true"])
    clock.step(step)
    book: Book = open_book()
    assert book.runs()[0]["status"] == "running"
    recorder.end(0)
    book.refresh()
    [run] = book.runs()
    metrics = book.details(run)["metrics"]
    assert (run["status"], run["duration_s"] >= 0, 0 <= metrics["wall_s"] < 60) == ("ok", True, True)
    assert not place.spool_of(run["uid"]).exists()


def test_a_slot_is_one_run_as_long_as_the_clock_goes_forward(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), Store(place)

    def do(operation: str, **given: Any) -> Any:
        return perform(BY_NAME[operation], OWNER, store, place, given)

    template = do("template.save", project="main", name="t", command="true", approval=True)["template"]
    do("schedule.save", template=template, cron="0 * * * *", overlap="queue", catch_up="last")
    asked = []
    for step in (3600, 0, -1800, 600, -7200, 7200 + 1200, 0, 3600):
        clock.step(step)
        schedules.fire(place, store)
        asked.append(len(store.rows("select 1 from launch")))
    assert asked[:2] == [1, 1]
    assert (asked[2], asked[4], asked[6]) == (asked[1], asked[3], asked[5])  # to go back, or to stand, starts nothing
    assert (asked[5], asked[7]) == (asked[4] + 1, asked[6] + 1)  # to go forward over slots starts one
    store.close()


def test_a_session_and_a_token_end_by_the_clock_in_either_direction(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), Store(place)
    perform(BY_NAME["user.create"], OWNER, store, place, {"user": "ann", "password": PASSWORD, "admin": True})
    token = perform(BY_NAME["token.create"], OWNER, store, place, {"name": "t", "user": "ann", "days": 1})["token"]
    session = login.log_in(store, Throttle(), "ann", PASSWORD, "")
    clock.step(-7200)
    assert login.caller_of_session(store, session, "") is not None
    clock.step(7200 + 13 * 3600)
    assert login.caller_of_session(store, session, "") is None
    assert login.caller_of_token(store, token, "") is not None
    clock.step(12 * 3600)
    assert login.caller_of_token(store, token, "") is None
    store.close()
