"""Evaluates the findings of the last minutes of a recorder, in a process of its own at the lowest priority.

    python -m leadline.recorder.watcher DIR SECONDS PIECE...       prints what it found and what that cost, as JSON

PIECE: those that may have the window, the last of them the one that is being written. The window is written beside them as an ordinary
capture, evaluated and removed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from leadline.capture.manifest import MANIFEST
from leadline.capture.reader import limit_databases, open_capture
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.recorder.child import report
from leadline.recorder.pieces import read_piece
from leadline.recorder.state import WATCHED
from leadline.recorder.window import take_window

MEMORY = "200MB"
READS = 10
SAMPLES = 200_000  # of more, some passes stand for the rest: a tenth of them is then known to 0.1 %
KEPT = ("id", "severity", "subject", "statement", "cost_s")


def look(directory: Path, seconds: float, names: Sequence[str]) -> dict[str, Any]:
    """Raises LeadlineError."""
    work = directory / WATCHED
    shutil.rmtree(work, ignore_errors=True)  # of one that was killed
    work.mkdir()
    try:
        limit_databases(MEMORY, 1)
        _stand_still(directory, names, work)
        end = datetime.now(UTC)
        try:
            path = take_window(work, end - timedelta(seconds=seconds), end, work / "window", only=names)
        except LeadlineError as e:
            if e.kind == "not_found":
                return {"window_s": 0.0, "findings": []}
            if e.kind != "unsupported":
                raise
            # The server was upgraded or sampled in another way meanwhile: what the newest piece has is evaluated.
            start = datetime.fromtimestamp(read_piece(work / names[-1]).wall_from / 1e9, UTC)
            path = take_window(work, start, end, work / "window", only=names[-1:])
        with closing(open_capture(path, hold=True, most_samples=SAMPLES)) as capture:
            result = evaluate(capture)
            window_s = capture.manifest.clock.window_s or 0.0
        found = [{name: value for name, value in finding.as_dict().items() if name in KEPT} for finding in result.findings]
        return {"window_s": round(window_s, 3), "findings": found}
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _stand_still(directory: Path, names: Sequence[str], work: Path) -> None:
    """The pieces in `work` as they are now: the last segment of a table grows, and DuckDB reads a file more than once."""
    for name in names[:-1]:
        (work / name).symlink_to((directory / name).absolute())
    piece, still = directory / names[-1], work / names[-1]
    still.mkdir()
    shutil.copy(piece / MANIFEST, still / MANIFEST)
    for table in {segment.parent for segment in piece.glob("*/*.parquet")}:
        (still / table.name).mkdir()
        *whole, growing = sorted(table.glob("*.parquet"))
        for segment in whole:
            (still / table.name / segment.name).hardlink_to(segment)
        (still / table.name / growing.name).write_bytes(_read(growing))


def _read(segment: Path) -> bytes:
    """What has this name at one moment. The file that loses the name when the segment grows is written anew for the next growth."""
    for _ in range(READS):
        with segment.open("rb") as file:
            before, content, after = os.fstat(file.fileno()), file.read(), os.fstat(file.fileno())
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, len(content)):
            return content
    raise LeadlineError("storage", "a segment of the running piece grew whenever it was read", where=str(segment))


def main(directory: Path, seconds: float, names: Sequence[str]) -> int:
    return report(lambda: look(directory, seconds, names), "the window")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
