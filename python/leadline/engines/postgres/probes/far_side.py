"""The other side of `--with ssh:HOST`: answers the leadline that has started this one over ssh, and ends with the connection.

It takes an ordinary capture of the server into a temporary directory, sends it, and removes the directory. When it is killed, a watcher
does.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from leadline.capture import carried
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.probes.replication import ReplicationProbe
from leadline.engines.postgres.server.private import watcher_of
from leadline.engines.postgres.target import PostgresServer, resolve, socket_dsn
from leadline.errors import LeadlineError
from leadline.probes.options import Options
from leadline.probes.ssh import ANSWER_S, HELLO, MOST_LINE, SILENCE_S
from leadline.probes.take import take_with
from leadline.progress import Silent
from leadline.version import version

LONGEST_S = 30 * 86400.0  # the other side says when the window ends


def answer() -> None:
    """From stdin to stdout, until stdin ends. What else is printed goes to stderr: it is no answer."""
    with open(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        with _hung_up_is_terminated(), closing(FarSide(out)) as side:
            side.run()


@contextmanager
def _hung_up_is_terminated() -> Any:
    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    before = [(number, signal.signal(number, end)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


class FarSide:
    """One conversation. Each method `_NAME` answers the question of that name."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._left = out, b""
        self._folder = Path(tempfile.mkdtemp(prefix="leadline-"))
        self._watcher = watcher_of(self._folder)
        self._dsn = ""
        self._over, self._begun = threading.Event(), threading.Event()
        self._worker: threading.Thread | None = None
        self._error: LeadlineError | None = None
        self._questions: dict[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
            "find": self._find, "clock": self._clock, "begin": self._begin, "end": self._end, "send": self._send,
        }  # fmt: skip

    def run(self) -> None:
        try:
            self._say({"version": version()}, HELLO)
            while line := self._line():
                received = time.monotonic_ns()
                try:
                    asked = json.loads(line)
                    self._say(self._questions[asked["do"]](asked, received))
                except LeadlineError as e:
                    self._say({"error": e.as_dict()})
                if asked["do"] == "send":
                    carried.send(self._capture, self._out)
                    self._out.flush()
        except BrokenPipeError:  # nobody listens any more
            return

    def close(self) -> None:
        self._over.set()
        if self._worker is not None:
            self._worker.join()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._watcher.communicate(b"done\n")

    def _line(self) -> bytes:
        """Empty: the other side has ended, or has been silent for so long that the connection must be broken."""
        while b"\n" not in self._left:
            if not select.select([0], [], [], SILENCE_S)[0] or len(self._left) > MOST_LINE or not (piece := os.read(0, 1 << 16)):
                return b""
            self._left += piece
        line, _, self._left = self._left.partition(b"\n")
        return line

    def _say(self, answer: dict[str, Any], before: bytes = b"") -> None:
        self._out.write(before + json.dumps(answer).encode() + b"\n")
        self._out.flush()

    @property
    def _capture(self) -> Path:
        return self._folder / "standby.leadline"

    # -- the questions -------------------------------------------------------------------------------------------------

    def _find(self, asked: dict[str, Any], received: int) -> dict[str, Any]:
        self._dsn = _dsn_of(asked["server"])
        with closing(ReplicationProbe([self._dsn], from_memory=False)) as probe:
            [node] = probe.nodes
            if not probe.replicates:
                detail = f"{node.name} is neither a standby nor has it one"
                raise LeadlineError("usage", "the server found there does not replicate", detail, "ssh:HOST/DATA_DIR names another")
            return {"system": node.system, "name": node.name}

    def _clock(self, asked: dict[str, Any], received: int) -> dict[str, Any]:
        return {"received": received, "answered": time.monotonic_ns()}

    def _begin(self, asked: dict[str, Any], received: int) -> dict[str, Any]:
        self._worker = threading.Thread(target=self._take, args=(str(asked["tier"]),), name="leadline-take")
        self._worker.start()
        until = time.monotonic() + ANSWER_S / 2
        while self._worker.is_alive() and not self._begun.wait(0.05) and time.monotonic() < until:
            pass
        if not self._begun.is_set():
            self._over.set()
            raise self._error or LeadlineError("fault", "the capture there did not begin in time")
        return {}

    def _take(self, tier: str) -> None:
        options = Options(for_s=LONGEST_S, dsn=self._dsn, out=self._capture, tier=tier, keep_going=True)
        try:
            take_with(options, Silent(), self._over.is_set, self._begun.set, stop=threading.Event())
        except LeadlineError as e:
            self._error = e
        except Exception as e:  # a thread must not end silently: the capture would look whole
            self._error = LeadlineError("fault", "the capture there ended by a programming error", repr(e), "please report it")

    def _end(self, asked: dict[str, Any], received: int) -> dict[str, Any]:
        self._over.set()
        if self._worker is not None:
            self._worker.join()
        return {"ended": None if self._error is None else self._error.as_dict()}

    def _send(self, asked: dict[str, Any], received: int) -> dict[str, Any]:
        """The capture follows the answer."""
        return {"files": len(carried.files_of(self._capture))}


def _dsn_of(named: str) -> str:
    """A connection string for the server that was named by a data directory or a connection string; else for the only one here.

    Raises LeadlineError.
    """
    if named and not named.startswith("/"):
        return named
    server: PostgresServer
    if named:
        server = resolve(data_dir=named)
    elif any(name in os.environ for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGPORT")):
        return ""
    else:
        running = postmaster.local_postmasters()
        if len(running) != 1:
            found = ", ".join(postmaster.data_dir_of(pid) or f"pid {pid}" for pid in running) or "none"
            hint = "name it: ssh:HOST/DATA_DIR, or a connection string there: ssh:HOST/postgresql://USER@localhost/DATABASE"
            raise LeadlineError(
                "not_found", f"{len(running)} PostgreSQL servers run there, and one was looked for", f"found: {found}", hint
            )
        server = resolve(pid=running[0])
    dsn = socket_dsn(server)
    if dsn is None:
        hint = "give a connection string for that host: ssh:HOST/postgresql://USER@localhost/DATABASE"
        raise LeadlineError("rights", "the user there cannot read where the server listens", hint=hint)
    return dsn
