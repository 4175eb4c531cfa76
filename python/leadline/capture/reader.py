"""A capture on disk: its manifest, and DuckDB over its tables and views.

Layout and manifest: docs/concepts/contracts.md. Reading never writes into the capture.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from leadline.errors import LeadlineError, cannot_be_written
from leadline.tables import DUCKDB_TYPES, Table, all_tables

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Replaces the manifest as one step, so that a reader or a crash never sees half of it."""
    temporary = directory / (MANIFEST + ".tmp")
    try:
        with open(temporary, "w", encoding="utf-8", errors="replace") as out:  # a path may be no UTF-8
            json.dump(manifest, out, indent=1, ensure_ascii=False)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(directory / MANIFEST)
    except OSError as e:
        raise cannot_be_written("the manifest", e, directory) from e


@dataclass
class Capture:
    """One capture opened for reading. Every table and view of the contracts exists in `db`, empty when nothing was recorded."""

    path: Path
    manifest: dict[str, Any]
    db: duckdb.DuckDBPyConnection

    @property
    def interrupted(self) -> bool:
        """The recorder ended without closing the capture (killed, power lost)."""
        return self.manifest.get("status") == "recording"

    @property
    def sampled(self) -> bool:
        """Sessions were sampled: it was taken of a server, not made from files."""
        return self.manifest.get("rate_hz") is not None

    def unavailable(self, table: str) -> str | None:
        """Why the capture has no evidence of this kind; None when it was looked for (also when nothing was seen)."""
        spec = all_tables().get(table)
        if spec is None:
            return f"there is no table {table}"
        if spec.kind == "view":
            return next(filter(None, (self.unavailable(name) for name in spec.needs)), None)
        if any((self.path / table).glob("*.parquet")):
            return None
        probe = self.manifest.get("probes", {}).get(spec.probe, {})
        if probe.get("status") in ("ok", "partial"):
            return None
        return probe.get("why") or f"probe {spec.probe} was not run"

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


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a capture folder. Raises LeadlineError when the folder is no capture or too new."""
    where = str(path)
    hint = "a capture is a folder NAME.leadline with a manifest.json; `leadline take` makes one"
    try:
        text = (path / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError as e:
        what = "this is not a capture" if path.exists() else "there is no such capture"
        raise LeadlineError("not_found", what, hint=hint, where=where) from e
    except OSError as e:
        raise LeadlineError("storage", f"the capture cannot be read: {e.strerror}", where=where) from e
    try:
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError) as e:
        raise LeadlineError("invalid", "the manifest of the capture is damaged", detail=repr(e), where=str(path / MANIFEST)) from e
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise LeadlineError(
            "unsupported",
            f"the capture has format version {version}, this leadline reads up to {FORMAT_VERSION}",
            hint="open it with the leadline that made it, or a newer one",
            where=where,
        )
    return manifest


def open_capture(path: str | Path) -> Capture:
    """Opens a capture for reading; an interrupted one too, with what it has."""
    path = Path(path)
    manifest = read_manifest(path)
    capture = Capture(path, manifest, memory_database())
    for table in all_tables().values():
        if table.kind == "table":
            _create_table_view(capture, table)
    _create_capture_view(capture)
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


def views_in_order() -> list[Table]:
    """The views but `capture`, each after those it reads."""
    views = [t for t in all_tables().values() if t.kind == "view" and t.name != "capture"]
    order: list[Table] = []
    while views:
        waiting = {v.name for v in views}
        ready = [v for v in views if not (set(v.needs) | set(v.uses)) & waiting]
        if not ready:
            raise AssertionError(f"views read each other in a circle: {sorted(waiting)}")
        order += ready
        views = [v for v in views if v not in ready]
    return order


def _create_table_view(capture: Capture, table: Table) -> None:
    """A stored table: its segments, with the columns of the contract (absent ones null: an older format)."""
    typed = ", ".join(f'cast(null as {DUCKDB_TYPES[c.type]}) as "{c.name}"' for c in table.columns)
    empty = f"select {typed} where false"
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


def _create_capture_view(capture: Capture) -> None:
    clock = capture.manifest.get("clock", {})
    ts_to = clock.get("ts_to")
    if ts_to is None:  # interrupted: as far as the ticks go
        ts_to = capture.scalar("select max(ts + period_ns) from tick")
    capture.db.execute("create view capture as " + capture_row(capture.manifest, clock.get("ts_from"), ts_to))


def capture_row(m: dict[str, Any], ts_from: int | None, ts_to: int | None) -> str:
    """The query of view `capture`: its one row, from the manifest and the window (ns on CLOCK_MONOTONIC)."""
    clock, target = m.get("clock", {}), m.get("target", {})
    values = [
        ("ts_from", ts_from, "BIGINT"),
        ("ts_to", ts_to, "BIGINT"),
        ("window_s", (ts_to - ts_from) / 1e9 if ts_to is not None and ts_from is not None else None, "DOUBLE"),
        ("wall_offset_ns", clock.get("wall_offset_ns"), "BIGINT"),
        ("tier", m.get("tier"), "VARCHAR"),
        ("rate_hz", m.get("rate_hz"), "DOUBLE"),
        ("server_version_num", target.get("server_version_num"), "INTEGER"),
        ("cpu_count", target.get("cpu_count"), "INTEGER"),
    ]
    columns = []
    for name, value, sql_type in values:
        literal = "null" if value is None else "'" + str(value).replace("'", "''") + "'"
        columns.append(f"cast({literal} as {sql_type}) as {name}")
    return "select " + ", ".join(columns)
