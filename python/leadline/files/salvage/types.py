"""The types that users made: enums, domains, composites and ranges."""

from __future__ import annotations

from leadline.files.salvage.catalog import Key, Row, quoted
from leadline.files.salvage.node_names import string
from leadline.files.salvage.written import Item, Writer


def write(writer: Writer) -> None:
    catalog = writer.catalog
    makers = {"e": _enum, "d": _domain, "c": _composite, "r": _range}
    for row in catalog.rows("pg_type"):
        if not writer.is_mine("pg_type", row):
            continue
        kind, oid = row["typtype"], int(row["oid"])
        relation = catalog.by_oid("pg_class").get(int(row["typrelid"] or 0))
        if kind == "c" and relation is not None and relation["relkind"] != "c":
            writer.merged[Key("pg_type", oid)] = Key("pg_class", int(relation["oid"]))  # the type of a table's rows
            continue
        if kind == "c" and relation is not None:
            writer.merged[Key("pg_class", int(relation["oid"]))] = Key("pg_type", oid)
        if int(row["typelem"]) and int(catalog.by_oid("pg_type").get(int(row["typelem"]), {}).get("typarray") or 0) == oid:
            writer.merged[Key("pg_type", oid)] = Key("pg_type", int(row["typelem"]))  # made with its element
            continue
        if kind in ("m", "p"):  # a multirange is made with its range; a shell type has nothing
            continue
        what = f"type {catalog.schema(int(row['typnamespace']))}.{row['typname']}"
        if kind not in makers:
            writer.lose(what, "a base type: its functions are in a library")
            continue
        writer.attempt(what, lambda row=row, kind=kind: _add(writer, row, makers[kind](writer, row)))  # type: ignore[misc]


def _add(writer: Writer, row: Row, sql: str) -> None:
    kind = "domain" if row["typtype"] == "d" else "type"
    name = writer.catalog.qualified(row["typnamespace"], row["typname"])
    writer.before.append(Item(Key("pg_type", int(row["oid"])), f"{kind} {name}", sql, int(row["typowner"])))


def _enum(writer: Writer, row: Row) -> str:
    labels = sorted(writer.catalog.grouped("pg_enum", "enumtypid")[int(row["oid"])], key=lambda label: float(label["enumsortorder"]))
    texts = ", ".join(string(label["enumlabel"]) for label in labels)
    return f"create type {writer.catalog.qualified(row['typnamespace'], row['typname'])} as enum ({texts});"


def _domain(writer: Writer, row: Row) -> str:
    catalog, oid = writer.catalog, int(row["oid"])
    name = catalog.qualified(row["typnamespace"], row["typname"])
    parts = [f"create domain {name} as {catalog.type_name(int(row['typbasetype']), int(row['typtypmod']))}"]
    parts += _collate(writer, row["typcollation"], int(row["typbasetype"]))
    if default := writer.expression(row["typdefaultbin"], f"default of domain {name}"):
        parts.append(f"default {default}")
    if row["typnotnull"] == "t":
        parts.append("not null")
    for constraint in catalog.rows("pg_constraint"):
        if int(constraint["contypid"]) == oid and constraint["contype"] == "c":
            writer.merged[Key("pg_constraint", int(constraint["oid"]))] = Key("pg_type", oid)
            if check := writer.expression(constraint["conbin"], f"constraint {constraint['conname']} of domain {name}"):
                parts.append(f"constraint {quoted(constraint['conname'])} check ({check})")
    return " ".join(parts) + ";"


def _collate(writer: Writer, collation: str, base: int) -> list[str]:
    """Where it is another than that of the type."""
    own = writer.catalog.by_oid("pg_type").get(base, {}).get("typcollation") or "0"
    return [f"collate {writer.catalog.collation(int(collation))}"] if int(collation) and collation != own else []


def _composite(writer: Writer, row: Row) -> str:
    catalog = writer.catalog
    fields = []
    for field in catalog.attributes.get(int(row["typrelid"]), ()):
        if field["attisdropped"] == "f":
            parts = [quoted(field["attname"]), catalog.type_name(int(field["atttypid"]), int(field["atttypmod"]))]
            fields.append(" ".join(parts + _collate(writer, field["attcollation"], int(field["atttypid"]))))
    return f"create type {catalog.qualified(row['typnamespace'], row['typname'])} as ({', '.join(fields)});"


def _range(writer: Writer, row: Row) -> str:
    catalog = writer.catalog
    found = catalog.grouped("pg_range", "rngtypid")[int(row["oid"])][0]
    parts = [f"subtype = {catalog.type_name(int(found['rngsubtype']))}"]
    if (opclass := catalog.by_oid("pg_opclass").get(int(found["rngsubopc"]))) is not None:
        parts.append(f"subtype_opclass = {catalog.qualified(opclass['opcnamespace'], opclass['opcname'])}")
    if int(found["rngcollation"]):
        parts.append(f"collation = {catalog.collation(int(found['rngcollation']))}")
    for column, option in (("rngcanonical", "canonical"), ("rngsubdiff", "subtype_diff")):
        if function := int(found[column]):
            parts.append(f"{option} = {catalog.function(function)}")
    if int(found.get("rngmultitypid") or 0):
        parts.append(f"multirange_type_name = {catalog.type_name(int(found['rngmultitypid']))}")
    return f"create type {catalog.qualified(row['typnamespace'], row['typname'])} as range ({', '.join(parts)});"
