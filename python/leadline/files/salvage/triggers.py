"""Triggers and row security policies that users made."""

from __future__ import annotations

from leadline.files.salvage.catalog import Key, Row, numbers, quoted
from leadline.files.salvage.expressions import expression, trigger_condition
from leadline.files.salvage.node_names import string
from leadline.files.salvage.relations import is_temporary
from leadline.files.salvage.written import Item, Writer

ROW, BEFORE, INSERT, DELETE, UPDATE, TRUNCATE, INSTEAD = (1 << bit for bit in range(7))  # of tgtype (catalog/pg_trigger.h)
ENABLED = {"D": "disable", "R": "enable replica", "A": "enable always"}
COMMAND = {"r": "select", "a": "insert", "w": "update", "d": "delete", "*": "all"}


def write(writer: Writer) -> None:
    catalog = writer.catalog
    for row in sorted(catalog.rows("pg_trigger"), key=lambda row: int(row["oid"])):
        is_copy = int(row.get("tgparentid") or 0) != 0  # of that of the partitioned table
        if row["tgisinternal"] == "f" and not is_copy and writer.is_mine("pg_class", {"oid": row["tgrelid"]}):
            writer.attempt(f"trigger {row['tgname']}", lambda row=row: _trigger(writer, row))  # type: ignore[misc]
    for row in sorted(catalog.rows("pg_policy"), key=lambda row: int(row["oid"])):
        writer.attempt(f"policy {row['polname']}", lambda row=row: _policy(writer, row))  # type: ignore[misc]
    for row in catalog.rows("pg_rewrite"):
        if writer.is_mine("pg_rewrite", row) and row["ev_type"] != "1":
            writer.lose(f"rule {row['rulename']}", "not written by salvage")
    for row in catalog.rows("pg_class"):
        if row["relkind"] in ("r", "p") and writer.is_mine("pg_class", row) and not is_temporary(catalog, row):
            _row_security(writer, row)


def _trigger(writer: Writer, row: Row) -> None:
    catalog, relid, kind = writer.catalog, int(row["tgrelid"]), int(row["tgtype"])
    table = catalog.relation(relid)
    condition = f" when ({trigger_condition(row['tgqual'], catalog, relid)})" if row["tgqual"] else ""
    moment = "before" if kind & BEFORE else "instead of" if kind & INSTEAD else "after"
    columns = ", ".join(catalog.column(relid, number) for number in numbers(row["tgattr"]))
    events = ["insert"] * bool(kind & INSERT) + ["delete"] * bool(kind & DELETE)
    events += [f"update of {columns}" if columns else "update"] * bool(kind & UPDATE) + ["truncate"] * bool(kind & TRUNCATE)
    is_constraint = int(row["tgconstraint"]) != 0
    sql = f"create {'constraint ' if is_constraint else ''}trigger {quoted(row['tgname'])} {moment} {' or '.join(events)} on {table}"
    if is_constraint:
        sql += f" from {catalog.relation(int(row['tgconstrrelid']))}" if int(row["tgconstrrelid"]) else ""
        sql += " deferrable initially deferred" if row["tginitdeferred"] == "t" else " deferrable" if row["tgdeferrable"] == "t" else ""
    tables = [f"{word} table as {quoted(row[column])}" for column, word in (("tgoldtable", "old"), ("tgnewtable", "new")) if row[column]]
    sql += f" referencing {' '.join(tables)}" if tables else ""
    sql += f" for each {'row' if kind & ROW else 'statement'}{condition}"
    arguments = ", ".join(string(text) for text in _arguments(row))
    sql += f" execute function {catalog.function(int(row['tgfoid']))}({arguments});"
    if word := ENABLED.get(row["tgenabled"]):
        sql += f"\nalter table {table} {word} trigger {quoted(row['tgname'])};"
    writer.after.append(Item(Key("pg_trigger", int(row["oid"])), f"trigger {quoted(row['tgname'])} on {table}", sql))


def _arguments(row: Row) -> list[str]:
    """Each ends with a zero byte."""
    text = bytes.fromhex((row["tgargs"] or "\\x").removeprefix("\\x")).decode(errors="replace")
    return text.split("\0")[: int(row["tgnargs"])]


def _policy(writer: Writer, row: Row) -> None:
    catalog, relid = writer.catalog, int(row["polrelid"])
    table = catalog.relation(relid)
    sql = f"create policy {quoted(row['polname'])} on {table}{' as restrictive' if row['polpermissive'] == 'f' else ''}"
    sql += f" for {COMMAND[row['polcmd']]} to {', '.join(catalog.role(oid) for oid in numbers(row['polroles']))}"
    sql += f" using ({expression(row['polqual'], catalog, relid)})" if row["polqual"] else ""
    sql += f" with check ({expression(row['polwithcheck'], catalog, relid)})" if row["polwithcheck"] else ""
    writer.after.append(Item(Key("pg_policy", int(row["oid"])), f"policy {quoted(row['polname'])} on {table}", sql + ";"))


def _row_security(writer: Writer, row: Row) -> None:
    oid = int(row["oid"])
    table = writer.catalog.relation(oid)
    words = ["enable row level security"] * (row["relrowsecurity"] == "t") + ["force row level security"] * (
        row["relforcerowsecurity"] == "t"
    )
    words += {"n": ["replica identity nothing"], "f": ["replica identity full"]}.get(row["relreplident"], [])
    writer.after += [Item(Key(word, oid), "", f"alter table {table} {word};") for word in words]
