"""What the server says of a table whose rows are to be rewritten: whether that can be done without changing anything else, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from leadline.engines.postgres.catalog.connection import Connection
from leadline.errors import LeadlineError

FIRST_NORMAL_OID = 16384
KINDS = {
    "v": "a view",
    "m": "a materialized view: use REFRESH MATERIALIZED VIEW",
    "f": "a foreign table",
    "i": "an index: use REINDEX",
    "S": "a sequence",
}
HEAP_AM = 2
METHODS = {"p": "pglz", "l": "lz4"}


class Shape(NamedTuple):
    """What of a table decides how its rows are rewritten and where they are, and can change while that goes on."""

    is_named: bool
    relfilenode: int
    relpersistence: str
    triggers: str | None
    rules: str | None


@dataclass
class Table:
    """One table with rows of its own.

    name: quoted for SQL. shape: what the plan rests on. set_list: what the UPDATE sets; repack_list: where values are packed anew.
    replication_role: in which its triggers do not fire; None: in any. notes: what is done about the rest.
    """

    oid: int
    schema: str
    relname: str
    name: str
    shape: Shape | None = None
    set_list: str = ""
    repack_list: str = ""
    replication_role: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.relname}"

    @property
    def escaped(self) -> str:
        """Its name in a query that has parameters."""
        return self.name.replace("%", "%%")

    def statement(self, repack: bool) -> str:
        """The UPDATE of one batch: rows that somebody else has locked are left for later. %s: places of rows.

        It runs with the user's search path, since constraints and expressions of indexes may need that: its own names are therefore full.
        """
        name, set_list = self.escaped, (self.repack_list if repack else self.set_list).replace("%", "%%")
        there = "ctid operator(pg_catalog.=) any"
        chosen = f"select ctid from only {name} where {there}(%s::pg_catalog.tid[]) for no key update skip locked"
        return f"update only {name} as t set {set_list} where t.{there}(array({chosen}))"


def find(connection: Connection, wanted: str, search_path: str) -> int:
    """The oid of the relation of this name: as SQL has it, else as `alter pending` prints it. Raises LeadlineError."""
    try:
        with connection.transaction():
            connection.execute("select set_config('search_path', %s, true)", [search_path])
            [oid] = _one(connection, "select pg_catalog.to_regclass(%s)::pg_catalog.oid::pg_catalog.int8", [wanted])
    except psycopg.errors.InsufficientPrivilege:
        raise
    except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.DataError):
        oid = None  # no name of SQL
    if oid is None:
        rows = connection.execute(
            "select c.oid::int8 from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where %s in (n.nspname || '.' || c.relname, current_database() || '.' || n.nspname || '.' || c.relname)",
            [wanted],
        ).fetchall()
        if len(rows) != 1:
            message = f"no table named {wanted} in this database"
            raise LeadlineError("not_found", message, hint="write the name as SCHEMA.TABLE, quoted as in SQL")
        [[oid]] = rows
    return int(oid)


_NAMED = """
select c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, a.amname, c.relam::int8
  from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_am a on a.oid = c.relam
"""


def tables(connection: Connection, oid: int) -> list[Table]:
    """The table, or the partitions of a partitioned one, each with its plan. Raises LeadlineError when one cannot be."""
    rows = connection.execute(f"{_NAMED} where c.oid = %s", [oid]).fetchall()
    if rows and rows[0][3] == "p":
        query = f"{_NAMED} join pg_partition_tree(%s::oid::regclass) p on p.relid = c.oid where p.isleaf order by 2, 3"
        rows = [row for row in connection.execute(query, [oid]) if row[3] != "p"]
    return [_plan(connection, *row) for row in rows]


def plan_again(connection: Connection, table: Table) -> Table | None:
    """The plan of a table that changed; None when it is not there any more. Raises LeadlineError when it cannot be rewritten now."""
    made = tables(connection, table.oid)
    return made[0] if made else None


def _refused(table: str, why: str, hint: str = "") -> LeadlineError:
    return LeadlineError("unsupported", f"the rows of {table} cannot be rewritten", detail=why, hint=hint)


_COLUMNS = """
select a.attnum::int, quote_ident(a.attname), a.attgenerated::text <> '', a.attidentity::text = 'a', {method},
       t.typcategory::text = 'A', t.typarray <> 0 or t.typcategory = 'A',
       array(
         select g.attnum::int from pg_attribute g left join pg_attrdef f on f.adrelid = g.attrelid and f.adnum = g.attnum, pg_depend d
          where g.attrelid = a.attrelid and g.attgenerated <> ''
            and d.refclassid = 'pg_class'::regclass and d.refobjid = a.attrelid and d.refobjsubid = a.attnum
            and (d.classid = 'pg_class'::regclass and d.objid = a.attrelid and d.objsubid = g.attnum
              or d.classid = 'pg_attrdef'::regclass and d.objid = f.oid)
       ),
       has_column_privilege(a.attrelid, a.attnum, 'UPDATE')
  from pg_attribute a join pg_type t on t.oid = a.atttypid where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


# Triggers that users made: 13 and 14 call a partition's copy of them internal too, as they do those of foreign and unique keys.
_OF_USERS = "not exists (select from pg_constraint x where x.oid = tgconstraint and x.contype <> 't')"
_SHAPE = f"""
select c.oid = to_regclass(%s)::oid, c.relfilenode::int8, c.relpersistence::text,
       (select string_agg(concat_ws(' ', oid, tgenabled, tgtype), ',' order by oid) from pg_trigger
         where tgrelid = c.oid and {_OF_USERS}),
       (select string_agg(concat_ws(' ', oid, ev_enabled, ev_type), ',' order by oid) from pg_rewrite where ev_class = c.oid)
  from pg_class c where c.oid = %s
"""


def shape(connection: Connection, table: Table) -> Shape | None:
    """As it is now; None when there is no such table. In a transaction that holds a lock on it, it stays so to the end of that."""
    found = connection.execute(_SHAPE, [table.name, table.oid]).fetchone()
    return None if found is None else Shape(*found)


def _plan(
    connection: Connection, oid: int, schema: str, relname: str, kind: str, persistence: str, method: str | None, method_oid: int
) -> Table:
    """How one table is rewritten. Raises LeadlineError when that would do more than rewrite."""
    label = f"{schema}.{relname}"
    if oid < FIRST_NORMAL_OID or schema in ("pg_catalog", "information_schema", "pg_toast"):
        raise _refused(label, "it is a system table")
    if kind != "r":
        raise _refused(label, f"it is {KINDS.get(kind, 'not a table')}")
    if persistence == "t":
        raise _refused(label, "it is temporary: only the session that created it can change it")
    if method_oid != HEAP_AM:
        raise _refused(label, f"its access method is {method}: old rows can be found only in heap tables")
    [name, secured, kept_apart] = _one(
        connection,
        "select quote_ident(n.nspname) || '.' || quote_ident(c.relname), row_security_active(c.oid), c.relrowsecurity"
        " from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = %s",
        [oid],
    )
    table = Table(oid, schema, relname, name)
    table.shape = shape(connection, table)
    if persistence == "u":
        hint = f"alter table {name} set logged rewrites the whole table, under a lock"
        raise _refused(table.label, "it is unlogged: checkpoints do not write its pages, so old rows cannot be found in its files", hint)
    if secured:
        raise _refused(
            table.label,
            "row security would hide rows from this role",
            hint="run as the owner of the table (unless row security is forced), or as a role with BYPASSRLS",
        )
    if kept_apart:
        table.notes.append("row security: this role is not subject to it, and row_security = off makes it an error if that changes")
    _set_lists(connection, table)
    _triggers(connection, table)
    _publications(connection, table)
    _constraints(connection, table)
    [children] = _one(connection, "select count(*) from pg_inherits where inhparent = %s", [oid])
    if children:
        table.notes.append("child tables (inheritance) are not rewritten: run the command for each of them")
    return table


def _one(connection: Connection, query: str, parameters: list[Any]) -> tuple[Any, ...]:
    row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return row


def _set_lists(connection: Connection, table: Table) -> None:
    """A column is set to itself: one that neither the server nor a user computes anything from."""
    by_major = "a.attcompression::text" if connection.info.server_version >= 140000 else "''"
    columns = connection.execute(_COLUMNS.format(method=by_major), [table.oid]).fetchall()
    update_of = {n for (attrs,) in connection.execute(_UPDATE_OF, [table.oid]) for n in attrs}
    settable = [c for c in columns if not c[2] and not c[3]]
    free = [c for c in settable if c[8]]
    if settable and not free:
        message = f"this role cannot rewrite rows of {table.label}"
        raise LeadlineError("rights", message, detail="it has no UPDATE privilege on any column", hint="run as the owner of the table")
    free.sort(key=lambda c: (bool(c[7]), c[0] in update_of, c[0]))
    if not free:
        why = "it has no column that an UPDATE can set: every column is generated, or GENERATED ALWAYS AS IDENTITY"
        raise _refused(table.label, why if columns else "it has no columns left that an UPDATE could set")
    carrier = free[0]
    table.set_list = f"{carrier[1]} = t.{carrier[1]}"
    if any(c[2] for c in columns):
        copied = "recomputed, because every column that can be set is used in one" if carrier[7] else "copied, not recomputed"
        table.notes.append(f"generated columns: {copied}")
    if any(c[3] for c in columns):
        table.notes.append("identity columns: not changed")
    repacked: dict[str, str] = {}
    for number, column, generated, _, method, is_array, can_rebuild, is_part, is_allowed in columns:
        if method not in METHODS:
            continue
        part = next((c[1] for c in free if number in c[7]), None)
        if generated and part:
            repacked.setdefault(part, f"t.{part}")
            table.notes.append(f"{column} is recomputed in rows where it or a value it depends on is recompressed")
            continue
        if generated or not can_rebuild or not is_allowed:
            table.notes.append(f"{column} keeps its old compression method, because it cannot be set")
            continue
        # An element of an array is never packed: taken out again it is the same value, whatever its type. Of an array, which
        # cannot be an element, array_cat with nothing gives the same.
        rebuilt = f"pg_catalog.array_cat(t.{column}, '{{}}')" if is_array else f"(array[t.{column}])[1]"
        is_other = f"pg_catalog.pg_column_compression(t.{column}) operator(pg_catalog.<>) '{METHODS[method]}'"
        repacked[column] = f"case when {is_other} then {rebuilt} else t.{column} end"
        if is_part:
            table.notes.append(f"columns generated from {column} are recomputed when it is recompressed")
    table.repack_list = ", ".join(f"{column} = {value}" for column, value in repacked.items()) or table.set_list


_UPDATE_OF = f"""
select string_to_array(tgattr::text, ' ')::int[] from pg_trigger
 where tgrelid = %s and {_OF_USERS} and tgtype & 16 <> 0 and tgattr::text <> ''
"""
_TRIGGERS = f"""
select tgname::text, tgenabled::text from pg_trigger
 where tgrelid = %s and {_OF_USERS} and tgtype & 16 <> 0 and tgenabled <> 'D' order by 1
"""


def _triggers(connection: Connection, table: Table) -> None:
    """Triggers and rules on UPDATE do not fire, or nothing is done."""
    rules = connection.execute(
        "select rulename::text from pg_rewrite where ev_class = %s and ev_type = '2' and ev_enabled <> 'D' order by 1", [table.oid]
    ).fetchall()
    if rules:
        raise _refused(table.label, f"rule {rules[0][0]} changes what an UPDATE does", hint="drop the rule during the run")
    found = connection.execute(_TRIGGERS, [table.oid]).fetchall()
    ordinary = [name for name, enabled in found if enabled == "O"]
    always = [name for name, enabled in found if enabled == "A"]
    replica = [name for name, enabled in found if enabled == "R"]
    if always or (ordinary and replica):
        name = (always or replica)[0]
        raise _refused(
            table.label,
            f"trigger {name} fires in every mode, and would fire for every row",
            hint=f"run during the work: alter table {table.name} disable trigger {name}",
        )
    if not found:
        return
    table.replication_role = "origin" if replica else "replica"
    table.notes.append(f"triggers: {', '.join(replica or ordinary)} does not fire (session_replication_role = {table.replication_role})")
    [now] = _one(connection, "select current_setting('session_replication_role')", [])
    if table.replication_role == now or (replica and now == "local"):
        table.replication_role = None
        return
    try:
        connection.execute(f"set session_replication_role = {table.replication_role}")
        connection.execute("reset session_replication_role")
    except psycopg.errors.InsufficientPrivilege as e:
        raise LeadlineError(
            "rights",
            f"trigger {(replica or ordinary)[0]} of {table.label} would fire for every row",
            detail=str(e).strip().splitlines()[0],
            hint="as superuser, in 15 or later: grant set on parameter session_replication_role to ROLE",
        ) from None


_PUBLICATIONS = """
select string_agg(distinct p.pubname::text, ', '),
       c.relreplident = 'f'
       or c.relreplident = 'd' and exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indisvalid
            and i.indimmediate)
       or c.relreplident = 'i' and exists (select from pg_index i where i.indrelid = c.oid and i.indisreplident and i.indisvalid)
  from pg_class c,
       lateral (select c.oid as relid union select relid from pg_partition_ancestors(c.oid)) a
       join pg_class r on r.oid = a.relid join pg_namespace n on n.oid = r.relnamespace
       join pg_publication_tables t on t.schemaname = n.nspname and t.tablename = r.relname
       join pg_publication p on p.pubname = t.pubname and p.pubupdate
 where c.oid = %s group by c.oid, c.relreplident
"""


def _publications(connection: Connection, table: Table) -> None:
    found = connection.execute(_PUBLICATIONS, [table.oid]).fetchone()
    if found is not None:
        names, has_identity = found
        if not has_identity:
            raise _refused(
                table.label,
                f"publication {names} publishes updates, and the table has no usable replica identity",
                hint=f"alter table {table.name} replica identity full, or a primary key",
            )
        table.notes.append(f"publication {names}: each rewritten row is sent to subscribers as an UPDATE with the same values")
    slots = connection.execute("select count(*) from pg_replication_slots where slot_type = 'logical' and database = current_database()")
    if (slots.fetchone() or (0,))[0]:
        table.notes.append("logical slots of this database decode each rewritten row as an UPDATE")


def _constraints(connection: Connection, table: Table) -> None:
    constraints = connection.execute(
        "select conname::text, convalidated, contype::text = 'c' from pg_constraint"
        " where conrelid = %s and contype in ('c', 'n') order by 1",
        [table.oid],
    ).fetchall()
    doubtful = [name for name, is_valid, _ in constraints if not is_valid]
    if doubtful:
        table.notes.append(f"{', '.join(doubtful)} is not validated: rows that violate it are skipped")
    expressions = connection.execute(
        "select count(*) from pg_index where indrelid = %s and (indexprs is not null or indpred is not null)", [table.oid]
    ).fetchone()
    if any(is_check for _, _, is_check in constraints) or (expressions or (0,))[0]:
        table.notes.append("check constraints and index expressions are evaluated, as in every UPDATE")
