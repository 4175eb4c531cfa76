"""Waits for locks in a coarse capture: a row for each span, waiter, blocker, root of the chain and lock, with the time that it has.

Who waited for whom at a look cannot be added up, but what each look says of a waiter's time can: so that every sum of lock_look and
lock_chain, by session, root and object, is that of the finer capture. Chains are followed some looks at a time: one that is long in many
looks takes much memory, and no look depends on another.
"""

from __future__ import annotations

from leadline.duck import duckdb
from leadline.tables import all_tables, duckdb_type

ROWS_AT_ONCE = 20_000
WAIT, LOOK, CHAIN = (all_tables()[name] for name in ("lock_wait", "lock_look", "lock_chain"))
ROWS = f"memory.main.{WAIT.rows_name}"
LOST = {"page": "-1", "tuple": "-1", "transactionid": "0", "wait_start": "0"}  # what tells waits apart that are one row
SUMS = ("period_ns", "looks", "part_s")
KEY = tuple(c.name for c in WAIT.all_columns if c.name not in LOST and c.name not in SUMS and c.name not in ("ts", "steps"))
# Each edge of a look with each end of its chain. Behind a holder, who waits ahead in line costs nothing.
EDGES = f"""
    select l.*, c.root_session_id, c.root_pid, c.depth, k.in_db_time,
           coalesce(c.wait_s, k.wait_s) / count(*) over (partition by l.ts, l.session_id, l.pid, c.root_session_id, c.root_pid) as s
    from (select * from (select *, bool_or(blocker_kind = 'holder') over (partition by ts, pid) as has_holder from {WAIT.name})
          where blocker_kind = 'holder' or not has_holder) l
    join {LOOK.name} k using (ts, session_id, pid) left join {CHAIN.name} c using (ts, session_id, pid)"""
FOUND = {
    "end_session_id": "coalesce(root_session_id, -1)", "end_pid": "root_pid", "steps": "depth", "looks": "1", "part_s": "s",
    "of_db_time": "in_db_time",
}  # fmt: skip


def begin(db: duckdb.DuckDBPyConnection) -> None:
    """Tables for what `look` and `follow` find."""
    columns = ", ".join(f'"{c.name}" {duckdb_type(c.type)}' for c in LOOK.columns)
    db.execute(f"create or replace temp table coarse_look ({columns})")
    columns = ", ".join(f'"{c.name}" {duckdb_type(c.type)}' for c in WAIT.all_columns)
    db.execute(f"create or replace temp table coarse_lock ({columns})")


def look(db: duckdb.DuckDBPyConnection, low: int, high: int) -> None:
    """What each look at some sessions stands for; db_time and session_sample are those of these sessions."""
    if db.execute(f"select 1 from {ROWS} limit 1").fetchone() is None:
        return
    db.execute(f"create or replace temp view {WAIT.name} as from {ROWS} where session_id between {low} and {high} and looks is null")
    db.execute(f"insert into coarse_look by name {LOOK.sql}")


def rows(db: duckdb.DuckDBPyConnection, span_ns: int) -> str:
    """The query of the rows of lock_wait. Table span has the passes."""
    for low, high in _parts_of_looks(db):
        db.execute(f"create or replace temp view {WAIT.name} as from {ROWS} where ts between {low} and {high} and looks is null")
        db.execute(f"create or replace temp view {LOOK.name} as from coarse_look where ts between {low} and {high}")
        db.execute(f"create or replace temp table {CHAIN.name} as {CHAIN.sql}")
        columns = ", ".join(f"{FOUND.get(c.name, c.name)} as {c.name}" for c in WAIT.all_columns)
        db.execute(f"insert into coarse_lock by name {_summed(f'select {columns} from ({EDGES})', span_ns)}")
    part = f"select * from coarse_lock union all by name {_summed(f'from {ROWS} where looks is not null', span_ns)}"
    return f"select * from ({_summed(part, span_ns)}) order by ts, session_id"


def _summed(sql: str, span_ns: int) -> str:
    columns = {c.name: f"r.{c.name}" for c in WAIT.all_columns} | {"ts": "s.ts", "steps": "max(r.steps)"} | LOST
    columns |= {name: f"sum(r.{name})" for name in SUMS}
    shown = ", ".join(f"({columns[c.name]})::{duckdb_type(c.type)} as {c.name}" for c in WAIT.all_columns)
    by = ", ".join(f"r.{name}" for name in KEY)
    return f"select {shown} from ({sql}) r join span s on s.number = r.ts // {span_ns} group by s.ts, {by}"


def _parts_of_looks(db: duckdb.DuckDBPyConnection) -> list[tuple[int, int]]:
    """Looks from and to, a part with about as many rows as are followed at once."""
    found: list[tuple[int, int]] = []
    total = 0
    for ts, many in db.execute(f"select ts, count(*) from {ROWS} where looks is null group by ts order by ts").fetchall():
        if not found or total + many > ROWS_AT_ONCE:
            found.append((ts, ts))
            total = 0
        found[-1], total = (found[-1][0], ts), total + many
    return found
