"""Columns of tables as a file gives them, where no catalog does: a line for each table, `[NUMBER] [SCHEMA.]TABLE (COLUMN TYPE, ...)`."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from leadline._core.rows import built_in_types
from leadline.errors import LeadlineError
from leadline.files.salvage.catalog import SQL_NAMES, built_in_name
from leadline.files.salvage.shapes import Column
from leadline.units import MB
from leadline.whole import read_text

LINE = re.compile(r'(?:(?P<number>\d+)\s+)?(?P<name>(?:"[^"]+"|[^\s".(]+)(?:\.(?:"[^"]+"|[^\s".(]+))?)\s*\((?P<columns>.*)\)\s*;?')
COLUMN = re.compile(r'("(?:[^"]+)"|[^\s"]+)\s+(.+)')
TYPE = re.compile(r"([a-z_0-9\" ]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*((?:with|without) time zone)?\s*((?:\[\])*)")
MEANT = {
    "int": "int4",
    "decimal": "numeric",
    "char": "bpchar",
    "serial": "int4",
    "bigserial": "int8",
    "smallserial": "int2",
    "float": "float8",
}
NAMES = {sql: name for name, sql in SQL_NAMES.items()}
HEADER = 4
MOST = 64 * MB


@dataclass
class GivenColumn:
    """A column. as_sql: its type."""

    name: str
    type_oid: int
    typmod: int
    as_sql: str


@dataclass
class GivenTable:
    """number: of its file, when it is given."""

    schema: str
    name: str
    columns: list[GivenColumn]
    number: int | None


@functools.cache
def types() -> dict[str, tuple[int, int, str]]:
    """By name: OID, length and alignment."""
    return {name: (oid, length, align) for oid, name, length, align in built_in_types()}


@functools.cache
def layouts() -> dict[int, tuple[int, str, int]]:
    """By OID: length, alignment, and of an array the type of its elements."""
    return {
        oid: (length, align, types().get(name.removeprefix("_"), (0,))[0] * (name[0] == "_"))
        for name, (oid, length, align) in types().items()
    }


def layout(columns: list[GivenColumn]) -> list[Column]:
    """As values of these columns lie in rows."""
    of = [(each, *layouts()[each.type_oid]) for each in columns]
    return [Column(each.type_oid, length, align, each.typmod, element) for each, length, align, element in of]


def read(path: Path) -> list[GivenTable]:
    """Raises LeadlineError."""
    lines = ((number, line.partition("#")[0].strip()) for number, line in enumerate(read_text(path, MOST).splitlines(), 1))
    return [_table(line, f"{path}:{number}") for number, line in lines if line]


def _table(line: str, where: str) -> GivenTable:
    found = LINE.fullmatch(line)
    if found is None:
        raise LeadlineError(
            "usage", "this line is not that of a table", hint="write [NUMBER] [SCHEMA.]TABLE (COLUMN TYPE, ...)", where=where
        )
    *schema, name = (part.strip('"') for part in re.findall(r'"[^"]+"|[^".]+', found["name"]))
    columns = [_column(part.strip(), where) for part in re.split(r",(?![^(]*\))", found["columns"]) if part.strip()]
    return GivenTable(schema[0] if schema else "public", name, columns, int(found["number"]) if found["number"] else None)


def _column(text: str, where: str) -> GivenColumn:
    found = COLUMN.fullmatch(text)
    of = TYPE.fullmatch(found[2].lower().strip()) if found else None
    if found is None or of is None:
        raise LeadlineError("usage", f"this is not a column: {text}", hint="write its name and its type", where=where)
    word, first, second, zone, array = of.groups()
    called = f"{word} {zone}" if zone else word
    name = NAMES.get(called) or MEANT.get(called) or called.strip('"')
    if called == '"char"':
        name = "char"
    full = f"_{name}" if array else name
    if full not in types():
        raise LeadlineError(
            "usage", f"no built-in type named {found[2]}", hint="a domain is what it is made of, an enum is oid", where=where
        )
    typmod = _typmod(name, first, second)
    return GivenColumn(found[1].strip('"'), types()[full][0], typmod, built_in_name(name, typmod) + ("[]" if array else ""))


def _typmod(name: str, first: str | None, second: str | None) -> int:
    if first is None:
        return HEADER + 1 if name == "bpchar" else -1
    if name == "numeric":
        return (int(first) << 16 | int(second or 0)) + HEADER
    return int(first) + (HEADER if name in ("varchar", "bpchar") else 0)
