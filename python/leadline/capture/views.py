"""The views of a capture as SQL: those of the table specs, over its segments, in an order in which each finds what it reads.

A capture opened here, one in `leadline top`, and views.sql for any DuckDB differ in where tables and manifest come from, and in
nothing else.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable
from pathlib import Path

from leadline.capture.manifest import Manifest
from leadline.errors import cannot_be_written
from leadline.tables import Table, all_tables, duckdb_type
from leadline.tables.macros import macros

VIEWS_FILE = "views.sql"


def manifest_view(manifest: Manifest) -> str:
    """View `manifest`, which the view `capture` reads: one row with the JSON object in column `manifest`."""
    text = json.dumps(manifest.as_dict(), ensure_ascii=False).replace("'", "''")
    return f"create or replace view manifest as select '{text}'::json as manifest"


def with_what_they_read(names: Iterable[str]) -> set[str]:
    """These tables and views, and all that the views among them read, directly or not."""
    tables, wanted, left = all_tables(), set[str](), list(names)
    while left:
        if (name := left.pop()) not in wanted:
            wanted.add(name)
            left += (*tables[name].needs, *tables[name].uses)
    return wanted


@functools.cache
def views_in_order() -> tuple[Table, ...]:
    """The views, each after those it reads."""
    views = [t for t in all_tables().values() if t.kind == "view"]
    order: list[Table] = []
    while views:
        waiting = {v.name for v in views}
        ready = [v for v in views if not (set(v.needs) | set(v.uses)) & waiting]
        if not ready:
            raise AssertionError(f"views read each other in a circle: {sorted(waiting)}")
        order += ready
        views = [v for v in views if v not in ready]
    return tuple(order)


def empty_table(table: Table) -> str:
    """A query with the columns of a table and no row."""
    columns = ", ".join(f'cast(null as {duckdb_type(c.type)}) as "{c.name}"' for c in table.all_columns)
    return f"select {columns} where false"


def read_segments(segments: Iterable[Path], *, alike: bool = False) -> str:
    """A table function over segments, in their order; absent columns are null. Not a parameter: for one, DuckDB imports pandas.

    alike: all have the columns of the first, which is faster to read; else it is an error.
    """
    names = ", ".join("'" + str(segment).replace("'", "''") + "'" for segment in segments)
    return f"read_parquet([{names}])" if alike else f"read_parquet([{names}], union_by_name = true)"


def tables_with_rows(directory: Path, known: Iterable[str] = ()) -> set[str]:
    """Stored tables of which the directory has at least one whole segment. Those known to have some are not looked at again."""
    found, tables = set(known), all_tables()
    with os.scandir(directory) as entries:
        new = [entry.name for entry in entries if entry.name in tables and entry.name not in found]
    return found | {name for name in new if tables[name].kind == "table" and next((directory / name).glob("*.parquet"), None)}


def _views(table: Table, rows: str) -> list[str]:
    """The statements that create it."""
    made = [f"create or replace view {table.rows_name} as {rows};"]
    return made + [f"create or replace view {table.name} as {table.reading};"] * bool(table.computed)


def write_views(directory: Path, present: set[str]) -> None:
    """views.sql: the tables that have rows and every view over them, for any DuckDB started inside the directory."""
    lines = ["-- Run inside this directory: duckdb -init views.sql"]
    lines.append("create or replace view manifest as select content::json as manifest from read_text('manifest.json');")
    lines.append(macros().sql)
    for table in sorted(all_tables().values(), key=lambda table: bool(table.uses)):
        if table.kind == "table":
            segments = f"select * from read_parquet('{table.name}/*.parquet', union_by_name = true)"
            if table.coarse:
                segments = f"{empty_table(table)} union all by name {segments}"
            lines += _views(table, segments if table.name in present else empty_table(table))
    for view in views_in_order():
        lines += _views(view, view.sql.strip())
    try:
        (directory / VIEWS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as e:
        raise cannot_be_written(VIEWS_FILE, e, directory) from e
