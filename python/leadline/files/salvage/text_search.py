"""Text search dictionaries and configurations that users made."""

from __future__ import annotations

from leadline.files.salvage.catalog import Key, Row, quoted
from leadline.files.salvage.written import Item, Writer

PARSER = 3722  # that initdb made
TOKENS = (
    "asciiword", "word", "numword", "email", "url", "host", "sfloat", "version", "hword_numpart", "hword_part", "hword_asciipart", "blank",
    "tag", "protocol", "numhword", "asciihword", "hword", "url_path", "file", "float", "int", "uint", "entity",
)  # fmt: skip
"""Of the default parser, from 1 on (tsearch/wparser_def.c)."""


def write(writer: Writer) -> None:
    for row in writer.catalog.rows("pg_ts_dict"):
        if writer.is_mine("pg_ts_dict", row):
            writer.attempt(f"text search dictionary {row['dictname']}", lambda row=row: _dictionary(writer, row))  # type: ignore[misc]
    for row in writer.catalog.rows("pg_ts_config"):
        if writer.is_mine("pg_ts_config", row):
            writer.attempt(f"text search configuration {row['cfgname']}", lambda row=row: _configuration(writer, row))  # type: ignore[misc]


def _dictionary(writer: Writer, row: Row) -> None:
    catalog = writer.catalog
    name = catalog.qualified(row["dictnamespace"], row["dictname"])
    template = catalog.by_oid("pg_ts_template")[int(row["dicttemplate"])]
    options = f", {row['dictinitoption']}" if row["dictinitoption"] else ""
    sql = (
        f"create text search dictionary {name} (template = {catalog.qualified(template['tmplnamespace'], template['tmplname'])}{options});"
    )
    writer.before.append(Item(Key("pg_ts_dict", int(row["oid"])), f"text search dictionary {name}", sql, int(row["dictowner"])))


def _configuration(writer: Writer, row: Row) -> None:
    catalog, oid = writer.catalog, int(row["oid"])
    if int(row["cfgparser"]) != PARSER:
        raise ValueError("its parser is not the default one: the names of its tokens are in no catalog")
    name = catalog.qualified(row["cfgnamespace"], row["cfgname"])
    lines = [f"create text search configuration {name} (parser = pg_catalog.default);"]
    dictionaries: dict[int, list[tuple[int, str]]] = {}
    for entry in catalog.grouped("pg_ts_config_map", "mapcfg").get(oid, ()):
        of = catalog.by_oid("pg_ts_dict")[int(entry["mapdict"])]
        called = f"{quoted(catalog.schema(int(of['dictnamespace'])))}.{quoted(of['dictname'])}"
        dictionaries.setdefault(int(entry["maptokentype"]), []).append((int(entry["mapseqno"]), called))
    for token, those in sorted(dictionaries.items()):
        which = ", ".join(called for _, called in sorted(those))
        lines.append(f"alter text search configuration {name} add mapping for {TOKENS[token - 1]} with {which};")
    writer.before.append(Item(Key("pg_ts_config", oid), f"text search configuration {name}", "\n".join(lines), int(row["cfgowner"])))
