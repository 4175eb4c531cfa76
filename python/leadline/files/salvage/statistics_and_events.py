"""Extended statistics and event triggers that users made."""

from __future__ import annotations

from leadline.files.salvage.catalog import Key, Row, elements, numbers, quoted
from leadline.files.salvage.expressions import expressions
from leadline.files.salvage.node_names import string
from leadline.files.salvage.triggers import ENABLED
from leadline.files.salvage.written import Item, Writer

KINDS = {"d": "ndistinct", "f": "dependencies", "m": "mcv"}


def write(writer: Writer) -> None:
    for row in writer.catalog.rows("pg_statistic_ext"):
        if writer.is_mine("pg_statistic_ext", row):
            writer.attempt(f"statistics {row['stxname']}", lambda row=row: _statistics(writer, row))  # type: ignore[misc]
    for row in writer.catalog.rows("pg_event_trigger"):
        if writer.is_mine("pg_event_trigger", row):
            writer.attempt(f"event trigger {row['evtname']}", lambda row=row: _event_trigger(writer, row))  # type: ignore[misc]


def _statistics(writer: Writer, row: Row) -> None:
    catalog, relid = writer.catalog, int(row["stxrelid"])
    name = catalog.qualified(row["stxnamespace"], row["stxname"])
    parts = [catalog.column(relid, number) for number in numbers(row["stxkeys"])]
    parts += [f"({text})" for text in expressions(row["stxexprs"], catalog, relid)] if row.get("stxexprs") else []
    kinds = [KINDS[kind] for kind in elements(row["stxkind"]) if kind in KINDS]
    which = f" ({', '.join(kinds)})" if kinds and len(kinds) < len(KINDS) and len(parts) > 1 else ""
    sql = f"create statistics {name}{which} on {', '.join(parts)} from {catalog.relation(relid)};"
    if row.get("stxstattarget") not in (None, "-1"):
        sql += f"\nalter statistics {name} set statistics {row['stxstattarget']};"
    writer.after.append(Item(Key("pg_statistic_ext", int(row["oid"])), f"statistics {name}", sql, int(row["stxowner"])))


def _event_trigger(writer: Writer, row: Row) -> None:
    """Made when all else is there: it would be called for what is made after it."""
    name = quoted(row["evtname"])
    tags = ", ".join(string(tag) for tag in elements(row["evttags"]) if tag is not None)
    sql = f"create event trigger {name} on {row['evtevent']}{f' when tag in ({tags})' if tags else ''}"
    sql += f" execute function {writer.catalog.function(int(row['evtfoid']))}();"
    if word := ENABLED.get(row["evtenabled"]):
        sql += f"\nalter event trigger {name} {word};"
    writer.last.append(Item(Key("pg_event_trigger", int(row["oid"])), f"event trigger {name}", sql, int(row["evtowner"])))
