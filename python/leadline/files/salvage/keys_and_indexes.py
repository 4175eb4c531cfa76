"""Indexes and the constraints that need them: primary and foreign keys, unique and exclusion constraints."""

from __future__ import annotations

from leadline.files.salvage.catalog import Catalog, Key, Row, numbers, quoted
from leadline.files.salvage.expressions import expression
from leadline.files.salvage.keys import key_columns
from leadline.files.salvage.relations import is_temporary, options
from leadline.files.salvage.written import Item, Writer

KEY = {"p": "primary key", "u": "unique"}
ACTION = {"a": "", "r": "restrict", "c": "cascade", "n": "set null", "d": "set default"}


def write(writer: Writer) -> None:
    catalog = writer.catalog
    of_index = {
        int(row["conindid"]): row for row in catalog.rows("pg_constraint") if row["contype"] in ("p", "u", "x") and int(row["conindid"])
    }
    for index in sorted(catalog.rows("pg_index"), key=lambda row: int(row["indexrelid"])):
        oid = int(index["indexrelid"])
        row = catalog.by_oid("pg_class").get(oid)
        if row is None or not writer.is_mine("pg_class", row) or is_temporary(catalog, row):
            continue
        what = f"index {catalog.schema(int(row['relnamespace']))}.{row['relname']}"
        if _is_part(catalog, oid):
            continue  # made for each partition with that of the partitioned table
        constraint = of_index.get(oid)
        writer.attempt(what, lambda index=index, row=row, constraint=constraint: _index(writer, index, row, constraint))  # type: ignore[misc]
    for constraint in sorted(catalog.rows("pg_constraint"), key=lambda row: int(row["oid"])):
        mine = writer.is_mine("pg_constraint", constraint) and writer.is_mine("pg_class", {"oid": constraint["conrelid"]})
        if mine and constraint["contype"] == "f" and not int(constraint["conparentid"]):
            writer.attempt(f"constraint {constraint['conname']}", lambda constraint=constraint: _foreign_key(writer, constraint))  # type: ignore[misc]


def _is_part(catalog: Catalog, oid: int) -> bool:
    return bool(catalog.grouped("pg_inherits", "inhrelid").get(oid))


def _index(writer: Writer, index: Row, row: Row, constraint: Row | None) -> None:
    catalog, oid, relid = writer.catalog, int(index["indexrelid"]), int(index["indrelid"])
    if not writer.is_mine("pg_class", {"oid": index["indrelid"]}):
        return
    table, name = catalog.relation(relid), quoted(row["relname"])
    method = str(catalog.by_oid("pg_am")[int(row["relam"])]["amname"])
    attnums, keys = numbers(index["indkey"]), int(index["indnkeyatts"])
    columns = key_columns(
        catalog, relid, attnums[:keys], index["indexprs"], numbers(index["indclass"]), numbers(index["indcollation"]), method,
        numbers(index["indoption"]),
    )  # fmt: skip
    include = ", ".join(catalog.column(relid, attnum) for attnum in attnums[keys:])
    tail = f" include ({include})" if include else ""
    given = f" with ({', '.join(f'{option}={value}' for option, value in options(row))})" if row["reloptions"] else ""
    predicate = f" where ({expression(index['indpred'], catalog, relid)})" if index["indpred"] else ""
    distinct = " nulls not distinct" if index.get("indnullsnotdistinct") == "t" else ""
    if constraint is not None and constraint["contype"] in KEY:
        if constraint.get("conperiod") == "t":
            columns[-1] += " without overlaps"
        definition = f"{KEY[constraint['contype']]}{distinct} ({', '.join(columns)}){tail}{given}{_deferrable(constraint)}"
        writer.constrain(constraint, _only(catalog, relid) + table, definition)
    elif constraint is not None:
        operators = [catalog.operator(operator) for operator in numbers(constraint["conexclop"])]
        parts = ", ".join(f"{column} with {operator}" for column, operator in zip(columns, operators))
        definition = f"exclude using {quoted(method)} ({parts}){tail}{given}{predicate}{_deferrable(constraint)}"
        writer.constrain(constraint, table, definition)
    else:
        unique = "unique " if index["indisunique"] == "t" else ""
        sql = f"create {unique}index {name} on {table} using {quoted(method)} ({', '.join(columns)}){tail}{distinct}{given}{predicate};"
        schema = quoted(catalog.schema(int(row["relnamespace"])))
        writer.after.append(Item(Key("pg_class", oid), f"index {schema}.{name}", sql))
    if index["indisclustered"] == "t":
        writer.after.append(Item(Key("cluster", oid), "", f"alter table {table} cluster on {name};"))
    if index["indisreplident"] == "t":
        writer.after.append(Item(Key("identity", oid), "", f"alter table only {table} replica identity using index {name};"))


def _only(catalog: Catalog, relid: int) -> str:
    """A key of a partitioned table is made for its partitions too."""
    return "" if catalog.by_oid("pg_class")[relid]["relkind"] == "p" else "only "


def _deferrable(constraint: Row) -> str:
    if constraint["condeferrable"] == "f":
        return ""
    return " deferrable initially deferred" if constraint["condeferred"] == "t" else " deferrable"


def _foreign_key(writer: Writer, constraint: Row) -> None:
    catalog, relid, other = writer.catalog, int(constraint["conrelid"]), int(constraint["confrelid"])
    table = catalog.relation(relid)
    period = constraint.get("conperiod") == "t"

    def columns(of: int, text: str | None) -> str:
        names = [catalog.column(of, number) for number in numbers(text)]
        return ", ".join([*names[:-1], f"period {names[-1]}"] if period else names)

    definition = f"foreign key ({columns(relid, constraint['conkey'])})"
    definition += f" references {catalog.relation(other)} ({columns(other, constraint['confkey'])})"
    definition += " match full" if constraint["confmatchtype"] == "f" else ""
    if action := ACTION[constraint["confupdtype"]]:
        definition += f" on update {action}"
    if action := ACTION[constraint["confdeltype"]]:
        some = [catalog.column(relid, number) for number in numbers(constraint.get("confdelsetcols"))]
        definition += f" on delete {action}" + (f" ({', '.join(some)})" if some else "")
    definition += _deferrable(constraint)
    if constraint.get("conenforced") == "f":
        definition += " not enforced"
    elif constraint["convalidated"] == "f":
        definition += " not valid"
    writer.constrain(constraint, _only(catalog, relid) + table, definition)
