"""The table contracts: what tables exist, their columns, units and meaning.

Each TOML file beside this one is one table, and each in the directory `tables` of an engine. crates/capture embeds those of this package,
so a column exists in one place; what an engine of another package stores is defined there when it is first written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leadline._core.capture import parse_toml
from leadline.engines import Engine, directories_by_engine
from leadline.errors import LeadlineError
from leadline.tables.thresholds import Threshold, parse_threshold, with_defaults

DIRECTORY = Path(__file__).parent  # not importlib.resources, whose import takes longer than to read the files
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
# Where the views of any engine take in what an engine adds.
OWN_COLUMNS, OWN_TIME = "/* own columns */", "/* own database time */"
WRONG_FORM = (LeadlineError, AssertionError, AttributeError, KeyError, TypeError, ValueError)  # what reading a wrong file raises


def duckdb_type(column_type: str) -> str:
    """The type of DuckDB for a type of a table file, also for list<type>."""
    if column_type.startswith("list<"):
        return DUCKDB_TYPES[column_type.removeprefix("list<").removesuffix(">")] + "[]"
    return DUCKDB_TYPES[column_type]


@dataclass(frozen=True)
class Column:
    """sql: of a computed column, over the row `r` and what Table.joins joins to it; of an engine's own column, see own_columns."""

    name: str
    type: str
    unit: str
    meaning: str
    source: str = ""
    nullable: bool = False
    sql: str = ""


@dataclass(frozen=True)
class Levels:
    """How the rows of a span become one row in a coarse capture: one for each set of values of `key`. Columns of `last` (`*`: all others)
    are as they were last, the others are added up.
    """

    key: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def is_last(self, column: str) -> bool:
        return column in self.last or "*" in self.last


@dataclass(frozen=True)
class Table:
    """One table or view.

    Of tables: probe; role (ROLES); clock, the column whose order the rows have; key, columns of which a capture has
    each set of values once: a second reading only adds. Of views: sql (with the defaults of its
    thresholds), needs, uses, thresholds, materialise (MATERIALISE). engine: whose it is; empty for tables of any engine.

    computed: columns that are not kept with the rows but computed when these are read, with what `joins` joins to them.
    keeps_passes: of a table; rules join its rows to the samples of the same pass, which is then read of a very large capture, too.

    coarse: columns that only a coarse capture has (recorder/levels.py); null elsewhere. levels: how the rows of a span become one there.
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
    engine: str = ""
    computed: tuple[Column, ...] = ()
    joins: str = ""
    keeps_passes: bool = False
    coarse: tuple[Column, ...] = ()
    levels: Levels | None = None

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """What a reader finds: what probes write, and what a coarse capture adds."""
        return (*self.columns, *self.coarse)

    @property
    def rows_name(self) -> str:
        """The name of its rows without the computed columns, in a database."""
        return f"{self.name}_rows" if self.computed else self.name

    @property
    def reading(self) -> str:
        """A query over the rows, with the computed columns."""
        computed = "".join(f', {column.sql} as "{column.name}"' for column in self.computed)
        return f"select r.*{computed} from {self.rows_name} r {self.joins}".rstrip()


@functools.cache
def all_tables() -> dict[str, Table]:
    """Every table and view by name: tables first, then views, each in the order of their names."""
    found: dict[str, Table] = {}
    for engine, directory in [(None, DIRECTORY), *directories_by_engine("tables")]:
        for entry in directory.glob("*.toml"):
            table = _table(entry, engine)
            if table.name in found:
                raise LeadlineError("unsupported", f"there are two tables {table.name}", hint=_whose(engine), where=str(entry))
            found[table.name] = table
    for engine, directory in directories_by_engine("columns"):
        for entry in directory.glob("*.toml"):
            _add_own_columns(found, entry, engine)
    return {table.name: table for table in sorted(found.values(), key=lambda t: (t.kind, t.name))}


def in_db_time() -> str:
    """What counts as database time, as SQL: over a run `s`, its session `w`, a pass `t` and the capture `c`, as session_sample has them."""
    sql = all_tables()["session_sample"].sql
    mark = sql.index(OWN_TIME)
    begin = max(found.end() for found in re.finditer(r"\n\s*(?=case\b)", sql[:mark]))
    return sql[begin : sql.index(" as in_db_time", mark)]


def whose_tables() -> list[tuple[str, str]]:
    """Table.engine of the tables of any engine and of each that has some, and how a heading goes on to say whose they are."""
    return [("", ""), *((engine.name, f" of {engine.product or engine.name}") for engine, _ in directories_by_engine("tables"))]


def _table(entry: Path, engine: Engine | None) -> Table:
    """Raises LeadlineError when the file does not have the form."""
    try:
        raw = parse_toml(entry.read_text(encoding="utf-8"))
        columns, computed = _columns(raw.pop("columns")), _columns(raw.pop("computed", ()))
        raw["coarse"] = _columns(raw.get("coarse", ()))
        if "levels" in raw:
            raw["levels"] = Levels(**{name: tuple(names) for name, names in raw["levels"].items()})
        raw["key"] = tuple(raw.get("key", ()))
        raw["needs"], raw["uses"] = tuple(raw.get("needs", ())), tuple(raw.get("uses", ()))
        raw["thresholds"] = tuple(parse_threshold(entry.name, text) for text in raw.get("thresholds", ()))
        raw["sql"] = with_defaults(raw.get("sql", ""), raw["thresholds"])
        return Table(columns=columns, computed=computed, engine=engine.name if engine else "", **raw)
    except WRONG_FORM as e:
        raise _unreadable(entry, engine, e) from e


def _columns(raw: Iterable[dict[str, Any]]) -> tuple[Column, ...]:
    return tuple(Column(**column) for column in raw)


def _unreadable(entry: Path, engine: Engine | None, e: Exception) -> LeadlineError:
    detail = e.detail if isinstance(e, LeadlineError) else f"{type(e).__name__}: {e}"
    return LeadlineError("unsupported", "this table file cannot be read", detail=detail, hint=_whose(engine), where=str(entry))


def _whose(engine: Engine | None) -> str:
    return f"update or uninstall the package of engine {engine.name}" if engine else ""


def _add_own_columns(tables: dict[str, Table], entry: Path, engine: Engine) -> None:
    """What an engine adds to a view of any engine that has room for it: `columns/VIEW.toml`.

    columns: in the rows; their sql is over what the view reads. computed: as of a table. in_db_time: what counts as database time in a
    capture of a server of this engine; over what the view reads.
    """
    try:
        raw = parse_toml(entry.read_text(encoding="utf-8"))
        view = tables[entry.stem]
        columns, computed = _columns(raw.get("columns", ())), _columns(raw.get("computed", ()))
        known = {column.name for column in (*view.columns, *view.computed)}
        if twice := [column.name for column in (*columns, *computed) if column.name in known]:
            raise ValueError(f"{view.name} has a column {twice[0]} already")
        sql = view.sql.replace(OWN_COLUMNS, "".join(f', {column.sql} as "{column.name}"' for column in columns) + OWN_COLUMNS)
        if counts := raw.get("in_db_time"):
            kinds = ", ".join(f"'{subject.name}'" for subject in engine.subjects if subject.watched)
            sql = sql.replace(OWN_TIME, f"when c.target_kind in ({kinds}) then {counts} {OWN_TIME}")
        tables[view.name] = replace(view, sql=sql, columns=view.columns + columns, computed=view.computed + computed)
    except WRONG_FORM as e:
        raise _unreadable(entry, engine, e) from e
