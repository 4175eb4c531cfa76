"""`leadline top` on live servers and real terminals: frames, signals, and what is left behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from conftest import Server, wait_until
from leadline._core.recorder import Recorder
from leadline.capture.store import core_writer
from leadline.engines.postgres import names
from leadline.engines.postgres.probes.sql_tier import SqlRecorder
from leadline.engines.postgres.target import resolve
from leadline.errors import LeadlineError
from leadline.top.terminal import Forgiving, forgiving_terminal
from rich.cells import cell_len
from top_parts import CLI


def made_by(pid: int) -> list[Path]:
    """The temporary directories of the view with this process id: other views may run beside it."""
    return [p for place in (Path("/dev/shm"), Path(tempfile.gettempdir())) for p in place.glob(f"leadline-top-{pid}-*")]


@contextmanager
def lock_wait(server: Server) -> Iterator[tuple[int, int]]:
    """A transaction that holds a row and asks nothing, and a session that waits for the row: (root, victim) pids."""
    server.sql("drop table if exists seat")
    server.sql("create table seat(id int primary key, taken int)")
    server.sql("insert into seat values (1, 0)")
    with server.connect(application_name="holder", autocommit=False) as root, server.connect(application_name="waiter") as victim:
        root.execute("update seat set taken = 1 where id = 1")

        def wait() -> None:
            victim.execute("update seat set taken = 2 where id = 1")

        waiting = threading.Thread(target=wait)
        waiting.start()
        pids = root.info.backend_pid, victim.info.backend_pid
        wait_until(lambda: server.sql(f"select pg_blocking_pids({pids[1]})") == [([pids[0]],)], what="the lock wait")
        try:
            yield pids
        finally:
            root.rollback()
            waiting.join(10)


@pytest.mark.parametrize("tier", ["shm", "sql"])
def test_a_sampler_writes_soon_what_it_has_seen_when_it_is_asked(servers: Callable[[int], Server], tmp_path: Path, tier: str) -> None:
    server = servers(16)
    sampler: Recorder | SqlRecorder
    if tier == "shm":
        sampler = Recorder(str(tmp_path), server.pid, 10, flush_interval_s=1000, growing_segments=False)
    else:
        open_writer = partial(core_writer, growing=False)
        sampler = SqlRecorder(str(tmp_path), resolve(dsn=server.dsn), server.dsn, 10, flush_interval_s=1000, open_writer=open_writer)

    def ticks() -> int:
        return len(list(tmp_path.glob("tick/*.parquet")))

    sampler.start()
    try:
        wait_until(lambda: sampler.status()["ticks"] >= 3, what="the first passes")
        for number in (1, 2):
            assert ticks() == number - 1
            sampler.write_soon()
            wait_until(lambda: ticks() == number, what="a segment")  # noqa: B023
    finally:
        sampler.stop()


@pytest.mark.parametrize("tier", ["shm", "sql"])
def test_one_frame_of_a_live_server_names_the_planted_lock_wait(servers: Callable[[int], Server], tier: str) -> None:
    server = servers(16)
    target = str(server.pid) if tier == "shm" else server.dsn
    with lock_wait(server) as (root, victim):
        arguments = [target, "--once", "--json", "--window", "3s", "--rate", "50", "--tier", tier]
        with subprocess.Popen([*CLI, "top", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as top:
            out, err = top.communicate(timeout=60)
    assert top.returncode == 0, err
    numbers = json.loads(out)
    assert numbers["recording"]["tier"] == tier and numbers["recording"]["server"].startswith("16.")
    (tree,) = [tree for tree in numbers["trees"] if tree["pid"] == root]
    assert tree["state"] == "idle in transaction" and [w["pid"] for w in tree["waiters"]] == [victim]
    assert numbers["waiting_now"] == [victim]
    sessions = {s["pid"]: s for s in numbers["sessions"]}
    assert sessions[victim]["blocked_by"] == [root] and sessions[victim]["event"] == "transactionid"
    assert sessions[victim]["datname"] == "postgres" and sessions[victim]["statement"].startswith("update seat")
    locked = next(c["seconds"] for c in numbers["load"]["classes"] if c["wait_class"] == "Lock")
    assert locked == pytest.approx(numbers["load"]["observed_s"], rel=0.15)
    assert not made_by(top.pid)


def test_one_plain_frame_fits_80_columns(servers: Callable[[int], Server]) -> None:
    arguments = ["--pid", str(servers(16).pid), "--once", "--window", "1500ms"]
    done = subprocess.run([*CLI, "top", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    before, sessions, after = re.split(r"(?m)^(?=Sessions at the end|Lock tree)", done.stdout)
    # a table in a pipe is whole: a process that writes a checkpoint has a row of 125 columns
    assert max(cell_len(line) for part in (before, after) for line in part.splitlines()) <= 80
    assert sessions.count("\n") < 12 and "\x1b" not in done.stdout
    assert "shared memory 10 Hz" in done.stdout and "Lock tree\nno session waited for a lock in the window" in done.stdout


class Terminal:
    """`leadline top` in a pseudo terminal of 100 x 30."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="30")
            os.execv(sys.executable, [*CLI, "top", *arguments])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.said = ""
        self.code: int | None = None

    def read(self) -> str:
        """Everything written until now, without escape sequences."""
        while select.select([self.fd], [], [], 0)[0]:
            try:
                self.said += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                break
        return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|[()=>][^\x1b]?|\][^\x07]*\x07)", "", self.said)

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.read(), 40, f"{words!r} on the screen")

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def hang_up(self) -> None:
        os.close(self.fd)
        self.fd = -1

    def ended(self) -> int:
        def reap() -> bool:
            if self.fd >= 0:
                self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            return pid != 0

        wait_until(reap, 30, "the end of top")
        assert self.code is not None
        return self.code


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    opened = Terminal(*arguments)
    try:
        yield opened
    finally:
        if opened.code is None:
            os.kill(opened.pid, signal.SIGKILL)
            os.waitpid(opened.pid, 0)
        if opened.fd >= 0:
            os.close(opened.fd)


def test_the_screen_on_a_terminal(servers: Callable[[int], Server]) -> None:
    server = servers(16)
    with lock_wait(server) as (root, _), terminal(str(server.pid), "--refresh", "1s") as screen:
        screen.wait_for("Lock:transactionid")
        (made,) = made_by(screen.pid)
        screen.press("3")
        screen.wait_for(f"{root} holder")
        screen.wait_for("1 behind it")
        # segments do not pile up: what was read is gone
        seen = [len(list(made.glob("*/*/*.parquet"))) for _ in range(40) if time.sleep(0.1) is None]
        assert min(seen) <= 1 and max(seen) <= 40
        screen.press("q")
        assert screen.ended() == 0
    assert not made_by(screen.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_and_leave_nothing(servers: Callable[[int], Server], number: signal.Signals) -> None:
    with terminal(str(servers(16).pid)) as screen:
        screen.wait_for("data up to")
        assert made_by(screen.pid)
        os.kill(screen.pid, number)
        assert screen.ended() == 0
    assert not made_by(screen.pid)


def test_a_terminal_that_is_closed_ends_it_and_leaves_nothing(servers: Callable[[int], Server]) -> None:
    with terminal(str(servers(16).pid), "--refresh", "500ms") as screen:
        screen.wait_for("data up to")
        screen.press("2")
        screen.hang_up()
        assert screen.ended() == 0
    assert not made_by(screen.pid)


def test_writing_to_a_closed_terminal_is_no_error() -> None:
    master, end = pty.openpty()
    with forgiving_terminal(), open(end, "w", closefd=False) as stream:
        assert sys.__stderr__ is not None and sys.__stderr__.fileno() == 2
        out = Forgiving(stream)
        os.close(master)
        assert out.write("text") == 4
        out.flush()
        with pytest.raises(OSError):
            stream.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), end)  # so that closing it can write
    assert not isinstance(sys.__stderr__, Forgiving)


def test_a_signal_ends_one_frame_too(servers: Callable[[int], Server]) -> None:
    with subprocess.Popen(
        [*CLI, "top", str(servers(16).pid), "--once", "--window", "60s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as top:
        wait_until(lambda: made_by(top.pid), what="the temporary directory")
        (made,) = made_by(top.pid)
        wait_until(lambda: list(made.glob("live.leadline/tick/*")), what="the first ticks")
        top.terminate()
        assert top.wait(20) == 130
        assert top.stderr is not None and b"Traceback" not in top.stderr.read()
    assert not made_by(top.pid)


def test_a_server_that_stops_leaves_the_screen_and_exit_code_2(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(16)
    with terminal(str(server.pid), "--refresh", "1s") as screen:
        screen.wait_for("data up to")
        os.kill(server.pid, signal.SIGINT)  # fast shutdown
        screen.wait_for("What was seen until then stays")
        screen.press("2")
        screen.wait_for("no session does anything just now")
        screen.press("q")
        assert screen.ended() == 2
        assert "error: " in screen.read()
    assert not made_by(screen.pid)


def test_names_of_new_relations_come_by_themselves(servers: Callable[[int], Server], tmp_path: Path) -> None:
    """Over SQL: of the connected database and of another one that is asked for."""
    server = servers(16)
    server.sql("drop database if exists elsewhere")
    server.sql("create database elsewhere")
    with server.connect(dbname="elsewhere") as conn:
        conn.execute("create table there(a int)")
        (oid,) = conn.execute("select oid from pg_database where datname = 'elsewhere'").fetchone() or (0,)
    read = names.reader(None, server.dsn)  # type: ignore[arg-type]
    assert "there" not in {row[5] for row in read(set())["relation"]}
    assert "there" in {row[5] for row in read({int(oid)})["relation"]}
    with pytest.raises(LeadlineError):
        names.over_sql("host=/nowhere dbname=x", set())
