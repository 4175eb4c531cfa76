"""Large objects that no column names any more, counted in the connected database.

The server does not know who names an object: a row that is deleted leaves its object behind. Names are columns of type oid, of domains
over it (lo), and of arrays of either. Some drivers keep the number as text or as an integer: a column whose first values are mostly numbers
of objects is taken for one of these, so that nothing is called orphaned that an application still finds. What would take long is left out.
"""

from __future__ import annotations

import time

import psycopg
from psycopg import sql

from leadline.engines.postgres.catalog.connection import Connection
from leadline.engines.postgres.catalog.sql import Collected, Row
from leadline.errors import LeadlineError
from leadline.figures import count, one_line

VIEW = "pg_largeobject_metadata"
MOST_BYTES = 4 << 30  # of tables that would be read, and of objects by their number: a sequential scan of seconds
MOST_OBJECTS = 20_000_000
MOST_COLUMNS = 2000
HEAD = 1000  # first values of a column that is not of type oid
MOSTLY = 0.5  # share of these that are objects
OBJECTS = "select count(*) from (select from pg_largeobject_metadata limit %s) m"
COLUMNS = f"""
with recursive root as (
  select oid, oid as base from pg_type where typtype <> 'd'
  union all select t.oid, r.base from root r join pg_type t on t.typbasetype = r.oid and t.typtype = 'd'
),
kind as (
  select r.oid, case when b.typelem = 26 or e.base = 26 then 'array'
                     when b.oid = 26 then case when r.oid = 26 or t.typname = 'lo' then 'oid' else 'domain' end
                     when b.oid in (20, 23, 1700) then 'number' when b.oid in (25, 1042, 1043) then 'text' end as kind
  from root r join pg_type t on t.oid = r.oid join pg_type b on b.oid = r.base left join root e on e.oid = b.typelem and b.typcategory = 'A'
)
select n.nspname, c.relname, a.attname, k.kind, pg_relation_size(c.oid) as bytes,
       has_schema_privilege(n.oid, 'usage') and has_column_privilege(c.oid, a.attnum, 'select')
         and not row_security_active(c.oid) as readable
from pg_attribute a join kind k on k.oid = a.atttypid join pg_class c on c.oid = a.attrelid
  join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'm') and (c.relpersistence <> 't' or c.relnamespace = pg_my_temp_schema()) and a.attnum > 0 and not a.attisdropped
  and k.kind is not null and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_toast'
order by n.nspname, c.relname, a.attnum limit {MOST_COLUMNS + 1}
"""


def collect(conn: Connection) -> Collected:
    """Rows of server_stat, or a note that says why they were not counted."""
    found = Collected()
    try:
        found.add("server_stat", _counted(conn))
    except _NotCounted as e:
        found.notes.append(f"orphaned large objects were not looked for: {e}")
    except psycopg.Error as e:
        if conn.closed:
            raise LeadlineError("gone", "the server closed the connection", detail=one_line(str(e))) from e
        found.notes.append(f"orphaned large objects were not looked for: {one_line(str(e))}")
    return found


class _NotCounted(Exception):
    """Why."""


def _counted(conn: Connection) -> list[Row]:
    objects = int(_one(conn, OBJECTS, [MOST_OBJECTS + 1]))
    named = conn.info.dbname
    ts = time.monotonic_ns()
    if not objects:
        return [(ts, "after", VIEW, named, "objects", 0.0), (ts, "after", VIEW, named, "orphans", 0.0)]
    columns = conn.execute(COLUMNS.encode()).fetchall()
    _bounded(objects, columns)
    sure = [row for row in columns if row[3] in ("oid", "domain", "array")]
    others = [row for row in columns if row[3] in ("number", "text") and _names_objects(conn, row)]
    size = sum({(row[0], row[1]): row[4] for row in (*sure, *others)}.values())
    if size > MOST_BYTES:
        raise _NotCounted(f"the tables that name them have {size >> 30:,} GB")
    first = conn.execute(_orphans([*sure, *others])).fetchall()  # of the reading that costs most, the count comes with it
    orphans = int(first[0][1]) if first else 0
    whole = int(_one(conn, "select pg_table_size('pg_largeobject')"))
    values = {"objects": objects, "orphans": orphans, "bytes": whole, "orphan_bytes": whole * orphans / objects}
    rows: list[Row] = [(ts, "after", VIEW, named, metric, float(value)) for metric, value in values.items()]
    for row in (*sure, *others):
        key = f"{named}/{sql.Identifier(row[0], row[1]).as_string(conn)}/{sql.Identifier(row[2]).as_string(conn)}"
        rows.append((ts, "after", VIEW, key, f"named_as_{row[3]}", 1.0))
    return rows + [(ts, "after", VIEW, f"{named}/{oid}", "orphan", float(oid)) for oid, _ in first]


def _bounded(objects: int, columns: list[Row]) -> None:
    if objects > MOST_OBJECTS:
        raise _NotCounted(f"there are more than {MOST_OBJECTS:,}")
    if len(columns) > MOST_COLUMNS:
        raise _NotCounted(f"more than {MOST_COLUMNS:,} columns might name one")
    unseen = [f"{row[0]}.{row[1]}.{row[2]}" for row in columns if not row[5]]
    if unseen:
        raise _NotCounted(f"this role may not read {count(len(unseen), 'column')} that might name one, such as {unseen[0]}")


def _number(row: Row) -> sql.Composable:
    """The value of a column as an oid; null where it is none. Texts are looked at before they are cast."""
    column = sql.Identifier(row[2])
    if row[3] == "text":
        digits = sql.SQL("case when {0} ~ '^[0-9]{{1,10}}$' then case when {0}::int8 < 4294967296 then {0}::int8::oid end end")
        return digits.format(column)
    if row[3] == "number":
        return sql.SQL("case when {0} between 1 and 4294967295 then {0}::int8::oid end").format(column)
    return sql.SQL("unnest({0})::oid").format(column) if row[3] == "array" else sql.SQL("{0}::oid").format(column)


def _names_objects(conn: Connection, row: Row) -> bool:
    """Whether the first values of a column that is not of type oid are mostly numbers of large objects."""
    query = sql.SQL(
        "select count(*), count(m.oid) from (select {number} as n from {table} where {column} is not null limit {head}) v "
        "left join pg_largeobject_metadata m on m.oid = v.n"
    ).format(number=_number(row), table=sql.Identifier(row[0], row[1]), column=sql.Identifier(row[2]), head=sql.Literal(HEAD))
    values, are_objects = conn.execute(query).fetchall()[0]
    return bool(values and are_objects >= MOSTLY * values)


def _orphans(columns: list[Row]) -> sql.Composed:
    """The first objects that none of the columns names, each with how many there are."""
    parts = [sql.SQL("select {} as n from {}").format(_number(row), sql.Identifier(row[0], row[1])) for row in columns]
    names = sql.SQL(" union all ").join(parts) if parts else sql.SQL("select null::oid as n where false")
    return sql.SQL(
        "select m.oid::int8, count(*) over () from pg_largeobject_metadata m where not exists (select from ({}) v where v.n = m.oid) "
        "order by m.oid limit 5"
    ).format(names)


def _one(conn: Connection, query: str, parameters: list[int] | None = None) -> int:
    row = conn.execute(query.encode(), parameters).fetchone()
    return int(row[0]) if row is not None and row[0] is not None else 0
