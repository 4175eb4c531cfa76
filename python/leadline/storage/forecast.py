"""What layouts would do: each load on each layout, once for each seed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from leadline._core import storage as core
from leadline.errors import LeadlineError
from leadline.lab.signed_rank import median_interval
from leadline.storage.files import EXAMPLES, File
from leadline.storage.trace import Trace
from leadline.version import version
from leadline.whole import read_whole

FORMAT = 1
LARGEST = 64 << 20  # bytes of a forecast
BUSY = 0.9  # a drive that is at work so much of the time is the limit
# Figures of a run that are summed up over the seeds.
FIGURES = (
    "requests_per_s", "reads_per_s", "writes_per_s", "commits_per_s", "transactions_per_s", "rows_per_s", "mb_per_s", "seconds",
)  # fmt: skip
Tell = Callable[[int, int, str], None]  # done, of how many, what is next


def layouts_of(paths: Sequence[Path]) -> dict[str, File]:
    """Layouts by name. Raises LeadlineError."""
    found: dict[str, File] = {}
    for path in paths:
        file = File.read(path)
        name = core.layout(*file.pair)
        if name in found:
            raise LeadlineError("invalid", f"two layouts are called {name}", where=str(path))
        found[name] = file
    return found


def simulate(
    layouts: dict[str, File], loads: File, *, seeds: int, seed: int, for_s: float, warm_up_s: float, tell: Tell
) -> list[dict[str, Any]]:
    """A row for each load and layout. Raises LeadlineError, and KeyboardInterrupt."""
    rows: list[dict[str, Any]] = []
    names = core.loads(*loads.pair)
    for number, load in enumerate(names):
        for name, file in layouts.items():
            tell(len(rows), len(names) * len(layouts), f"{load} on {name}")
            runs = [
                _whole(core.simulate(file.pair, loads.pair, number, seed=seed + n, for_s=for_s, warm_up_s=warm_up_s)) for n in range(seeds)
            ]  # fmt: skip
            rows.append({"layout": name, "load": load} | summed(runs))
    return rows


def replay(layouts: dict[str, File], trace: Trace, *, closed: bool, tell: Tell) -> list[dict[str, Any]]:
    """A row for each layout: nothing in it is by chance. Raises LeadlineError, and KeyboardInterrupt."""
    rows: list[dict[str, Any]] = []
    for name, file in layouts.items():
        tell(len(rows), len(layouts), f"the trace on {name}")
        run = _whole(core.replay(file.pair, trace.rows, closed=closed))
        rows.append({"layout": name, "load": "trace"} | summed([run]) | {"beyond_lun": run["beyond_lun"]})
    return rows


def _whole(outcome: tuple[str, bool]) -> dict[str, Any]:
    text, interrupted = outcome
    if interrupted:
        raise KeyboardInterrupt
    found: dict[str, Any] = json.loads(text)
    return found


def summed(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure over the seeds, and where it lies."""
    row: dict[str, Any] = {name: median(run[name] for run in runs) for name in FIGURES}
    row["interval"] = {name: list(median_interval([run[name] for run in runs])) for name in FIGURES}
    row["latency_ms"] = {
        kind: None
        if of is None
        else {name: median(run["latency_ms"][kind][name] for run in runs if run["latency_ms"][kind]) for name in of}
        for kind, of in runs[0]["latency_ms"].items()
    }
    row["drives"] = [_drive([run["drives"][n] for run in runs]) for n in range(len(runs[0]["drives"]))]
    row["limit"] = limit(row["drives"])
    row["events"] = sum(run["events"] for run in runs)
    row["under_way"] = max(run["under_way"] for run in runs)
    return row


def _drive(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, str) or name == "drive" else median(run[name] for run in runs) for name, value in runs[0].items()
    }


def limit(drives: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The busiest drive, and whether it is what holds the load back."""
    busiest = max(drives, key=lambda drive: drive["utilisation"])
    at_limit = [drive for drive in drives if drive["utilisation"] >= BUSY]
    return {
        "is_limit": bool(at_limit),
        "group": busiest["group"],
        "drive": busiest["drive"],
        "utilisation": busiest["utilisation"],
        "drives_at_limit": len(at_limit),
    }


def forecast(
    layouts: dict[str, File], rows: list[dict[str, Any]], *, options: dict[str, Any], loads: File | None, trace: Trace | None, run: str
) -> dict[str, Any]:  # fmt: skip
    """All that a forecast is: what was asked, and what came of it. run: the run of the logbook that made it, or nothing."""
    return {
        "kind": "storage forecast",
        "format_version": FORMAT,
        "product_version": version(),
        "made_us": time.time_ns() // 1000,
        "run": run,
        "options": options,
        "layouts": [{"name": name, "file": Path(file.name).name, "text": file.text} for name, file in layouts.items()],
        "loads": None if loads is None else {"file": Path(loads.name).name, "text": loads.text},
        "trace": None if trace is None else trace.about(),
        "results": rows,
    }


def read(path: Path) -> tuple[dict[str, Any], str]:
    """A forecast that was written, and the hash of its file. Raises LeadlineError."""
    wrong = LeadlineError(
        "invalid", "this is no forecast", hint="leadline storage simulate LAYOUT.toml --load LOADS.toml -o FORECAST", where=str(path)
    )
    data = read_whole(path, LARGEST, EXAMPLES)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(found, dict) or found.get("kind") != "storage forecast":
        raise wrong
    if found.get("format_version") != FORMAT:
        raise LeadlineError(
            "unsupported", f"the forecast has format {found.get('format_version')}", detail=f"known is {FORMAT}", where=str(path)
        )
    rows = found.get("results")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("layout"), str) for row in rows):
        raise wrong
    return found, hashlib.sha256(data).hexdigest()
