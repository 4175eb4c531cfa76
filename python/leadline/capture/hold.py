"""A capture held in memory: what many queries read is read from its files and computed once.

Temporary tables and views stand before those of the same names. Views are made of their SQL again, since a view of the main
schema goes on reading the main schema.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import duckdb

from leadline.capture.views import views_in_order
from leadline.tables import all_tables

# 270 bytes a row of the samples, measured, and two views have nearly all rows: about 1 GB at the limit. Larger captures stay in
# their files.
SAMPLES_LIMIT = 2_000_000
FILES_LIMIT = 64 << 20  # bytes of segments, which are several times as much in memory
ALWAYS = "capture"  # one row, made of the manifest's text, that nearly every query reads


def hold(db: duckdb.DuckDBPyConnection, directory: Path) -> bool:
    """Holds the capture for this connection when it is small enough; tells whether it is.

    A table that cannot be read is left where it is: the query that needs it says why.
    """
    tables = [t for t in all_tables().values() if t.kind == "table" and t.role != "event"]
    sizes = {t.name: sum(segment.stat().st_size for segment in (directory / t.name).glob("*.parquet")) for t in tables}
    if sum(sizes.values()) > FILES_LIMIT or _samples(db) > SAMPLES_LIMIT:
        return False
    for table in tables:
        if sizes[table.name]:
            with contextlib.suppress(duckdb.Error):
                db.execute(f'create temp table "{table.name}" as select * from main."{table.name}"')
    for view in views_in_order():
        if view.materialise or view.name == ALWAYS:
            with contextlib.suppress(duckdb.Error):
                db.execute(f'create temp table "{view.name}" as {view.sql}')
                continue
        db.execute(f'create temp view "{view.name}" as {view.sql}')
    return True


def _samples(db: duckdb.DuckDBPyConnection) -> int:
    try:
        row = db.execute("select coalesce(sum(ticks), 0) from session_run").fetchone()
    except duckdb.Error:
        return 0
    return int(row[0]) if row else 0
