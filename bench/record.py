"""The record of a run: runs/DATE-N/ with what was measured on, every leg and slice, the results, and a page for people."""

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
LEG_COLUMNS = ["workload", "variant", "pair", "leg", "on", "from_unix_s", "to_unix_s", "transactions", "tps"]
LEG_COLUMNS += ["steal_share", "tool_cpu_percent_of_core"]
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
        legs = csv.writer(out)
        legs.writerow(LEG_COLUMNS)
        for leg in results.legs:
            row = [leg.workload, leg.variant, leg.pair, leg.leg, int(leg.on), f"{leg.from_s:.3f}", f"{leg.to_s:.3f}"]
            row += [round(leg.transactions), f"{leg.tps:.1f}", f"{leg.steal_share:.4f}", f"{leg.tool_cpu_percent:.4f}"]
            legs.writerow(row)
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
