"""What was read of an output, and the capture that it becomes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import Clock, ProbeState, Target
from leadline.capture.reader import memory_database
from leadline.errors import LeadlineError
from leadline.load.imported import write_table
from leadline.tables import all_tables, duckdb_type
from leadline.whole import read_whole

LONGEST = 256 << 20  # bytes of an output
BEGIN_NS = 1_000_000_000  # outputs without dates begin one second after 1970


@dataclass
class Report:
    """tool: with its version. Times are ns; begun: as the output has it, or BEGIN_NS. reported, seconds, buckets, statements, errors:
    rows of the tables load_*, by name of the column; what a tool does not tell is left out."""

    tool: str
    begun: int = BEGIN_NS
    ended: int = BEGIN_NS
    reported: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[dict[str, Any]] = field(default_factory=list)
    buckets: list[dict[str, Any]] = field(default_factory=list)
    statements: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines_not_read: int = 0

    def figure(self, ts: int, part: str, name: str, text: str, file: Path, value: float | None = None) -> None:
        self.reported.append({"ts": ts, "part": part, "name": name, "text": text, "value": value, "file": file.name})

    def second(self, ts: int, seconds: float, done: float, failed: float = 0.0, **more: Any) -> None:
        """Of a stretch of time that ends at ts; the counts are rounded."""
        counts = {"due": done + failed, "begun": done + failed, "done": done, "ended": done, "failed": failed}
        head = {"ts": ts, "duration_ns": round(seconds * 1e9), "phase": 0, "warm_up": False, "after_the_end": False}
        self.seconds.append(head | {name: round(n) for name, n in counts.items()} | {"skipped": 0, "retries": 0} | more)


def text_of(file: Path) -> str:
    """Raises LeadlineError."""
    try:
        return read_whole(file, LONGEST).decode("utf-8", "replace")
    except OSError as e:
        raise LeadlineError("not_found", "the output cannot be read", detail=e.strerror or str(e), where=str(file)) from e


def write(report: Report, files: Sequence[Path], output: Path, *, overwrite: bool) -> dict[str, Any]:
    """The capture; gives a summary. Raises LeadlineError."""
    tables = {
        "load_reported": report.reported, "load_second": report.seconds, "load_bucket": report.buckets,
        "load_statement": report.statements, "load_error": report.errors,
    }  # fmt: skip
    db = memory_database()
    try:
        with new_capture(output, overwrite=overwrite) as directory, tempfile.TemporaryDirectory() as scratch:
            making = Making(directory, Target("load", f"import of {report.tool}"), {"files": [str(file) for file in files]})
            with making.from_files() as manifest:
                manifest.clock = Clock(report.begun, report.ended, 0)
                loss = {"lines": report.lines_not_read}
                manifest.probes["load"] = ProbeState(tier="files", loss=loss, detail={"tool": report.tool, "mode": "imported"})
                manifest.notes += [f"imported from {report.tool}: load_reported has each figure as it was printed", *report.notes]
                for name, rows in tables.items():
                    columns = all_tables()[name].columns
                    path = Path(scratch) / f"{name}.json"
                    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
                    types = ", ".join(f"{column.name}: '{duckdb_type(column.type)}'" for column in columns if column.type != "binary")
                    source = f"read_json('{path}', format = 'newline_delimited', columns = {{{types}}})"
                    manifest.tables[name] = write_table(db, directory, name, f"from {source}")
        done = sum(row["done"] for row in report.seconds)
        return {"capture": str(directory), "tool": report.tool, "transactions": done, "figures": len(report.reported),
                "lines_not_read": report.lines_not_read, "seconds": (report.ended - report.begun) / 1e9, "notes": report.notes}  # fmt: skip
    finally:
        db.close()


def number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None
