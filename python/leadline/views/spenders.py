"""Who spent the database time of a capture: statements, sessions, objects and blocks, by seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from leadline.capture.reader import Capture


@dataclass
class Spender:
    """Seconds of database time in all, by class and by event (most first), and in how many sessions."""

    key: int | None
    label: str
    seconds: float = 0.0
    by_class: dict[str, float] = field(default_factory=dict)
    top_event: str = ""
    sessions: int = 0


@dataclass
class Session(Spender):
    """A session: who it is, and what it used (null where it could not be read)."""

    pid: int = 0
    usename: str = ""
    datname: str = ""
    application_name: str = ""
    client_addr: str = ""
    backend_type: str = ""
    idle_in_xact_s: float = 0.0
    cpu_run_s: float | None = None
    blocks_read: int | None = None
    wal_bytes: int | None = None


@dataclass(frozen=True)
class ObjectTime:
    """A relation, or another thing that is waited for: seconds its victims waited for its locks and its buffers.

    object_kind: a word. kind: of a relation, as its engine has it; else empty.
    """

    object: str
    object_kind: str
    kind: str
    seconds: float
    lock_s: float
    buffer_s: float


@dataclass(frozen=True)
class HotBlock:
    """Blocks of one kind of one relation that sessions waited for: seconds of all waits, blocks how many there were.

    block: the one with the most waiters. holder: what a holder was mostly seen doing itself, CPU when it did not wait.
    """

    object: str
    relkind: str
    fork: str
    block: int
    blocks: int
    page_kind: str
    wait_kind: str
    seconds: float
    waiters: int
    most_waiters: int
    exclusive: int
    holder: str


T = TypeVar("T")


class First(list[T]):
    """The first of a list by seconds. there: how many there are in all."""

    def __init__(self, found: Iterable[T], there: int) -> None:
        super().__init__(found)
        self.there = there


def statements(capture: Capture, limit: int = 10) -> First[Spender]:
    """Statements by database time; label is the normalised text on one line."""
    rows = capture.rows("select statement_id, any_value(query) as query from statement group by 1")
    texts = {row["statement_id"]: row["query"] for row in rows}
    found = _spenders(capture, "statement_id", limit)
    for spender in found:
        text = texts.get(spender.key)
        spender.label = " ".join(text.split()) if text else "(text not known)" if spender.key else "(no statement known)"
    return found


def sessions(capture: Capture, limit: int = 10) -> First[Session]:
    """Sessions by database time; those that only sat in a transaction follow."""
    spent = {s.key: s for s in _spenders(capture, "session_id", 1_000_000)}
    rows = capture.rows(
        """
        with who as (
          select session_id, any_value(pid) as pid, any_value(user) as usename, any_value(database) as datname,
                 any_value(application) as application_name, any_value(client) as client_addr,
                 any_value(backend_type) as backend_type,
                 coalesce(sum(weight_s) filter (in_db_time), 0) as seconds,
                 coalesce(sum(weight_s) filter (starts_with(state, 'idle in transaction')), 0) as idle_in_xact_s
          from session_sample group by 1),
        used as (
          select session_id, sum(cpu_run_ns) / 1e9 as cpu_run_s, sum(shared_blks_read)::bigint as blocks_read,
                 sum(wal_bytes)::bigint as wal_bytes
          from session_delta group by 1)
        select *, count(*) over () as there from who left join used using (session_id)
        where seconds > 0 or idle_in_xact_s > 0 order by seconds desc, idle_in_xact_s desc, session_id
        limit $1
        """,
        [limit],
    )
    found = []
    for row in rows:
        known: dict[str, Any] = {k: v if v is not None else _empty(k) for k, v in row.items() if k not in ("session_id", "there")}
        session = Session(key=row["session_id"], label=f"pid {row['pid']}", **known)
        part = spent.get(session.key)
        if part:
            session.by_class, session.top_event, session.sessions = part.by_class, part.top_event, 1
        found.append(session)
    return First(found, _there(rows))


def _empty(column: str) -> str | None:
    """Names that could not be read show as nothing; numbers stay unknown."""
    return None if column in ("cpu_run_s", "blocks_read", "wal_bytes") else ""


def _spenders(capture: Capture, key: str, limit: int) -> First[Spender]:
    rows = capture.rows(
        f"""
        with part as materialized (
          select {key} as key, session_id, wait_class, event, sum(weight_s) as s from db_time group by all),
        total as (
          select key, sum(s) as s, count(distinct session_id) as sessions, count(*) over () as there
          from part group by 1 order by s desc, 1 limit $1)
        select t.key, t.sessions, any_value(t.there) as there, p.wait_class, p.event, sum(p.s) as s
        from total t join part p on p.key is not distinct from t.key
        group by all order by t.key, s desc, p.event
        """,
        [limit],
    )
    found: dict[Any, Spender] = {}
    for row in rows:
        spender = found.setdefault(row["key"], Spender(row["key"], "", sessions=row["sessions"], top_event=row["event"]))
        spender.seconds += row["s"]
        spender.by_class[row["wait_class"]] = spender.by_class.get(row["wait_class"], 0.0) + row["s"]
    return First(sorted(found.values(), key=lambda s: -s.seconds), _there(rows))


def _there(rows: list[dict[str, Any]]) -> int:
    return int(rows[0]["there"]) if rows else 0


# Seconds per contended block and kind of wait. Content locks: the view page_wait, as the findings have it. Pins and I/O
# of others: the seconds waited in all, split by the share of the waiters seen on each block.
BLOCK_TIME = """
    waited as (
      select case replace(lower(wait_event), '_', '') when 'bufferpin' then 'pin' when 'bufferio' then 'io' end as wait_kind,
             sum(seconds) as s
      from wait_time where in_db_time and wait_event is not null group by 1),
    block_time as (
      select object, object_kind, relkind, fork, block, 'content' as wait_kind,
             case when at_right_edge then 'btree right-most leaf' else page_kind end as page_kind,
             waiters, peak_waiters as most_waiters, waiters_exclusive as exclusive,
             case when holder_seen > 0 then coalesce(holder_waits_for, 'CPU') else '' end as holder, wait_s as seconds
      from page_wait
      union all by name
      select object, any_value(object_kind) as object_kind, any_value(relkind) as relkind, fork, block, wait_kind, page_kind,
             sum(waiters)::bigint as waiters, max(waiters) as most_waiters, sum(waiters_exclusive)::bigint as exclusive, '' as holder,
             coalesce(any_value(w.s), 0) * sum(waiters) / sum(sum(waiters)) over (partition by wait_kind) as seconds
      from hot_block left join waited w using (wait_kind) where wait_kind <> 'content'
      group by object, fork, block, page_kind, wait_kind)"""


def hot_blocks(capture: Capture, limit: int = 10) -> First[HotBlock]:
    """Blocks by the seconds sessions waited for them."""
    rows = capture.rows(
        f"""
        with {BLOCK_TIME}
        select object, coalesce(any_value(relkind), '') as relkind, fork, arg_max(block, waiters order by block) as block,
               count(*) as blocks, page_kind, wait_kind, sum(seconds) as seconds,
               sum(waiters)::bigint as waiters, max(most_waiters) as most_waiters,
               sum(exclusive)::bigint as exclusive,
               coalesce(mode(holder order by holder) filter (holder <> ''), '') as holder, count(*) over () as there
        from block_time group by object, fork, page_kind, wait_kind
        order by seconds desc, object, fork, page_kind, wait_kind limit $1
        """,
        [limit],
    )
    return First([HotBlock(**{name: value for name, value in row.items() if name != "there"}) for row in rows], _there(rows))


def objects(capture: Capture, limit: int = 10) -> First[ObjectTime]:
    """What sessions waited for, by seconds: relations (their locks and their buffers), other locked things."""
    rows = capture.rows(
        f"""
        with {BLOCK_TIME},
        waiting as (  -- a waiter with several blockers is one waiter
          select distinct ts, k.wait_s, pid, object, object_kind, coalesce(relkind, '') as kind
          from lock_wait join lock_look k using (ts, session_id, pid) where looks is null
          union all  -- of a coarse capture
          select ts, part_s, pid, object, object_kind, coalesce(relkind, '') from lock_wait where looks is not null),
        locks as (select object, any_value(kind) as kind, any_value(object_kind) as object_kind, sum(wait_s) as s from waiting group by 1),
        buffers as (
          select object, any_value(relkind) as kind, any_value(object_kind) as object_kind, sum(seconds) as s from block_time group by 1)
        select object, coalesce(l.object_kind, b.object_kind) as object_kind, coalesce(l.kind, b.kind, '') as kind,
               coalesce(l.s, 0) as lock_s, coalesce(b.s, 0) as buffer_s,
               coalesce(l.s, 0) + coalesce(b.s, 0) as seconds, count(*) over () as there
        from locks l full join buffers b using (object) order by seconds desc, object limit $1
        """,
        [limit],
    )
    return First([ObjectTime(**{name: value for name, value in row.items() if name != "there"}) for row in rows], _there(rows))
