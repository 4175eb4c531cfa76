"""The batch job that purges a large table: jobs side by side, each scans its partition in order and deletes most of its rows.

The table has two indexes, and a column with long values: bytea out of line, or large objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError
from leadline.load.plan import PURGE, Plan
from leadline.load.scale import connect
from leadline.net.login import Server

if TYPE_CHECKING:
    import psycopg

Progress = Callable[[int, int, str], None]  # done, of, what
TABLE = "leadline_purge"
KEPT = 5  # of so many rows, one stays
ROWS = 50_000  # made in one transaction; of large objects each takes a lock
LARGE_OBJECTS = 1_000
# Pages of the table for each transaction: 1 MB; of large objects fewer, since the table of locks has room for some thousands.
PAGES, PAGES_OF_LARGE_OBJECTS = 128, 4
FIRST_WITH_RANGES = 140_000  # versions before 14 read the whole table for a range of pages
RANGE = "ctid >= ('(' || :from::bigint || ',0)')::tid and ctid < ('(' || :to::bigint || ',0)')::tid"
RANGE += " and job = :client_id::int and expired"
DELETE = {
    "bytea": f"delete from {TABLE} where {RANGE};",
    "large-object": f"with gone as (delete from {TABLE} where {RANGE} returning content) select count(lo_unlink(content)) from gone;",
}
SCRIPT = "\\set chunk :chunk + 1\n\\set from :chunk * :pages\n\\set to :from + :pages\n"
AGAIN = "leadline load init DSN --workload purge --force drops it and makes a new one"
HINT = f"fill it with `leadline load init DSN --workload {PURGE}`"


@dataclass(frozen=True)
class Table:
    """rows: that are purged. jobs: partitions. bytes_each: of the long values."""

    rows: int = 2_000_000
    jobs: int = 3
    content: str = "bytea"
    bytes_each: int = 2_100


def init(server: Server, table: Table, *, force: bool = False, progress: Progress | None = None) -> dict[str, Any]:
    """Makes and fills the table. force: in place of one that is there. Raises LeadlineError."""
    import psycopg

    tell = progress or (lambda *_: None)
    total = table.rows * KEPT // (KEPT - 1)
    try:
        with connect(server) as connection:
            if connection.execute("select to_regclass(%s)", [TABLE]).fetchone() != (None,):
                if not force:
                    raise LeadlineError("usage", f"there is a table {TABLE}", hint=AGAIN)
                _drop(connection)
            _make(connection, table, total, tell)
    except psycopg.Error as e:
        raise LeadlineError("connection", "the table cannot be made", detail=str(e).strip(), where=str(server)) from e
    return {"server": str(server), "rows": total, "to_purge": total - total // KEPT, "jobs": table.jobs, "content": table.content}


def _make(connection: psycopg.Connection[Any], table: Table, total: int, tell: Progress) -> None:
    kind = "bytea" if table.content == "bytea" else "oid"
    connection.execute(
        f"create table {TABLE} (id bigint not null, job int not null, account int not null, expired bool not null, "
        f"changed_at timestamp not null, content {kind}) partition by list (job)"
    )
    for job in range(table.jobs):
        connection.execute(f"create table {TABLE}_{job} partition of {TABLE} for values in ({job})")
        if kind == "bytea":
            connection.execute(f"alter table {TABLE}_{job} alter content set storage external")
    # Random bytes: what a server would compress is not as long as it seems.
    long = "(select string_agg(sha512(int8send(id * 1000 + n)), '') from generate_series(1, %(parts)s) n)"
    value = long if kind == "bytea" else f"lo_from_bytea(0, {long})"
    step = ROWS if kind == "bytea" else LARGE_OBJECTS
    for begin in range(1, total + 1, step):
        connection.execute(
            f"insert into {TABLE} select id, id / {KEPT} %% %(jobs)s, (id * 7919) %% 1000003, id %% {KEPT} <> 0, "
            f"timestamp '2020-01-01' + id * interval '1 minute', {value} from generate_series(%(begin)s::bigint, %(end)s) id",
            {"jobs": table.jobs, "begin": begin, "end": min(begin + step - 1, total), "parts": -(-table.bytes_each // 64)},
        )
        tell(min(begin + step - 1, total), total, f"{begin:,} of {total:,} rows")
    tell(total, total, "indexes")
    connection.execute(f"create index on {TABLE} (id)")
    connection.execute(f"create index on {TABLE} (account, changed_at)")
    connection.execute(f"vacuum analyze {TABLE}")


def _drop(connection: psycopg.Connection[Any]) -> None:
    """Also the large objects, which nobody would find any more."""
    if _content(connection) == "large-object":
        while connection.execute(
            f"with gone as (delete from {TABLE} where ctid = any(array(select ctid from {TABLE} limit {LARGE_OBJECTS})) returning content) "
            "select count(lo_unlink(content)) from gone"
        ).fetchone() != (0,):
            pass
    connection.execute(f"drop table {TABLE}")


def _content(connection: psycopg.Connection[Any]) -> str:
    query = "select format_type(atttypid, null) from pg_attribute where attrelid = %s::regclass and attname = 'content'"
    return "bytea" if connection.execute(query, [TABLE]).fetchone() == ("bytea",) else "large-object"


def prepare(server: Server, plan: Plan) -> tuple[Plan, int]:
    """The plan for the table that is there, and how many rows are to go. Raises LeadlineError."""
    import psycopg

    with connect(server) as connection:
        if connection.info.server_version < FIRST_WITH_RANGES:
            raise LeadlineError("unsupported", f"{PURGE} needs PostgreSQL 14 or later", detail="those before cannot scan a range of pages")
        try:
            rows = _left(connection)
        except psycopg.errors.UndefinedTable as e:
            raise LeadlineError("not_found", f"there is no table {TABLE}", detail=str(e).strip(), hint=HINT) from e
        if rows == 0:
            raise LeadlineError("invalid", "there is nothing to purge any more", hint=AGAIN)
        content = _content(connection)
        sizes = "select pg_relation_size(inhrelid) / current_setting('block_size')::int from pg_inherits "
        sizes += f"where inhparent = '{TABLE}'::regclass"
        partitions = [int(pages) for (pages,) in connection.execute(sizes).fetchall()]
    pages = PAGES if content == "bytea" else PAGES_OF_LARGE_OBJECTS
    if plan.clients not in (1, len(partitions)):
        detail = f"the table has {len(partitions)} partitions, one for each"
        raise LeadlineError("usage", f"{plan.clients} clients cannot share the jobs", detail=detail, hint="leave out --clients")
    return replace(
        plan,
        scripts=[(PURGE, 1, SCRIPT + DELETE[content])],
        clients=len(partitions),
        threads=min(plan.threads, len(partitions)),
        transactions=max(-(-count // pages) for count in partitions),
        variables=[("chunk", "-1"), ("pages", str(pages))],
    ), rows


def left(server: Server) -> int:
    """Rows that are still to be purged."""
    with connect(server) as connection:
        return _left(connection)


def _left(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(f"select count(*) from {TABLE} where expired").fetchone()
    return int(row[0]) if row else 0
