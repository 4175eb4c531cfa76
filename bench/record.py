"""The record of a run: runs/DATE-N/ with what was measured on, every leg and slice, the results, and a page for people."""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from laboratory import Results
from leadline.cli import version

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
    """The machine and the build, before anything is started."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "load_average_before": list(os.getloadavg()),
        "cpu": model[1] if model else platform.processor(),
        "cpus": os.cpu_count(),
        "memory_bytes": int(memory[1]) * 1024 if memory else None,
        "hypervisor": "hypervisor" in cpuinfo,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted": [line[3:] for line in (_git("status", "--porcelain", "--", *MEASURED) or "").splitlines()],
        "leadline": version(),
        "core_sha256": _core_digest(),
        "python": platform.python_version(),
        "psycopg": psycopg.__version__,
        "libpq": psycopg.pq.version(),
        "user_is_root": os.geteuid() == 0,
    }


def new_folder(runs: Path) -> Path:
    """runs/DATE-N with the next free N, made."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    number = 1
    while True:
        folder = runs / f"{date}-{number}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


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


def _git(*arguments: str) -> str | None:
    if shutil.which("git") is None:
        return None
    answer = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return answer.stdout.rstrip("\n") if answer.returncode == 0 else None


def _core_digest() -> str:
    """Which build of the extension was measured."""
    from leadline import _core

    return hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()
