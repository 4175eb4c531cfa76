"""The SQL that makes the objects of a database again, in an order in which each finds what it needs.

Two parts, as pg_dump has them: before the rows (schemas, types, functions, tables, sequences, views) and after them (indexes, constraints,
triggers, policies, grants).
"""

from __future__ import annotations

from leadline.files.salvage import (
    foreign,
    grants,
    keys_and_indexes,
    operators,
    order,
    publications,
    relations,
    routines,
    statistics_and_events,
    text_search,
    triggers,
    types,
)
from leadline.files.salvage.catalog import Catalog, Key, quoted
from leadline.files.salvage.written import CATALOG_OF, Item, Writer

EXTENSION_MEMBER, MADE_WITH = "e", "i"
MADE_WITH_A_RANGE = ("pg_proc", "pg_cast")  # its constructors and the cast to its multirange
PARTS = (
    types, routines, operators, text_search, foreign, relations, keys_and_indexes, triggers, statistics_and_events, publications,
)  # fmt: skip
UNWRITTEN = {
    "pg_am": ("amname", "access method"),
    "pg_collation": ("collname", "collation"),
    "pg_conversion": ("conname", "conversion"),
    "pg_language": ("lanname", "language"),
    "pg_opclass": ("opcname", "operator class"),
    "pg_opfamily": ("opfname", "operator family"),
    "pg_transform": ("oid", "transform"),
    "pg_ts_parser": ("prsname", "text search parser"),
    "pg_ts_template": ("tmplname", "text search template"),
}
"""What users may have made and what is named in the manifest only: the column with its name, and what it is."""


def written(catalog: Catalog) -> Writer:
    """The objects of a database that users made."""
    writer = Writer(catalog)
    _extensions(writer)
    for row in catalog.rows("pg_namespace"):
        if writer.is_mine("pg_namespace", row) and not row["nspname"].startswith(("pg_temp_", "pg_toast_temp_")):
            name = quoted(row["nspname"])
            key = Key("pg_namespace", int(row["oid"]))
            writer.before.append(Item(key, f"schema {name}", f"create schema {name};", int(row["nspowner"])))
    for part in PARTS:
        part.write(writer)
    for table, (column, what) in UNWRITTEN.items():
        for row in catalog.rows(table):
            if writer.is_mine(table, row):
                writer.lose(f"{what} {row[column]}", "not written by salvage")
    for name in sorted(catalog.modified):
        writer.lose(f"modifiers of type {name}", "only the functions of the type can print them: its columns are declared without")
    order.put_in_order(writer)
    writer.after += [*grants.items(writer), *grants.default_privileges(writer), *writer.last]
    return writer


def _extensions(writer: Writer) -> None:
    catalog = writer.catalog
    for row in catalog.rows("pg_depend"):
        if row["deptype"] == EXTENSION_MEMBER and (table := CATALOG_OF.get(int(row["classid"]))):
            writer.members.add(Key(table, int(row["objid"])))
        if row["deptype"] == MADE_WITH and (table := CATALOG_OF.get(int(row["classid"]))) in MADE_WITH_A_RANGE:
            writer.members.add(Key(table, int(row["objid"])))
    for row in catalog.rows("pg_extension"):
        if int(row["oid"]) >= 16384:
            name = quoted(row["extname"])
            where = f" with schema {quoted(catalog.schema(int(row['extnamespace'])))}" if row["extrelocatable"] == "t" else ""
            writer.before.append(
                Item(Key("pg_extension", int(row["oid"])), f"extension {name}", f"create extension if not exists {name}{where};")
            )
