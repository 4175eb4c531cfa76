"""Operators and casts that users made."""

from __future__ import annotations

from leadline.files.salvage.catalog import Key, Row, quoted
from leadline.files.salvage.written import Item, Writer

CONTEXT = {"a": " as assignment", "i": " as implicit", "e": ""}


def write(writer: Writer) -> None:
    for row in writer.catalog.rows("pg_operator"):
        if writer.is_mine("pg_operator", row) and int(row["oprcode"]):  # without a function: named by another, and never made
            writer.attempt(f"operator {row['oprname']}", lambda row=row: _operator(writer, row))  # type: ignore[misc]
    for row in writer.catalog.rows("pg_cast"):
        if writer.is_mine("pg_cast", row):
            writer.attempt(f"cast {row['oid']}", lambda row=row: _cast(writer, row))  # type: ignore[misc]


def _operator(writer: Writer, row: Row) -> None:
    catalog = writer.catalog
    parts = [f"function = {catalog.function(int(row['oprcode']))}"]
    sides = {"leftarg": int(row["oprleft"]), "rightarg": int(row["oprright"])}
    parts += [f"{side} = {catalog.type_name(oid)}" for side, oid in sides.items() if oid]
    for column, option in (("oprcom", "commutator"), ("oprnegate", "negator")):
        if other := catalog.by_oid("pg_operator").get(int(row[column])):
            parts.append(f"{option} = OPERATOR({quoted(catalog.schema(int(other['oprnamespace'])))}.{other['oprname']})")
    for column, option in (("oprrest", "restrict"), ("oprjoin", "join")):
        parts += [f"{option} = {catalog.function(int(row[column]))}"] if int(row[column]) else []
    parts += ["hashes"] * (row["oprcanhash"] == "t") + ["merges"] * (row["oprcanmerge"] == "t")
    name = f"{quoted(catalog.schema(int(row['oprnamespace'])))}.{row['oprname']}"
    taken = ", ".join(catalog.type_name(oid) if oid else "none" for oid in sides.values())
    sql = f"create operator {name} ({', '.join(parts)});"
    writer.before.append(Item(Key("pg_operator", int(row["oid"])), f"operator {name} ({taken})", sql, int(row["oprowner"])))


def _cast(writer: Writer, row: Row) -> None:
    catalog = writer.catalog
    name = f"cast ({catalog.type_name(int(row['castsource']))} as {catalog.type_name(int(row['casttarget']))})"
    if function := catalog.by_oid("pg_proc").get(int(row["castfunc"])):
        types = ", ".join(catalog.type_name(int(oid)) for oid in function["proargtypes"].split())
        way = f"with function {catalog.function(int(function['oid']))}({types})"
    else:
        way = "with inout" if row["castmethod"] == "i" else "without function"
    writer.before.append(Item(Key("pg_cast", int(row["oid"])), name, f"create {name} {way}{CONTEXT[row['castcontext']]};"))
