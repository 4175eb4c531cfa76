"""A capture on disk: its manifest, and DuckDB over its tables and views.

Layout and manifest: docs/concepts/contracts.md. Reading never writes into the capture.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from leadline.capture.hold import hold
from leadline.capture.manifest import Manifest, read_manifest
from leadline.capture.views import empty_table, manifest_view, views_in_order
from leadline.errors import LeadlineError
from leadline.tables import Table, all_tables
from leadline.tables.macros import macros


@dataclass
class Capture:
    """One capture opened for reading. Every table and view of the contracts exists in `db`, empty when nothing was recorded."""

    path: Path
    manifest: Manifest
    db: duckdb.DuckDBPyConnection
    held: bool = False

    def hold(self) -> Capture:
        """Reads what many queries need once and keeps it in memory, when it is small enough: for commands that ask many questions."""
        self.held = self.held or hold(self.db, self.path)
        return self

    @property
    def interrupted(self) -> bool:
        """The recorder ended without closing the capture (killed, power lost)."""
        return self.manifest.status == "recording"

    @property
    def sampled(self) -> bool:
        """Sessions were sampled: it was taken of a server, not made from files."""
        return "sessions" in self.manifest.probes and self.manifest.probe("sessions").looked

    def unavailable(self, table: str) -> str | None:
        """Why the capture has no evidence of this kind; None when it was looked for (also when nothing was seen)."""
        spec = all_tables().get(table)
        if spec is None:
            return f"there is no table {table}"
        if spec.kind == "view":
            return next(filter(None, (self.unavailable(name) for name in spec.needs)), None)
        if any((self.path / table).glob("*.parquet")):
            return None
        probe = self.manifest.probe(spec.probe)
        return None if probe.looked else probe.why or f"probe {spec.probe} was not run"

    def rows(self, sql: str, parameters: list[Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a query as dictionaries. Raises LeadlineError('query') when it does not run."""
        try:
            cursor = self.db.execute(sql, parameters or [])
        except duckdb.Error as e:
            raise LeadlineError(
                "query", "the query does not run", detail=str(e).strip(), hint="leadline tables lists tables and columns"
            ) from e
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    def scalar(self, sql: str) -> Any:
        """The first column of the first row; None when there is no row."""
        rows = self.rows(sql)
        return next(iter(rows[0].values())) if rows else None

    def close(self) -> None:
        self.db.close()


def open_capture(path: str | Path) -> Capture:
    """Opens a capture for reading; an interrupted one too, with what it has."""
    path = Path(path)
    manifest = read_manifest(path)
    capture = Capture(path, manifest, memory_database())
    capture.db.execute(macros().sql)
    for table in all_tables().values():
        if table.kind == "table":
            _create_table_view(capture, table)
    capture.db.execute(manifest_view(manifest))
    for table in views_in_order():
        capture.db.execute(f'create view "{table.name}" as {table.sql}')
    return capture


def memory_database() -> duckdb.DuckDBPyConnection:
    """An empty database for a capture, quiet, and without an optimizer that DuckDB 2.0.0 has broken.

    That one fails ("BindBuiltinScalarFunction did not return a BoundFunctionExpression") on a filter over
    `case when column = 'a' then 'b' end` where statistics say that no row has 'a'. Without it the queries here are no slower.
    """
    db = duckdb.connect(":memory:")
    db.execute("set enable_progress_bar = false")
    db.execute("set disabled_optimizers = 'statistics_propagation'")
    return db


def _create_table_view(capture: Capture, table: Table) -> None:
    """A stored table: its segments, with the columns of the contract (absent ones null: an older format)."""
    empty = empty_table(table)
    segments = []
    for segment in sorted((capture.path / table.name).glob("*.parquet")):
        if segment.stat().st_size > 0:
            segments.append(str(segment).replace("'", "''"))
    if not segments:
        capture.db.execute(f'create view "{table.name}" as {empty}')
        return
    files = ", ".join(f"'{s}'" for s in segments)
    query = f"{empty} union all by name select * from read_parquet([{files}], union_by_name = true)"
    try:
        capture.db.execute(f'create view "{table.name}" as {query}')
    except duckdb.Error as e:
        raise LeadlineError(
            "invalid",
            f"table {table.name} of the capture is damaged",
            detail=str(e).splitlines()[0],
            hint="remove the segment it names to open the rest",
            where=str(capture.path / table.name),
        ) from e
