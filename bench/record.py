"""The record of a run: runs/DATE-N/ with what was measured on, every trial and slice, the results, and a page for people."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from laboratory import Results
from leadline.lab import machine

ROOT = Path(__file__).resolve().parent.parent
TRIAL_COLUMNS = ["workload", "variant", "pair", "leg", "on", "from_unix_s", "to_unix_s", "transactions", "tps"]
TRIAL_COLUMNS += ["steal_share", "tool_cpu_percent_of_core"]  # leg: as in earlier records
MEASURED = ("crates", "python", "Cargo.lock")


@dataclass
class Run:
    """Everything about a run that is not a result. reservations: why its figures are not to be quoted; empty when they are."""

    command: str
    started: str
    options: dict[str, Any]
    environment: dict[str, Any]
    reservations: list[str]


def start_as_installed() -> None:
    """What is measured is started from here on as an installed leadline is, of which Python keeps what it compiled."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def read_environment() -> dict[str, Any]:
    """The machine, the build and what speaks to the server, before anything is started."""
    return machine.read_environment(ROOT, MEASURED) | {"psycopg": psycopg.__version__, "libpq": psycopg.pq.version()}


def write(folder: Path, run: Run, results: Results, summary: dict[str, Any], page: str) -> None:
    with open(folder / "raw.csv", "w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(TRIAL_COLUMNS)
        for trial in results.trials:
            row = [trial.workload, trial.variant, trial.pair, trial.number, int(trial.on), f"{trial.from_s:.3f}", f"{trial.to_s:.3f}"]
            row += [round(trial.transactions), f"{trial.tps:.1f}", f"{trial.steal_share:.4f}", f"{trial.tool_cpu_percent:.4f}"]
            rows.writerow(row)
    with open(folder / "raw-cpu.csv", "w", newline="", encoding="utf-8") as out:
        slices = csv.writer(out)
        slices.writerow(["workload", "variant", "part", "from_monotonic_ns", "to_monotonic_ns", "cpu_percent_of_core"])
        for s in results.slices:
            for part, percent in s.cpu_percent.items():
                slices.writerow([s.workload, s.variant, part, s.from_ns, s.to_ns, f"{percent:.4f}"])
    with open(folder / "summary.json", "w", encoding="utf-8") as out:
        json.dump({"format_version": 1, **asdict(run), **summary}, out, indent=1)
        out.write("\n")
    (folder / "README.md").write_text(page, encoding="utf-8")
