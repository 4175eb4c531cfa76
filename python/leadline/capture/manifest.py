"""The manifest of a capture while it is made (docs/concepts/contracts.md), and views.sql beside it.

The manifest is there from the start and refreshed as the capture grows, so that a killed recorder leaves a readable capture.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from leadline.capture.reader import FORMAT_VERSION, write_manifest
from leadline.errors import LeadlineError, cannot_be_written
from leadline.host.facts import cpu_count
from leadline.postgres.target import Target
from leadline.tables import DUCKDB_TYPES, Table, all_tables
from leadline.version import version

RESERVE = ".reserve"
RESERVE_BYTES = 128 << 10  # room for the last manifest when the disk is full


class Manifest:
    """Builds and writes manifest.json of one capture folder."""

    def __init__(self, directory: Path, target: Target, options: dict[str, Any]) -> None:
        self.directory = directory
        self._viewed: set[str] | None = None
        system = platform.uname()
        self.content: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "product_version": version(),
            "status": "recording",
            "error": None,
            "tier": None,
            "rate_hz": None,
            "period_ns": None,
            "clock": {"ts_from": None, "ts_to": None, "wall_offset_ns": None},
            "target": {
                "kind": target.kind,
                "pid": target.pid,
                "data_dir": target.data_dir,
                "dsn": target.safe_dsn,
                "server_version_num": target.server_version_num,
                "server_version": target.server_version,
                "cpu_count": cpu_count(target.pid) if target.pid is not None else None,
                "max_connections": None,
            },
            "host": {"name": system.node, "kernel": system.release, "machine": system.machine},
            "probes": {},
            "layout_checks": [],
            "access": {"shared_memory": "none", "private_memory": False, "why": ""},
            "notes": list(target.notes),
            "tables": {},
            "loss": {},
            "self_cost": {},
            "options": options,
        }

    def note(self, *texts: str) -> None:
        """Adds what people should know, each once."""
        self.content["notes"] += [text for text in dict.fromkeys(texts) if text not in self.content["notes"]]

    def describe_recorder(self, found: dict[str, Any]) -> None:
        """Takes over what Recorder.describe() says of the server and the probes."""
        target = self.content["target"]
        for key in ("server_version_num", "max_connections", "data_dir"):
            target[key] = found.get(key) or target[key]
        target["server_version"] = target["server_version"] or short_version(found["server_version"])
        self.content["layout_checks"] = found["layout_checks"]
        self.content["access"] = found["access"]
        self.content["probes"] = {**self.content["probes"], **found["probes"]}

    def progress(self, status: dict[str, Any], window_s: float, cpu_s: float) -> None:
        """Loss and cost so far."""
        self.content["loss"] = {"ticks_taken": status["ticks"], "ticks_missed": status["missed"], "torn": status["torn"]}
        self._cost(cpu_s, window_s)
        self.content["self_cost"]["bytes_written"] = status["bytes_written"]

    def reserve(self) -> None:
        """Sets room aside so that the end can still be written on a full disk."""
        try:
            (self.directory / RESERVE).write_bytes(b"\0" * RESERVE_BYTES)
        except OSError as e:
            (self.directory / RESERVE).unlink(missing_ok=True)
            raise cannot_be_written("the capture", e, self.directory) from e

    def write(self) -> None:
        """Replaces manifest.json as one step, and views.sql when more tables have rows than the last time."""
        write_manifest(self.directory, self.content)
        present = tables_with_rows(self.directory)
        if present != self._viewed:
            write_views(self.directory, present)
            self._viewed = present

    def write_last(self) -> None:
        """The manifest that ends the capture, with the room set aside for it."""
        (self.directory / RESERVE).unlink(missing_ok=True)
        self.write()

    @contextmanager
    def making(self) -> Iterator[None]:
        """A capture that is made from files within the block: `complete` when it ends, else `failed` with the error."""
        self.reserve()
        self.write()
        began, cpu = time.monotonic(), time.process_time()
        try:
            yield
        except BaseException as e:
            error = e if isinstance(e, LeadlineError) else LeadlineError("gone", f"interrupted by {type(e).__name__}")
            self.content |= {"status": "failed", "error": error.as_dict()}
            with suppress(LeadlineError):  # the first error is the one to tell, and the manifest on disk says "recording"
                self.write_last()
            raise
        self._cost(time.process_time() - cpu, time.monotonic() - began)
        self.content["status"] = "complete"
        self.write_last()

    def _cost(self, cpu_s: float, window_s: float) -> None:
        self.content["self_cost"] |= {
            "cpu_s": round(cpu_s, 6),
            "window_s": round(window_s, 6),
            "cpu_percent_of_core": round(100 * cpu_s / window_s, 3) if window_s > 0 else None,
        }


def short_version(text: str) -> str:
    """The version as the setting server_version has it: without the product's name and the compiler."""
    return text.removeprefix("PostgreSQL ").split(" on ")[0]


def tables_with_rows(directory: Path) -> set[str]:
    """Stored tables of which the folder has at least one whole segment."""
    tables = (table.name for table in all_tables().values() if table.kind == "table")
    return {name for name in tables if next((directory / name).glob("*.parquet"), None) is not None}


def write_views(directory: Path, present: set[str]) -> None:
    """views.sql: the tables that have rows and every view over them, for any DuckDB started inside the folder."""
    lines = [
        "-- Run inside this folder: duckdb -init views.sql",
        "create or replace view capture as select (m.clock->>'ts_from')::bigint as ts_from, (m.clock->>'ts_to')::bigint as ts_to,",
        "  ((m.clock->>'ts_to')::bigint - (m.clock->>'ts_from')::bigint) / 1e9 as window_s,",
        "  (m.clock->>'wall_offset_ns')::bigint as wall_offset_ns, m.tier, m.rate_hz::double as rate_hz,",
        "  (m.target->>'server_version_num')::int as server_version_num, (m.target->>'cpu_count')::int as cpu_count",
        "  from (select json->'clock' as clock, json->>'tier' as tier, json->>'rate_hz' as rate_hz, json->'target' as target",
        "        from (select content::json as json from read_text('manifest.json'))) m;",
    ]
    lines += [_table_view(table, table.name in present) for table in all_tables().values() if table.kind == "table"]
    done = {table.name for table in all_tables().values() if table.kind == "table"} | {"capture"}
    views = [table for table in all_tables().values() if table.kind == "view" and table.name != "capture"]
    while views:
        ready = [view for view in views if set(view.needs) | set(view.uses) <= done]
        if not ready:
            raise AssertionError(f"views read each other in a circle: {[view.name for view in views]}")
        lines += [f"create or replace view {view.name} as {view.sql.strip()};" for view in ready]
        done |= {view.name for view in ready}
        views = [view for view in views if view.name not in done]
    try:
        (directory / "views.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as e:
        raise cannot_be_written("views.sql", e, directory) from e


def _table_view(table: Table, has_rows: bool) -> str:
    if has_rows:
        return f"create or replace view {table.name} as select * from read_parquet('{table.name}/*.parquet', union_by_name = true);"
    columns = ", ".join(f'cast(null as {DUCKDB_TYPES[c.type]}) as "{c.name}"' for c in table.columns)
    return f"create or replace view {table.name} as select {columns} where false;"
