"""The queries of the SQL tier and their rows: pg_stat_activity's source function and pg_locks, by server major."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg.adapt import Loader
from psycopg.pq import Format

from leadline.engines.postgres.catalog.connection import Connection
from leadline.engines.postgres.probes.sql_locks import LockRow

STATE_CODES = {  # session_run.state
    "starting": 1,
    "active": 2,
    "idle": 3,
    "idle in transaction": 4,
    "fastpath function call": 5,
    "idle in transaction (aborted)": 6,
    "disabled": 7,
}
HIDDEN = 8  # the user may not see the state
WAIT_CLASSES = {  # high byte of wait_event_info, as in the server's wait_event.h
    "LWLock": 0x01,
    "Lock": 0x03,
    "BufferPin": 0x04,
    "Buffer": 0x04,  # the name from 19 on
    "Activity": 0x05,
    "Client": 0x06,
    "Extension": 0x07,
    "IPC": 0x08,
    "Timeout": 0x09,
    "IO": 0x0A,
    "InjectionPoint": 0x0B,
}
HIDDEN_TEXT = "<insufficient privilege>"
_PG_EPOCH_US = 946_684_800_000_000  # 2000-01-01 in unix microseconds


class Activity(NamedTuple):
    """One session of a poll. Times: unix microseconds."""

    pid: int
    backend_start: int | None
    backend_type: str | None
    leader_pid: int | None
    datid: int | None
    usesysid: int | None
    application_name: str | None
    client_addr: str | None
    client_port: int | None
    ssl: bool | None
    state: str | None
    wait_event_type: str | None
    wait_event: str | None
    query_id: int | None
    xact_start: int | None
    query_start: int | None
    state_change: int | None
    backend_xid: int | None
    backend_xmin: int | None
    query: str | None
    next_xid: int

    @property
    def hidden(self) -> bool:
        """The user may not see what this process does."""
        return self.query == HIDDEN_TEXT

    @property
    def state_code(self) -> int:
        return HIDDEN if self.hidden else STATE_CODES.get(self.state or "", 0)

    def describe(self) -> tuple[Any, ...]:
        """The columns of table session after ts and session_id."""
        address = self.client_addr or ("local" if self.client_port == -1 else "")
        port = self.client_port if self.client_port is not None and self.client_addr else -1
        return (
            self.pid, self.backend_start or 0, self.backend_type or "", self.leader_pid or 0, self.datid or 0, self.usesysid or 0,
            self.application_name or "", address, port, bool(self.ssl),
        )  # fmt: skip


def activity_sql(major: int) -> str:
    """One row per session but our own. pg_stat_get_activity is what pg_stat_activity reads, without its joins."""
    leader = "leader_pid" if major >= 13 else "null::int4"
    query_id = "query_id" if major >= 14 else "null::int8"
    xmax = "pg_snapshot_xmax(pg_current_snapshot())::text::int8" if major >= 13 else "txid_snapshot_xmax(txid_current_snapshot())"
    return f"""
select pid, backend_start, backend_type, {leader}, datid, usesysid, application_name, host(client_addr), client_port, ssl,
       state, wait_event_type, wait_event, {query_id}, xact_start, query_start, state_change, backend_xid, backend_xmin, query,
       (select {xmax})
from pg_stat_get_activity(null) where pid <> pg_backend_pid()"""


def locks_sql(major: int) -> str:
    """Every holder and waiter of each object that someone waits for."""
    wait_start = "coalesce((extract(epoch from waitstart) * 1000000)::int8, 0)" if major >= 14 else "0::int8"
    return f"""
with lock as materialized (
  select locktype, coalesce(database, 0) as datid, coalesce(relation, 0) as relid, coalesce(page, -1) as page,
         coalesce(tuple, -1)::int4 as tuple, coalesce(virtualxid, '') as virtualxid,
         coalesce(transactionid::text::int8, 0) as transactionid, coalesce(classid, 0) as classid, coalesce(objid, 0) as objid,
         coalesce(objsubid, 0)::int4 as objsubid, coalesce(pid, 0) as pid, mode, granted, {wait_start} as wait_start
  from pg_locks
)
select * from lock
where (locktype, datid, relid, page, tuple, virtualxid, transactionid, classid, objid, objsubid) in
      (select locktype, datid, relid, page, tuple, virtualxid, transactionid, classid, objid, objsubid from lock where not granted)"""


def parse_locks(rows: Iterable[tuple[Any, ...]]) -> list[LockRow]:
    return [LockRow(*row) for row in rows]


@dataclass(frozen=True)
class Server:
    """What the sampler must know of the server. query_size: bytes of a statement text the server keeps. started: the postmaster,
    begun: its checkpointer, which a crash starts anew; in seconds since 1970.
    """

    version_num: int
    version: str
    max_connections: int
    shared_buffers_bytes: int
    block_size: int
    query_size: int
    data_dir: str | None
    quoted_user: str
    sees_all: bool
    started: float
    begun: float | None

    @property
    def major(self) -> int:
        return self.version_num // 10_000


_SERVER_SQL = """
select current_setting('server_version_num')::int, current_setting('server_version'), current_setting('max_connections')::int,
       pg_size_bytes(current_setting('shared_buffers')), current_setting('block_size')::int,
       pg_size_bytes(current_setting('track_activity_query_size'))::int,
       (select setting from pg_settings where name = 'data_directory'), quote_ident(current_user),
       pg_has_role(current_user, 'pg_read_all_stats', 'usage'), extract(epoch from pg_postmaster_start_time())::float8,
       (select extract(epoch from max(backend_start))::float8 from pg_stat_get_activity(null) where backend_type = 'checkpointer')
"""


class _TimeLoader(Loader):
    """timestamptz as unix microseconds."""

    format = Format.BINARY

    def load(self, data: Any) -> int:
        return int(struct.unpack("!q", data)[0]) + _PG_EPOCH_US


class _XidLoader(Loader):
    format = Format.BINARY

    def load(self, data: Any) -> int:
        return int(struct.unpack("!I", data)[0])


def prepare(conn: Connection) -> Server:
    """Reads what the sampler must know and sets how the rows of activity_sql are read."""
    row = conn.execute(_SERVER_SQL).fetchone()
    assert row is not None
    conn.adapters.register_loader("timestamptz", _TimeLoader)
    conn.adapters.register_loader("xid", _XidLoader)
    return Server(*row)
