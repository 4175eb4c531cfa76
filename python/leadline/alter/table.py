"""What the server says of a table whose rows are to be rewritten: whether that can be done without changing anything else, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg

from leadline.catalog.connection import Connection
from leadline.errors import LeadlineError

FIRST_NORMAL_OID = 16384
KINDS = {"v": "a view", "m": "a materialised view: refresh it", "f": "a foreign table", "i": "an index: reindex it", "S": "a sequence"}
METHODS = {"p": "pglz", "l": "lz4"}


@dataclass
class Table:
    """One table with rows of its own. name: quoted for SQL. set_list: what the UPDATE sets. notes: what it does about the rest."""

    oid: int
    schema: str
    relname: str
    name: str
    set_list: str = ""
    repack_list: str = ""
    as_replica: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.relname}"

    def statement(self, repack: bool) -> str:
        """The UPDATE of one batch: rows that somebody else has locked are left for later. %s: places of rows."""
        chosen = f"select ctid from only {self.name} where ctid = any(%s::tid[]) for no key update skip locked"
        return f"update only {self.name} as t set {self.repack_list if repack else self.set_list} where t.ctid = any(array({chosen}))"


def tables(connection: Connection, wanted: str) -> list[Table]:
    """The table of this name, or the partitions of a partitioned one, each with its plan. Raises LeadlineError when one cannot be."""
    found = connection.execute(
        "select c.oid::int8, n.nspname, c.relname, c.relkind::text from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.oid = to_regclass(%s)",
        [wanted],
    ).fetchone()
    if found is None:
        raise LeadlineError("not_found", f"there is no table {wanted} in this database", hint="name it as SCHEMA.TABLE, quoted as in SQL")
    oid, schema, relname, kind = found
    if oid < FIRST_NORMAL_OID or schema in ("pg_catalog", "information_schema", "pg_toast"):
        raise _refused(wanted, "it is a table of the system")
    if kind not in "rp":
        raise _refused(wanted, f"it is {KINDS.get(kind, 'not a table')}")
    rows = [(oid, schema, relname, kind)]
    if kind == "p":
        rows = connection.execute(
            "select c.oid::int8, n.nspname, c.relname, c.relkind::text from pg_partition_tree(%s::oid::regclass) p"
            " join pg_class c on c.oid = p.relid join pg_namespace n on n.oid = c.relnamespace where p.isleaf order by 2, 3",
            [oid],
        ).fetchall()
    made = []
    for oid, schema, relname, kind in rows:
        if kind == "f":
            raise _refused(f"{schema}.{relname}", "it is a partition that is a foreign table")
        if kind == "r":
            made.append(_plan(connection, oid, schema, relname))
    return made


def _refused(table: str, why: str, hint: str = "") -> LeadlineError:
    return LeadlineError("unsupported", f"the rows of {table} cannot be rewritten", detail=why, hint=hint)


_COLUMNS = """
select a.attnum::int, quote_ident(a.attname), a.attgenerated::text <> '', a.attidentity::text = 'a', {method},
       t.typcategory::text = 'A', t.typarray <> 0 or t.typcategory = 'A',
       exists (
         select from pg_depend d where d.refclassid = 'pg_class'::regclass and d.refobjid = a.attrelid and d.refobjsubid = a.attnum
           and (d.classid = 'pg_class'::regclass and d.objid = a.attrelid
                and d.objsubid in (select g.attnum from pg_attribute g where g.attrelid = a.attrelid and g.attgenerated <> '')
             or d.classid = 'pg_attrdef'::regclass and d.objid in (
                select f.oid from pg_attrdef f join pg_attribute g on g.attrelid = f.adrelid and g.attnum = f.adnum
                 where f.adrelid = a.attrelid and g.attgenerated <> ''))
       )
  from pg_attribute a join pg_type t on t.oid = a.atttypid where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


def _plan(connection: Connection, oid: int, schema: str, relname: str) -> Table:
    """How one table is rewritten. Raises LeadlineError when that would do more than rewrite."""
    [name, secured, kept_apart, unlogged] = _one(
        connection,
        "select quote_ident(n.nspname) || '.' || quote_ident(c.relname), row_security_active(c.oid), c.relrowsecurity,"
        " c.relpersistence = 'u'"
        " from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = %s",
        [oid],
    )
    table = Table(oid, schema, relname, name)
    if unlogged:
        hint = f"alter table {name} set logged writes it anew altogether, with a lock"
        raise _refused(table.label, "it is unlogged: no checkpoint writes its pages, so the files do not tell which rows are old", hint)
    if secured:
        raise _refused(
            table.label,
            "row security would hide rows from this role",
            hint="run it as the table's owner, unless row security is forced on that too, or as a role with BYPASSRLS",
        )
    if kept_apart:
        table.notes.append("row security: this role is not subject to it, and row_security = off makes it an error if that changes")
    _set_lists(connection, table)
    _triggers(connection, table)
    _publications(connection, table)
    _constraints(connection, table)
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
    free = [c for c in columns if not c[2] and not c[3]]
    free.sort(key=lambda c: (c[7], c[0] in update_of, c[0]))
    if not free:
        raise _refused(table.label, "it has no column that an UPDATE may set: all are generated, or identities that are always generated")
    carrier = free[0]
    table.set_list = f"{carrier[1]} = t.{carrier[1]}"
    if any(c[2] for c in columns):
        copied = "recomputed, since every column that can be set is part of one" if carrier[7] else "copied, not recomputed"
        table.notes.append(f"generated columns: {copied}")
    if any(c[3] for c in columns):
        table.notes.append("identity columns: never set")
    repacked = []
    for _, column, generated, _, method, is_array, can_rebuild, is_part in columns:
        if method not in METHODS:
            continue
        if generated or not can_rebuild:
            table.notes.append(f"{column} is packed by an older method and stays so: it cannot be set")
            continue
        # An element of an array is never packed: taken out again it is the same value, whatever its type. Of an array, which
        # cannot be an element, array_cat with nothing gives the same.
        rebuilt = f"array_cat(t.{column}, '{{}}')" if is_array else f"(array[t.{column}])[1]"
        repacked.append(f"{column} = case when pg_column_compression(t.{column}) <> '{METHODS[method]}' then {rebuilt} else t.{column} end")
        if is_part:
            table.notes.append(f"generated columns of {column} are computed again when it is packed anew")
    table.repack_list = ", ".join(repacked) or table.set_list


_UPDATE_OF = """
select string_to_array(tgattr::text, ' ')::int[] from pg_trigger
 where tgrelid = %s and not tgisinternal and tgtype & 16 <> 0 and tgattr::text <> ''
"""
_TRIGGERS = """
select tgname::text, tgenabled::text from pg_trigger
 where tgrelid = %s and not tgisinternal and tgtype & 16 <> 0 and tgenabled <> 'D' order by 1
"""


def _triggers(connection: Connection, table: Table) -> None:
    """Triggers and rules on UPDATE do not fire, or nothing is done."""
    rules = connection.execute(
        "select rulename::text from pg_rewrite where ev_class = %s and ev_type = '2' and ev_enabled <> 'D' order by 1", [table.oid]
    ).fetchall()
    if rules:
        raise _refused(table.label, f"rule {rules[0][0]} says what an UPDATE does", hint="drop the rule for the time of the work")
    found = connection.execute(_TRIGGERS, [table.oid]).fetchall()
    ordinary = [name for name, enabled in found if enabled == "O"]
    always = [name for name, enabled in found if enabled == "A"]
    replica = [name for name, enabled in found if enabled == "R"]
    if always or (ordinary and replica):
        name = (always or replica)[0]
        raise _refused(
            table.label,
            f"trigger {name} fires in any mode, and would for every row",
            hint=f"for the time of the work: alter table {table.name} disable trigger {name}",
        )
    if not found:
        return
    if replica:
        table.notes.append(f"triggers: {', '.join(replica)} fires for replicas only, so not here")
        return
    try:
        connection.execute("set session_replication_role = replica")
        connection.execute("set session_replication_role = origin")
    except psycopg.errors.InsufficientPrivilege as e:
        raise LeadlineError(
            "rights",
            f"trigger {ordinary[0]} of {table.label} would fire for every row",
            detail=str(e).strip().splitlines()[0],
            hint="as superuser, from 15 on: grant set on parameter session_replication_role to ROLE",
        ) from None
    table.as_replica = True
    table.notes.append(f"triggers: {', '.join(ordinary)} does not fire (session_replication_role = replica)")


_PUBLICATIONS = """
select string_agg(distinct p.pubname::text, ', '),
       c.relreplident = 'f'
       or c.relreplident = 'd' and exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indisvalid)
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
        table.notes.append(f"{', '.join(doubtful)} is not validated: rows that violate it cannot be rewritten, and end the work")
    expressions = connection.execute(
        "select count(*) from pg_index where indrelid = %s and (indexprs is not null or indpred is not null)", [table.oid]
    ).fetchone()
    if any(is_check for _, _, is_check in constraints) or (expressions or (0,))[0]:
        table.notes.append("check constraints and the expressions of indexes are evaluated, as in every UPDATE")
