"""session_delta on the SQL tier: what the kernel counts per backend, when the server runs on this host, and on 18 the server too.

The kernel's counters need no rights but those of /proc/PID/io. Buffers and WAL per session come from pg_stat_get_backend_io
and pg_stat_get_backend_wal (18 and later); a backend reports them when a statement or transaction ends, not in the middle.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import psycopg

from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog.connection import Connection
from leadline.engines.postgres.probes.sql_activity import Server
from leadline.figures import one_line
from leadline.host import proc
from leadline.tables import all_tables

if TYPE_CHECKING:
    from leadline._core.recorder import ProbeFound

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
Counters = dict[str, int]

_BACKEND_SQL = """
select a.pid, coalesce(io.hits, 0), coalesce(io.reads, 0), coalesce(io.writes, 0),
       coalesce(io.local_reads, 0), coalesce(io.local_writes, 0),
       coalesce(w.wal_records, 0), coalesce(w.wal_fpi, 0), coalesce(w.wal_bytes, 0)::int8
from pg_stat_get_activity(null) a
cross join lateral (
  select sum(hits) filter (where object = 'relation')::int8 as hits,
         (sum(read_bytes) filter (where object = 'relation') / {block_size})::int8 as reads,
         (sum(write_bytes) filter (where object = 'relation') / {block_size})::int8 as writes,
         (sum(read_bytes) filter (where object = 'temp relation') / {block_size})::int8 as local_reads,
         (sum(write_bytes) filter (where object = 'temp relation') / {block_size})::int8 as local_writes
  from pg_stat_get_backend_io(a.pid)) io
cross join lateral pg_stat_get_backend_wal(a.pid) w
where a.pid <> pg_backend_pid()"""
_BACKEND_COLUMNS = (
    "shared_blks_hit", "shared_blks_read", "shared_blks_written", "local_blks_read", "local_blks_written",
    "wal_records", "wal_fpi", "wal_bytes",
)  # fmt: skip


class DeltaReader:
    """Differences between two readings of each session's counters. A session seen for the first time gives none yet."""

    def __init__(self, postmaster_pid: int | None, server: Server) -> None:
        self._postmaster = postmaster_pid
        self._namespaced = postmaster_pid is not None and proc.pid_in_namespace(postmaster_pid) != postmaster_pid
        self._host_pids: dict[int, int] = {}  # of a server in a container
        self._backend_sql = _BACKEND_SQL.format(block_size=server.block_size) if server.major >= 18 else None
        self._backend_error = ""
        self._major = server.major
        self._before: dict[int, tuple[int, Counters]] = {}
        self._columns = [c.name for c in all_tables()["session_delta"].columns[4:]]

    def tables(self) -> list[str]:
        return ["session_delta"] if self._postmaster is not None or self._backend_sql else []

    def probe(self) -> ProbeFound:
        missing = []
        if self._postmaster is None:
            missing.append("CPU, faults and I/O per session: the server does not run on this host")
        if self._major < 18:
            missing.append(f"buffers and WAL per session: PostgreSQL {self._major} has them in shared memory only (SQL from 18 on)")
        else:
            missing.append(self._backend_error or "dirtied and temporary blocks per session are in shared memory only")
        status = "partial" if self.tables() else "off"
        return {
            "status": status,
            "why": "; ".join(missing),
            "hint": "take the capture on the server's host, as root or as the server's user",
        }

    def read(self, conn: Connection, sessions: dict[int, int]) -> list[tuple[Any, ...]]:
        """Rows of session_delta since the last reading. sessions: session_id -> pid."""
        server_side = self._read_backends(conn)
        if self._namespaced and self._postmaster is not None and not set(sessions.values()) <= self._host_pids.keys():
            self._host_pids = postmaster.children_by_inner_pid(self._postmaster)
        rows = []
        now: dict[int, tuple[int, Counters]] = {}
        for session, pid in sessions.items():
            counters = dict(server_side.get(pid, {}))
            ts = time.monotonic_ns()
            if self._postmaster is not None:
                counters |= read_process(self._host_pids.get(pid, 0) if self._namespaced else pid)
            if not counters:
                continue
            now[session] = (ts, counters)
            if session in self._before:
                ts_before, before = self._before[session]
                changes = [counters[c] - before[c] if c in counters and c in before else None for c in self._columns]
                rows.append((ts, ts - ts_before, session, pid, *changes))
        self._before = now
        return rows

    def _read_backends(self, conn: Connection) -> dict[int, Counters]:
        if self._backend_sql is None:
            return {}
        try:
            rows = conn.execute(self._backend_sql).fetchall()
        except psycopg.errors.QueryCanceled:
            return {}
        except psycopg.errors.InsufficientPrivilege as e:
            self._backend_sql, self._backend_error = None, one_line(str(e))
            return {}
        return {row[0]: dict(zip(_BACKEND_COLUMNS, row[1:])) for row in rows}


def read_process(pid: int) -> Counters:
    """The kernel's counters of one process, by column of session_delta; what may not be read is absent."""
    base = proc.PROC / str(pid)
    found: Counters = {}
    schedstat = (proc.read_text(base / "schedstat") or "").split()
    if len(schedstat) >= 2:
        found["cpu_run_ns"], found["cpu_queue_ns"] = int(schedstat[0]), int(schedstat[1])
    stat = (proc.read_text(base / "stat") or "").rpartition(")")[2].split()
    if len(stat) >= 40:
        found["minflt"], found["majflt"], found["blkio_delay_ns"] = int(stat[7]), int(stat[9]), int(stat[39]) * _TICK_NS
    for line in (proc.read_text(base / "status") or "").splitlines():
        if "ctxt_switches" in line:
            name, _, value = line.partition(":")
            found[name] = int(value)
    for line in (proc.read_text(base / "io") or "").splitlines():
        name, _, value = line.partition(":")
        if name in ("rchar", "wchar", "read_bytes", "write_bytes"):
            found[name] = int(value)
    return found
