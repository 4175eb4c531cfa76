"""Evaluates the findings of the last minutes of a recorder, in a process of its own at the lowest priority.

    python -m leadline.recorder.watcher DIR SECONDS PIECE...       prints what it found and what that cost, as JSON

PIECE: those that may have the window, the last of them the one that is being written. The window is written beside them as an ordinary
capture, evaluated and removed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from leadline.capture.reader import limit_databases, open_capture
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.recorder.child import report
from leadline.recorder.pieces import read_piece
from leadline.recorder.state import WATCHED
from leadline.recorder.window import take_window

MEMORY = "200MB"
SAMPLES = 200_000  # of more, some passes stand for the rest: a tenth of them is then known to 0.1 %
KEPT = ("id", "severity", "subject", "statement", "cost_s")


def look(directory: Path, seconds: float, names: Sequence[str]) -> dict[str, Any]:
    """Raises LeadlineError."""
    work = directory / WATCHED
    shutil.rmtree(work, ignore_errors=True)  # of one that was killed
    work.mkdir()
    try:
        limit_databases(MEMORY, 1)
        end = datetime.now(UTC)
        try:
            path = take_window(directory, end - timedelta(seconds=seconds), end, work / "window", only=names)
        except LeadlineError as e:
            if e.kind == "not_found":
                return {"window_s": 0.0, "findings": []}
            if e.kind != "unsupported":
                raise
            # The server was upgraded or sampled in another way meanwhile: what the newest piece has is evaluated.
            start = datetime.fromtimestamp(read_piece(directory / names[-1]).wall_from / 1e9, UTC)
            path = take_window(directory, start, end, work / "window", only=names[-1:])
        with closing(open_capture(path, hold=True, most_samples=SAMPLES)) as capture:
            result = evaluate(capture)
            window_s = capture.manifest.clock.window_s or 0.0
        found = [{name: value for name, value in finding.as_dict().items() if name in KEPT} for finding in result.findings]
        return {"window_s": round(window_s, 3), "findings": found}
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main(directory: Path, seconds: float, names: Sequence[str]) -> int:
    return report(lambda: look(directory, seconds, names), "the window")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
