"""Sessions of any engine, polled: the engine lists them as words, some times a second, and this fills the tables of sessions.

For an engine that brings a query and no sampler of its own. The codes of the tables (states, waits, ids) are made here.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from leadline import _core
from leadline.capture.manifest import CLIENT, Manifest, ProbeState
from leadline.capture.store import Row, Store, Writer, core_writer
from leadline.errors import LeadlineError
from leadline.probes.pace import passes

if TYPE_CHECKING:
    from leadline._core.capture import ErrorObject
    from leadline._core.recorder import SamplerFinal, SamplerStatus

# As session_run.state has them.
STATES = (
    "", "starting", "active", "idle", "idle in transaction", "fastpath function call", "idle in transaction (aborted)", "disabled",
    "hidden",
)  # fmt: skip
MAX_RATE_HZ = 10.0
FLUSH_INTERVAL_S = 5.0
FIRST_S = 2.0
TABLES = ("tick", "session", "session_run", "wait_event", "statement", "database", "role", "self_cost")


@dataclass(frozen=True)
class Polled:
    """One session at one pass.

    number: the server's number of it. state: a word of STATES; active counts as database time. wait_class, wait_event: empty when it does
    not wait. since: start of the session, query_start: of its statement, both Unix microseconds, 0 when not known.
    """

    number: int
    state: str
    wait_class: str = ""
    wait_event: str = ""
    user: str = ""
    database: str = ""
    application: str = ""
    client: str = ""
    statement: str = ""
    kind: str = CLIENT
    since: int = 0
    query_start: int = 0


class _Numbers:
    """1, 2, ... for names, in the order in which they came."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}

    def number(self, name: str) -> tuple[int, bool]:
        """And whether it is new. 0 for no name."""
        if not name:
            return 0, False
        new = name not in self.of
        return self.of.setdefault(name, len(self.of) + 1), new


class PolledSessions:
    """A probe: calls `read` in a thread of its own, which may raise LeadlineError to end the capture. close: called at the end."""

    name = "sessions"

    def __init__(
        self, directory: Path, read: Callable[[], Iterable[Polled]], rate_hz: float, *, required: bool = True,
        flush_interval_s: float = FLUSH_INTERVAL_S, close: Callable[[], None] = lambda: None, tier: str = "sql",
    ) -> None:  # fmt: skip
        self.required, self.tier, self.rate_hz = required, tier, min(rate_hz, MAX_RATE_HZ)
        self.period_ns = round(1e9 / self.rate_hz)
        self.first = threading.Event()  # a pass was made
        self._read, self._close, self._flush_ns = read, close, round(flush_interval_s * 1e9)
        open_writer = partial(core_writer, growing=flush_interval_s >= FLUSH_INTERVAL_S)
        self._open_writers: Callable[[], dict[str, Writer]] = lambda: {name: open_writer(str(directory), name) for name in TABLES}
        self._writers: dict[str, Writer] = {}
        self._databases, self._users = _Numbers(), _Numbers()
        self._sessions: dict[tuple[int, int], int] = {}
        self._described: dict[int, Row] = {}
        self._waits: dict[tuple[str, str], int] = {}
        self._statements: set[int] = set()
        self._stop, self._wanted = threading.Event(), threading.Event()
        self._error: ErrorObject | None = None
        self._thread = threading.Thread(target=self._run, name="leadline-polled", daemon=True)
        self._ticks = self._missed = self._rows = self._live = self._ts_from = self._ts_now = self._cpu_ns = 0
        self._final: SamplerFinal | None = None

    # -- a probe -------------------------------------------------------------------------------------------------------

    def before(self, store: Store, manifest: Manifest) -> None: ...
    def after(self, store: Store, manifest: Manifest) -> None: ...

    def start(self) -> None:
        self._writers = self._open_writers()
        self._ts_from = self._ts_now = time.monotonic_ns()
        self._thread.start()

    def write_soon(self) -> None:
        self._wanted.set()

    def status(self) -> SamplerStatus:
        return {
            "running": self._thread.is_alive(),
            "error": self._error,
            "ts_from": self._ts_from,
            "ts_now": self._ts_now,
            "ticks": self._ticks,
            "missed": self._missed,
            "torn": 0,
            "sessions": self._live,
            "realtime_priority": False,
            "rows": self._rows,
            "bytes_written": 0,
            "cpu_ns": self._cpu_ns,
        }

    def stop(self) -> SamplerFinal:
        if self._final is None:
            self._stop.set()
            if self._thread.ident is not None:
                self._thread.join()
            self._close()
            tables = {name: writer.close() for name, writer in self._writers.items()}
            loss = {"ticks_taken": self._ticks, "ticks_missed": self._missed}
            self._final = {**self.status(), "running": False, "tables": tables, "loss": loss, "ts_to": time.monotonic_ns()}
        return self._final

    def describe(self, manifest: Manifest) -> None:
        state = manifest.probes.setdefault(self.name, ProbeState())
        state.tier, state.rate_hz = self.tier, self.rate_hz

    def progress(self) -> str:
        missed = f", {self._missed} missed" if self._missed else ""
        return f"{self._ticks} passes{missed}, {self._live} sessions"

    def names(self) -> dict[str, list[Row]]:
        """Of databases and users, once a pass was made."""
        self.first.wait(FIRST_S)
        databases: list[Row] = [(number, name, 0, -1) for name, number in list(self._databases.of.items())]
        return {"database": databases, "role": [(number, name) for name, number in list(self._users.of.items())]}

    # -- its thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop()
        except LeadlineError as e:
            self._error = e.as_dict()
        except Exception as e:  # the engine's: a thread must not end silently, the capture would look whole
            self._error = LeadlineError("invalid", "the engine could not list the sessions", detail=f"{type(e).__name__}: {e}").as_dict()

    def _loop(self) -> None:
        flushed = time.monotonic_ns()
        for due, missed in passes(flushed, self.period_ns, self._stop):
            self._pass(due, missed)
            if self._wanted.is_set() or time.monotonic_ns() - flushed >= self._flush_ns:
                self._wanted.clear()
                flushed = time.monotonic_ns()
                for name in sorted(self._writers, key=lambda name: name == "session_run"):  # names before the rows that use them
                    self._writers[name].flush()

    def _pass(self, due: int, missed: int) -> None:
        ts = time.monotonic_ns()
        rows = list(self._read())
        took = time.monotonic_ns() - ts
        self._append("tick", [(self._ticks, ts, self.period_ns, ts - due, took, missed, len(rows), 0, 0, 0)])
        self._append("session_run", [self._sample(ts, row) for row in rows])
        self._ticks, self._missed, self._live, self._ts_now = self._ticks + 1, self._missed + missed, len(rows), ts
        used = resource.getrusage(resource.RUSAGE_THREAD)
        self._cpu_ns = round((used.ru_utime + used.ru_stime) * 1e9)
        if self._ticks % max(1, round(self.rate_hz)) == 1:
            self._append("self_cost", [(ts, "sampler", round(used.ru_utime * 1e9), round(used.ru_stime * 1e9), 0, 0, self._rows)])
        self.first.set()

    def _sample(self, ts: int, of: Polled) -> Row:
        session = self._sessions.setdefault((of.number, of.since), len(self._sessions) + 1)
        database, new_database = self._databases.number(of.database)
        user, new_user = self._users.number(of.user)
        if new_database:
            self._append("database", [(database, of.database, 0, -1)])
        if new_user:
            self._append("role", [(user, of.user)])
        who = (of.number, of.since, of.kind, 0, database, user, of.application, of.client, 0, False)
        if self._described.get(session) != who:
            self._described[session] = who
            self._append("session", [(ts, session, *who)])
        statement = self._statement(of.statement, database)
        state = STATES.index(of.state)
        return (self._ticks, 1, session, state, self._wait(of.wait_class, of.wait_event), 0, 0, statement, 0, of.query_start, 0, 0, 0)

    def _wait(self, wait_class: str, event: str) -> int:
        if not wait_class:
            return 0
        key = (wait_class, event)
        if key not in self._waits:
            self._waits[key] = len(self._waits) + 1
            self._append("wait_event", [(self._waits[key], wait_class, event)])
        return self._waits[key]

    def _statement(self, text: str, database: int) -> int:
        if not text:
            return 0
        shape, key = _core.recorder.normalise(text)
        if key not in self._statements:
            self._statements.add(key)
            self._append("statement", [(key, "text", database, shape, False)])
        return key

    def _append(self, table: str, rows: list[Row]) -> None:
        if rows:
            self._writers[table].append(rows)
            self._rows += len(rows)
