"""How the recorder writes the rows of a table: one segment, sorted, in row groups that a query over a short time can skip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leadline.capture.manifest import Manifest
from leadline.duck import duckdb
from leadline.tables import Table

COUNTERS = "server_stat"  # read before and after a piece: nothing is known of what they were in between
ROW_GROUP = 14_336  # rows: a whole number of DuckDB's vectors below 16,384 (docs/concepts/contracts.md, Segments)


def write_rows(db: duckdb.DuckDBPyConnection, sql: str, table: Table, out: Path, manifest: Manifest, name: str = "000001") -> None:
    """The rows of a query, in its order, as a segment of a table of the capture `out`."""
    row = db.execute(f"select count(*) from ({sql})").fetchone()
    if row is None or not row[0]:
        return  # no segment: it was looked for, and there is nothing
    (out / table.name).mkdir(exist_ok=True)
    path = out / table.name / f"{name}.parquet"
    temporary = path.with_suffix(".tmp")
    db.execute(f"copy ({sql}) to '{quoted(temporary)}' (format parquet, compression zstd, row_group_size {ROW_GROUP})")
    temporary.replace(path)
    written: Any = manifest.tables.setdefault(table.name, {"rows": 0, "bytes": 0, "segments": 0})
    written["rows"] += row[0]
    written["bytes"] += path.stat().st_size
    written["segments"] += 1


def quoted(path: Path) -> str:
    return str(path).replace("'", "''")
