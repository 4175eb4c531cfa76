"""The SQL tier: the tables of a capture from pg_stat_activity over one connection, at 1 to 10 Hz.

For servers whose memory may not be read or is not on this host. Same interface as `_core.recorder.Recorder`, so `take` drives both.
What it cannot see: buffers, LWLock holders, waits between two polls. Codes in wait_event_info are made up per capture: the
server's class number in the high byte, a running number below; the wait_event table of the capture names them.
"""

from __future__ import annotations

import math
import resource
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from leadline import _core
from leadline.capture.store import OpenWriter, Row, Writer, core_writer
from leadline.engines.postgres.catalog.connection import Connection, connect
from leadline.engines.postgres.probes.sql_activity import WAIT_CLASSES, Activity, Server, activity_sql, locks_sql, parse_locks, prepare
from leadline.engines.postgres.probes.sql_deltas import DeltaReader
from leadline.engines.postgres.probes.sql_locks import blocked
from leadline.engines.postgres.target import PostgresServer
from leadline.errors import LeadlineError
from leadline.figures import one_line
from leadline.probes.pace import passes

if TYPE_CHECKING:
    from leadline._core.capture import ErrorObject
    from leadline._core.recorder import ProbeFound, SamplerFinal, SamplerStatus, ServerDescription

MAX_RATE_HZ = 10.0
MAX_TEXTS = 20_000  # statements remembered at once; beyond that texts are looked up anew


class SqlRecorder:
    """Samples over one connection in a thread of its own. Raises LeadlineError when it cannot connect."""

    def __init__(
        self,
        capture_dir: str,
        target: PostgresServer,
        dsn: str,
        rate_hz: float,
        *,
        delta_interval_s: float = 1.0,
        flush_interval_s: float = 2.0,
        open_writer: OpenWriter = core_writer,
    ) -> None:
        self.rate_hz = min(rate_hz, MAX_RATE_HZ)
        self.period_ns = round(1e9 / self.rate_hz)
        self._capture_dir, self._open_writer = capture_dir, open_writer
        self._flush_ns = round(flush_interval_s * 1e9)
        self._delta_ns = round(delta_interval_s * 1e9)
        # Locks are looked at on a fixed grid of passes, at most once a second, so that short waits are not favoured.
        self._lock_passes: Counter[int] = Counter()  # passes that saw a session wait for a lock since it was last seen at a look
        self._lock_every = max(1, math.ceil(self.rate_hz))
        self._connect(target, dsn)
        self._writers: dict[str, Writer] = {}
        self._stop, self._wanted = threading.Event(), threading.Event()
        self._thread = self._new_thread()
        self._error: ErrorObject | None = None
        self._sessions: dict[tuple[int, int], int] = {}
        self._by_pid: dict[int, int] = {}
        self._described: dict[int, Row] = {}
        self._last_statement: dict[int, tuple[int, str, int]] = {}
        self._wait_codes: dict[tuple[str, str], int] = {}
        self._statements: set[int] = set()
        self._texts: dict[str, int] = {}
        self._ticks = self._missed = self._rows = self._live = self._timeouts = 0
        self._unreported = self._hidden = self._hidden_processes = 0
        self._ts_from = self._ts_now = 0
        self._cpu_ns = 0  # of its threads
        self._used_s = self._used_before_s = (0.0, 0.0)  # user and system: of all, and of those before the present one
        self._bytes = 0
        self._usage_at_start: resource.struct_rusage | None = None

    def _connect(self, target: PostgresServer, dsn: str, major: int | None = None) -> None:
        """major: another one is refused, and what is known of the server before stays."""
        conn = connect(dsn)
        try:
            server = prepare(conn)
        except psycopg.Error as e:
            conn.close()
            raise LeadlineError("connection", "the server does not answer the first query", detail=one_line(str(e))) from e
        if major not in (None, server.major):
            conn.close()
            raise LeadlineError(
                "unsupported", "the server came back with another major version",
                f"it was {self._server.version}, and is {server.version}", "start another capture for the new server",
            )  # fmt: skip
        self._conn: Connection = conn
        self._server: Server = server
        self._activity_sql = activity_sql(server.major)
        self._locks_sql = locks_sql(server.major)
        self._deltas = DeltaReader(target.pid, server)

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="leadline-sql", daemon=True)

    def attach_again(self, target: PostgresServer, dsn: str) -> str:
        """Connects again after the connection was lost; `start` goes on. What happened: restart, crash or connection."""
        before, old = self._server, self._conn
        self._connect(target, dsn, before.major)
        old.close()
        self._thread, self._error = self._new_thread(), None
        self._usage_at_start = None
        if self._server.started != before.started:
            return "restart"
        return "crash" if self._server.begun != before.begun else "connection"

    def last_seen(self) -> int | None:
        """Start of the last pass, ns on CLOCK_MONOTONIC."""
        return self._ts_now if self._ticks else None

    def describe(self) -> ServerDescription:
        """As Recorder.describe: the server, and what each probe can do over SQL."""
        s = self._server
        return {
            "server_version_num": s.version_num,
            "server_version": s.version,
            "max_connections": s.max_connections,
            "shared_buffers_bytes": s.shared_buffers_bytes,
            "data_dir": s.data_dir,
            "layout_checks": [],
            "access": {"shared_memory": "none", "private_memory": False, "why": "sampled over SQL"},
            "probes": self.probes(),
        }

    def probes(self) -> dict[str, ProbeFound]:
        """The state of each probe, with what was found out while sampling."""
        sessions: ProbeFound = {"status": "ok", "why": "", "hint": ""}
        if not self._server.sees_all:
            user = self._server.quoted_user
            why = f"role {user} may not see state, wait and statement of {self._hidden_text()}: it has no pg_read_all_stats"
            sessions = {"status": "partial", "why": why, "hint": f"grant pg_monitor to {user}"}
            if self._hidden or self._hidden_processes:
                gap = f"{why}; grant pg_monitor to {user}"
                sessions["detail"] = {"unseen": {"session": gap, "session_run": gap}}
        off = "needs the server's shared memory; the SQL tier cannot see it"
        return {
            "sessions": sessions,
            "locks": {"status": "ok", "why": "", "hint": ""},
            "buffers": {"status": "off", "why": off, "hint": "take the capture on the server's host, as root or as the server's user"},
            "deltas": self._deltas.probe(),
        }

    def _hidden_text(self) -> str:
        if not self._hidden and not self._hidden_processes:
            return "other roles' sessions"
        processes = f"{self._hidden_processes} server processes"
        return " and ".join([f"{self._hidden} sessions of other roles"] * bool(self._hidden) + [processes] * bool(self._hidden_processes))

    def start(self) -> None:
        tables = ["tick", "session", "session_run", "wait_event", "statement", "lock_wait", "self_cost", *self._deltas.tables()]
        for table in tables:
            if table not in self._writers:
                self._writers[table] = self._open_writer(self._capture_dir, table)
        self._ts_from = self._ts_from or time.monotonic_ns()
        self._ts_now = self._ts_now or self._ts_from
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
            "bytes_written": self._bytes,
            "cpu_ns": self._cpu_ns,
        }

    def stop(self) -> SamplerFinal:
        """Ends the thread, writes what is left and closes the connection."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        tables = {}
        for name, writer in self._writers.items():
            try:
                tables[name] = writer.close()
            except LeadlineError as e:
                self._error = self._error or e.as_dict()
        self._conn.close()
        loss = {"ticks_taken": self._ticks, "ticks_missed": self._missed, "torn": 0, "queries_timed_out": self._timeouts}
        if self._hidden:
            loss["sessions_hidden"] = self._hidden
        if self._hidden_processes:
            loss["server_processes_hidden"] = self._hidden_processes
        return {**self.status(), "running": False, "tables": tables, "loss": loss, "ts_to": time.monotonic_ns()}

    # -- the sampling thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop()
        except psycopg.Error as e:
            kind, what = ("gone", "ended the connection") if self._conn.closed else ("connection", "refused a query")
            hint = "what was captured before is kept"
            self._error = LeadlineError(kind, f"the server {what} during the capture", detail=one_line(str(e)), hint=hint).as_dict()
        except LeadlineError as e:
            self._error = e.as_dict()
        except Exception as e:  # a thread must not end silently: the capture would look whole
            self._error = LeadlineError(
                "invalid", "the sampler ended by a programming error", detail=repr(e), hint="please report it"
            ).as_dict()

    def _loop(self) -> None:
        started = time.monotonic_ns()
        first = started + self.period_ns // 2  # in the middle of the time each pass stands for
        if self._ticks:  # the server was away: what was due in the meantime is missed
            away = max(0, (first - self._ts_now) // self.period_ns - 1)
            self._unreported += away
            self._missed += away
            self._lock_passes.clear()
        flushed = accounted = started
        delta_at = started - self._delta_ns  # the first reading, to take differences from, follows the first pass
        self._account(started)
        pass_number = 0
        for due, missed in passes(first, self.period_ns, self._stop):
            pass_number += missed + 1
            self._pass(due, missed, look_at_locks=pass_number % self._lock_every == 0)
            now = time.monotonic_ns()
            if now - delta_at >= self._delta_ns:
                delta_at = now
                self._read_counters()
            if now - accounted >= 1_000_000_000:
                accounted = now
                self._account(now)
            if self._wanted.is_set() or now - flushed >= self._flush_ns:
                self._wanted.clear()
                flushed = now
                self._flush()
        self._account(time.monotonic_ns())

    def _pass(self, due: int, missed: int, *, look_at_locks: bool) -> None:
        self._missed += missed
        ts = time.monotonic_ns()
        try:
            with self._conn.cursor(binary=True) as cursor:
                rows = [Activity(*row) for row in cursor.execute(self._activity_sql).fetchall()]
        except psycopg.errors.QueryCanceled:
            self._timeouts += 1
            self._missed += 1
            self._unreported += missed + 1
            return
        missed, self._unreported = missed + self._unreported, 0
        pass_ns = time.monotonic_ns() - ts
        next_xid = rows[0].next_xid if rows else 0
        tick = self._ticks
        self._append("tick", [(tick, ts, self.period_ns, ts - due, pass_ns, missed, len(rows), 0, 0, next_xid)])
        self._ticks += 1
        self._live = len(rows)
        self._by_pid = {}
        hidden = [row for row in rows if row.hidden]
        # A process without a database is one of the server; backend_type is hidden, too.
        self._hidden = max(self._hidden, sum(bool(row.datid) for row in hidden))
        self._hidden_processes = max(self._hidden_processes, sum(not row.datid for row in hidden))
        self._append("session_run", [self._sample(tick, ts, row) for row in rows])
        self._ts_now = ts
        if look_at_locks and (hidden or any(row.wait_event_type == "Lock" for row in rows)):  # who hides may wait; pg_locks hides nothing
            self._look_at_locks(ts, rows)

    def _sample(self, tick: int, ts: int, a: Activity) -> Row:
        key = (a.pid, a.backend_start or 0)
        session = self._sessions.setdefault(key, len(self._sessions) + 1)
        self._by_pid[a.pid] = session
        if a.wait_event_type == "Lock":
            self._lock_passes[a.pid] += 1
        who = a.describe()
        if self._described.get(session) != who:
            self._described[session] = who
            self._append("session", [(ts, session, *who)])
        return (
            tick, 1, session, a.state_code, self._wait_code(a.wait_event_type, a.wait_event), a.query_id or 0, 0,
            self._statement(session, a), a.xact_start or 0, a.query_start or 0, a.state_change or 0,
            a.backend_xid or 0, a.backend_xmin or 0,
        )  # fmt: skip

    def _wait_code(self, wait_class: str | None, event: str | None) -> int:
        if wait_class is None or event is None:
            return 0
        key = (wait_class, event)
        code = self._wait_codes.get(key)
        if code is None:
            running = sum(1 for known in self._wait_codes if known[0] == wait_class)
            code = (WAIT_CLASSES.get(wait_class, 0x0F) << 24) + running
            self._wait_codes[key] = code
            self._append("wait_event", [(code, wait_class, event)])
        return code

    def _statement(self, session: int, a: Activity) -> int:
        if not a.query or a.hidden:
            return 0
        if a.query_id and a.query_id in self._statements:
            return a.query_id
        last = self._last_statement.get(session)
        if not a.query_id and last is not None and last[:2] == (a.query_start or 0, a.query):
            return last[2]
        text, key = _core.recorder.normalise(a.query)
        known = self._texts.get(text)
        found = a.query_id or known or key
        if known is None:
            if len(self._texts) >= MAX_TEXTS:
                self._texts.clear()
            self._texts[text] = found
        if found not in self._statements:
            self._statements.add(found)
            cut = len(a.query.encode("utf-8", "surrogatepass")) >= self._server.query_size - 4
            self._append("statement", [(found, "server" if a.query_id else "text", a.datid or 0, text, cut)])
        self._last_statement[session] = (a.query_start or 0, a.query, found)
        return found

    def _look_at_locks(self, ts: int, rows: list[Activity]) -> None:
        try:
            with self._conn.cursor() as cursor:
                locks = parse_locks(cursor.execute(self._locks_sql).fetchall())
        except psycopg.errors.QueryCanceled:
            self._timeouts += 1
            return
        leaders = {row.pid: row.leader_pid for row in rows if row.leader_pid}
        since = {row.pid: row.query_start or 0 for row in rows}
        found = []
        for b in blocked(locks, leaders, since):
            waiter = b.waiter
            session = self._by_pid.get(waiter.pid)
            if session is None:  # began to wait after the sessions were read
                continue
            period_ns = self._lock_passes[waiter.pid] * self.period_ns
            found.append((
                ts, period_ns, session, waiter.pid, self._by_pid.get(b.blocker_pid, -1), b.blocker_pid, b.kind, waiter.locktype,
                waiter.datid, waiter.relid, waiter.page, waiter.tuple_no, waiter.transactionid, waiter.classid, waiter.objid,
                waiter.objsubid, waiter.mode, b.blocker_mode, waiter.wait_start,
            ))  # fmt: skip
        self._append("lock_wait", found)
        for row in found:
            self._lock_passes.pop(row[3], None)

    def _read_counters(self) -> None:
        sessions = {session: pid for pid, session in self._by_pid.items()}
        if self._deltas.tables():
            self._append("session_delta", self._deltas.read(self._conn, sessions))

    def _account(self, ts: int) -> None:
        """What this thread used; what the process used is written once for all probes."""
        thread = resource.getrusage(resource.RUSAGE_THREAD)
        if self._usage_at_start is None:
            self._usage_at_start, self._used_before_s = thread, self._used_s
        start, before = self._usage_at_start, self._used_before_s
        self._bytes = _size_of(Path(self._capture_dir))
        user, system = before[0] + thread.ru_utime - start.ru_utime, before[1] + thread.ru_stime - start.ru_stime
        self._used_s, self._cpu_ns = (user, system), round((user + system) * 1e9)
        self._append("self_cost", [(ts, "sampler", round(user * 1e9), round(system * 1e9), 0, self._bytes, self._rows)])

    def _append(self, table: str, rows: list[Row]) -> None:
        if rows:
            self._writers[table].append(rows)
            self._rows += len(rows)

    def _flush(self) -> None:
        # Names before the rows that use them: a killed recorder then leaves no sample without a name.
        for table in sorted(self._writers, key=lambda name: name in ("session_run", "lock_wait", "session_delta")):
            self._writers[table].flush()


def _size_of(directory: Path) -> int:
    return sum(f.stat().st_size for f in directory.glob("*/*.parquet"))
