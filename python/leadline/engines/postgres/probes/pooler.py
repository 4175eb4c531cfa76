"""The console of a connection pooler as a probe: who waits for a connection to the server, and how long.

PgBouncer's views have got and lost columns with nearly every version, and Odyssey and PgCat have some of them under the same names. So
columns are taken by name, whatever their order and number, and what a console does not know is told as missing. Only numbers are kept:
texts of the console may hold secrets.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import psycopg

from leadline.capture.manifest import Manifest, ProbeState
from leadline.capture.store import Store
from leadline.engines.postgres.catalog.connection import Connection, connect, parse_dsn, safe_dsn
from leadline.engines.postgres.catalog.sql import as_number
from leadline.errors import LeadlineError
from leadline.figures import one_line

if TYPE_CHECKING:
    from leadline._core.capture import ErrorObject, ProbeFinal, ProbeStatus, Written

RATE_HZ = 2.0  # a queue of a second is seen
WRITE_S = 60.0  # each time makes a file
MOST_UNWRITTEN = 50_000
VIEWS = ("pools", "stats", "servers")
AROUND = ("databases", "config", "lists")  # once before and once after
MOST_POOLS = 200  # rows of one reading; there are poolers with a pool for each of 100,000 users
WORTH = ("cl_waiting", "cl_active", "total_wait_time")  # which of them, in this order
MOST_SERVERS = 10_000
POOL_MODES = {"session": 1.0, "transaction": 2.0, "statement": 3.0}
Row = tuple[Any, ...]


class PoolerProbe:
    """Asks the console twice a second. It is attached when made: raises LeadlineError when there is no console."""

    name = "pooler"
    required = False

    def __init__(self, dsn: str) -> None:
        given = parse_dsn(dsn)
        self._dsn, self._dbname = dsn, None if given.get("dbname") else "pgbouncer"
        self._store: Store | None = None
        self._unwritten: list[Row] = []
        self._missing: dict[str, str] = {}
        self._left_out = 0
        self._conn: Connection | None = connect(dsn, dbname=self._dbname)
        try:
            self._show("pools")
        except psycopg.Error as e:
            self._conn.close()
            hint = "name the console, and a user of stats_users: --pooler 'host=127.0.0.1 port=6432 dbname=pgbouncer user=NAME'"
            message = "this is no console of a pooler: it does not know SHOW POOLS"
            raise LeadlineError("usage", message, one_line(str(e)), hint, safe_dsn(dsn)) from None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leadline-pooler", daemon=True)
        self._error: ErrorObject | None = None
        self._pids: set[tuple[str, float]] = set()
        self._ticks = self._missed = self._rows = self._cpu_ns = self._ts_from = 0

    def describe(self, manifest: Manifest) -> None:
        why = [f"SHOW {view.upper()}: {text}" for view, text in self._missing.items()]
        if self._left_out:
            why.append(f"in the fullest reading {self._left_out} pools where nobody waited were left out")
        if self._missed:
            why.append(f"{self._missed} readings failed")
        manifest.probes[self.name] = ProbeState(
            "partial" if why else "ok", "; ".join(why), "", "console", RATE_HZ, access={"console": safe_dsn(self._dsn)}
        )

    def before(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        self._read(AROUND, "before")

    def start(self) -> None:
        self._ts_from = time.monotonic_ns()
        self._thread.start()

    def status(self) -> ProbeStatus:
        return {
            "running": self._thread.is_alive(), "error": self._error, "ts_from": self._ts_from, "ticks": self._ticks,
            "missed": self._missed, "rows": self._rows, "bytes_written": 0, "cpu_ns": self._cpu_ns,
        }  # fmt: skip

    def stop(self) -> ProbeFinal:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        tables: dict[str, Written] = {}  # the store counts them
        loss = {"ticks_taken": self._ticks, "ticks_missed": self._missed}
        return {**self.status(), "running": False, "tables": tables, "loss": loss, "ts_to": time.monotonic_ns() if self._ts_from else None}

    def after(self, store: Store, manifest: Manifest) -> None:
        self._read(AROUND, "after")
        self._write()
        if self._conn is not None:
            self._conn.close()

    def progress(self) -> str:
        return ""

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            due = written = time.monotonic()
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                self._read(VIEWS, "during")
                self._cpu_ns = round(1e9 * sum(resource.getrusage(resource.RUSAGE_THREAD)[:2]))
                due = max(due + 1 / RATE_HZ, time.monotonic())
                if time.monotonic() - written >= WRITE_S or len(self._unwritten) >= MOST_UNWRITTEN:
                    written = time.monotonic()
                    self._write()
            self._read(VIEWS, "during")  # the counters of the whole window
        except LeadlineError as e:
            self._error = e.as_dict()
        except Exception as e:  # a thread must not end silently: the capture would look whole
            message = "the probe of the pooler ended by a programming error"
            self._error = LeadlineError("invalid", message, repr(e), "please report it").as_dict()

    def _read(self, views: Iterable[str], phase: str) -> None:
        """One reading. A pooler that has gone is asked again with the next; one that does not know a view is not."""
        ts, rows = time.monotonic_ns(), []
        for view in views:
            if view in self._missing:
                continue
            try:
                self._conn = self._conn or connect(self._dsn, dbname=self._dbname, timeout_s=2)
                rows += [(ts, phase, f"pooler_{view}", *found) for found in self._numbers(view, self._show(view))]
            except (psycopg.Error, LeadlineError) as e:
                if self._conn is not None and not self._conn.closed:
                    self._missing[view] = one_line(str(e))
                    continue
                self._conn = None
                self._missed += 1
                return
        self._unwritten += rows
        self._rows += len(rows)
        self._ticks += 1

    def _write(self) -> None:
        rows, self._unwritten = self._unwritten, []
        if self._store is not None:
            self._store.add("server_stat", rows)

    def _show(self, view: str) -> list[dict[str, Any]]:
        assert self._conn is not None
        with psycopg.ClientCursor(self._conn) as cursor:  # a console knows simple queries only
            cursor.execute(f"SHOW {view.upper()}".encode())
            names = [column.name for column in cursor.description or []]
            return [dict(zip(names, row)) for row in cursor.fetchall()] if names else []

    def _numbers(self, view: str, rows: list[dict[str, Any]]) -> Iterable[tuple[str, str, float]]:
        if view in ("config", "lists"):
            for row in rows:
                name, value = row.get("key", row.get("list")), _number(row.get("value", row.get("items")))
                if name is not None and value is not None:
                    yield "", str(name), value
        elif view == "servers":
            for row in rows[:MOST_SERVERS]:
                pid, pool = _number(row.get("remote_pid")), _object(row)
                if pid and (pool, pid) not in self._pids and len(self._pids) < MOST_SERVERS:
                    self._pids.add((pool, pid))
                    yield pool, "remote_pid", pid
        else:
            if len(rows) > MOST_POOLS:
                self._left_out = max(self._left_out, len(rows) - MOST_POOLS)
                rows = sorted(rows, key=lambda row: [-(_number(row.get(name)) or 0) for name in WORTH])
            for row in rows[:MOST_POOLS]:
                for name, given in row.items():
                    value = POOL_MODES.get(str(given)) if name == "pool_mode" else _number(given)
                    if value is not None and name not in ("database", "user", "name"):
                        yield _object(row), name, value


def _object(row: dict[str, Any]) -> str:
    """A pool or a database. SHOW DATABASES calls it name, and has the server's name for it as database."""
    names = ("name",) if "name" in row else ("database", "user")
    return "/".join(str(row[name]) for name in names if row.get(name) is not None)


def _number(value: Any) -> float | None:
    number = as_number(value)
    if number is None and isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return None
    return number
