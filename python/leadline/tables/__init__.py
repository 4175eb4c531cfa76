"""The table contracts: what tables exist, their columns, units and meaning.

Each TOML file beside this one is one table. crates/capture embeds the same files, so a column exists in one place.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from leadline._core.capture import parse_toml
from leadline.engines import folders
from leadline.tables.thresholds import Threshold, parse_threshold, with_defaults

FOLDER = Path(__file__).parent  # not importlib.resources, whose import takes longer than to read the files
DUCKDB_TYPES = {
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float64": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "bool": "BOOLEAN",
}
# What the rows of a stored table are: observations of passes or readings; things that happened or were found, each once; what
# an id of other rows stands for; names and settings, read as a whole.
ROLES = ("sampled", "event", "described", "named")
# Who computes a view once instead of each time it is read: an evaluation of many rules; also a live window, whenever it moves;
# also a live capture, which keeps its rows because they never change once they are there.
MATERIALISE = ("evaluation", "window", "append")


def duckdb_type(column_type: str) -> str:
    """The type of DuckDB for a type of a table file, also for list<type>."""
    if column_type.startswith("list<"):
        return DUCKDB_TYPES[column_type.removeprefix("list<").removesuffix(">")] + "[]"
    return DUCKDB_TYPES[column_type]


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    unit: str
    meaning: str
    source: str = ""
    nullable: bool = False


@dataclass(frozen=True)
class Table:
    """One table or view.

    Of tables: probe; role (ROLES); clock, the column whose order the rows have; key, columns of which a capture has
    each set of values once: a second reading only adds. Of views: sql (with the defaults of its
    thresholds), needs, uses, thresholds, materialise (MATERIALISE).
    """

    name: str
    kind: str
    title: str
    columns: tuple[Column, ...]
    probe: str = ""
    role: str = ""
    clock: str = ""
    key: tuple[str, ...] = ()
    materialise: str = ""
    sql: str = ""
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    thresholds: tuple[Threshold, ...] = ()


@functools.cache
def all_tables() -> dict[str, Table]:
    """Every table and view by name: tables first, then views, each in the order of their names."""
    found = []
    for entry in (entry for folder in (FOLDER, *folders("tables")) for entry in folder.glob("*.toml")):
        raw = parse_toml(entry.read_text(encoding="utf-8"))
        columns = tuple(Column(**column) for column in raw.pop("columns"))
        raw["key"] = tuple(raw.get("key", ()))
        raw["needs"], raw["uses"] = tuple(raw.get("needs", ())), tuple(raw.get("uses", ()))
        raw["thresholds"] = tuple(parse_threshold(entry.name, text) for text in raw.get("thresholds", ()))
        raw["sql"] = with_defaults(raw.get("sql", ""), raw["thresholds"])
        found.append(Table(columns=columns, **raw))
    return {table.name: table for table in sorted(found, key=lambda t: (t.kind, t.name))}
