"""A capture held in memory: what many queries read is read from its files and computed once.

Stored tables become tables of the main schema, and so do the views whose spec says that they are worth it. Every cursor of the
connection sees them. A capture with more samples than memory should have is thinned: some passes stand for the rest.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from leadline.capture.views import read_segments, views_in_order
from leadline.duck import duckdb
from leadline.tables import Table, all_tables

# 270 bytes a row of the samples, measured, and two views have nearly all rows: 0.8 GB at the limit.
SAMPLES_LIMIT = 1_500_000
THINNED_SAMPLES = 1_000_000  # what is left of more: a share of a tenth of them is then known to 0.03 %
TABLE_LIMIT = 8 << 20  # bytes of segments, which are several times as much in memory; a larger table stays in its files
SMALL_SAMPLES, SMALL_BYTES = 250_000, 4 << 20  # to divide less among threads costs more than it saves
# Steps of DuckDB's optimizer that pay over many rows. Over few, it takes longer to look for what they could better.
FOR_MANY_ROWS = (
    "common_subexpressions", "common_subplan", "compressed_materialization", "duplicate_groups", "join_elimination", "sum_rewriter",
    "top_n_window_elimination", "window_self_join",
)  # fmt: skip
ALWAYS = "capture"  # one row, made of the manifest's text, that nearly every query reads
SAMPLES = "session_sample"

# Each Nth pass, and those at which waiters were looked at, which rules join to the samples of the same moment. A pass stands for
# the time until the next that is read.
THINNED = """
with looked as ({looked}),
part as (select *, sum((tick % {every} = 0 or ts in (from looked))::int) over (order by tick) as part from tick)
select min(tick) as tick, min(ts) as ts, sum(period_ns)::bigint as period_ns, arg_min(next_xid, tick) as next_xid,
  sum(period_ns) / arg_min(period_ns, tick) as stands_for from part group by part
"""


def held_tables(directory: Path) -> set[str]:
    """Stored tables of a capture that are worth keeping in memory: events can be many, and few queries read them."""
    tables = (t.name for t in all_tables().values() if t.kind == "table" and t.role != "event")
    return {name for name in tables if sum(segment.stat().st_size for segment in (directory / name).glob("*.parquet")) <= TABLE_LIMIT}


def samples_of(db: duckdb.DuckDBPyConnection, directory: Path) -> int:
    """How many samples the capture has. db: any connection; it reads them from the segments."""
    runs = [segment for segment in sorted((directory / "session_run").glob("*.parquet")) if segment.stat().st_size > 0]
    if not runs:
        return 0
    try:
        row = db.execute(f"select coalesce(sum(ticks), 0)::bigint from {read_segments(runs)}").fetchone()
    except duckdb.Error:  # the query that needs them says why
        return 0
    return row[0] if row else 0


def passes_to_read(samples: int, most: int | None = None) -> int:
    """1: every pass; N: every Nth. most: samples to read at most, where fewer than usual will do."""
    limit, left = (SAMPLES_LIMIT, THINNED_SAMPLES) if most is None else (most, most)
    return 1 if samples <= limit else -(-samples // left)


def is_small(directory: Path, samples: int) -> bool:
    """Whether one thread answers a query as fast as many."""
    if samples > min(SMALL_SAMPLES, SAMPLES_LIMIT):
        return False
    return sum(segment.stat().st_size for segment in directory.glob("*/*.parquet")) <= SMALL_BYTES


def plan_for_few_rows(db: duckdb.DuckDBPyConnection) -> None:
    """Queries of this database then take one thread and little planning."""
    known = {name for (name,) in db.execute("select name from duckdb_optimizers()").fetchall()}  # other versions have others
    db.execute("set threads = 1")
    db.execute(f"set disabled_optimizers = '{','.join(name for name in FOR_MANY_ROWS if name in known)}'")


def create_views(db: duckdb.DuckDBPyConnection, *, held: bool, every: int = 1, temporary: bool = False) -> None:
    """Every view of the contracts over the tables that are there, as create_view makes it."""
    for view in views_in_order():
        create_view(db, view, held=held, every=every, temporary=temporary)


def create_view(db: duckdb.DuckDBPyConnection, view: Table, *, held: bool, every: int = 1, temporary: bool = False) -> None:
    """One view; held: as a table where that is worth it. every: see passes_to_read.

    temporary: for this cursor alone, in front of that of the main schema, with the values that its variables have now.
    """
    temp = "temp " if temporary else ""
    _create_rows(db, view, temp, held=held, every=every)
    if view.computed:
        db.execute(f'create {temp}view "{view.name}" as {view.reading}')


def _create_rows(db: duckdb.DuckDBPyConnection, view: Table, temp: str, *, held: bool, every: int) -> None:
    thinned = view.name == "sampled_pass" and every > 1
    sql = THINNED.format(every=every, looked=_looked()) if thinned else view.sql
    if held and view.name == SAMPLES and _described_once(db):
        sql = sql.replace("asof left join who", "left join who")  # the same rows; an as-of join would sort all samples
    if held and (view.materialise or view.name == ALWAYS or thinned):
        with contextlib.suppress(duckdb.Error):  # a damaged segment: the query that needs it says why
            db.execute(f'create {temp}table "{view.rows_name}" as {sql}')
            return
    db.execute(f'create {temp}view "{view.rows_name}" as {sql}')


def _looked() -> str:
    """The passes at which waiters were looked at."""
    return " union ".join(f"select ts from {table.name}" for table in all_tables().values() if table.keeps_passes)


def _described_once(db: duckdb.DuckDBPyConnection) -> bool:
    """Whether no session changed its description: which one held at a sample then needs no search."""
    try:
        row = db.execute("select count(*) = count(distinct session_id) from session").fetchone()
    except duckdb.Error:  # a damaged segment: the query that needs it says why
        return False
    return bool(row and row[0])
