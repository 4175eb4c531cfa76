"""The bench: its scripts find what they use, and measure an installed leadline."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from leadline.lab.signed_rank import signed_rank_ratio

BENCH = Path(__file__).resolve().parents[2] / "bench"


SCRIPTS = ["active_time", "alter", "auth_cost", "cpu_split", "load_client", "overhead", "page_files", "rows", "wal"]
SCRIPTS += ["storage_arrays", "storage_client", "storage_speed", "truth"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_bench_starts(script: str) -> None:
    done = subprocess.run([sys.executable, BENCH / f"{script}.py", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {script}.py")


def test_the_ratios_of_throughput_that_are_quoted_follow_from_the_trials_by_signed_ranks() -> None:
    trials: dict[tuple[str, str, str], dict[str, float]] = {}
    root = BENCH.parent
    [folder] = set(re.findall(r"bench/runs/([0-9-]+)/README", (root / "README.md").read_text(encoding="utf-8")))
    with open(BENCH / "runs" / folder / "raw.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            trials.setdefault((row["variant"], row["workload"].partition("/")[0], row["pair"]), {})[row["on"]] = float(row["tps"])
    for page in (root / "README.md", BENCH / "README.md"):
        text = page.read_text(encoding="utf-8")
        for variant, said in {"leadline-100": "leadline, 100 Hz", "leadline-1000": "leadline, 1 kHz"}.items():
            quoted = re.findall(r"\d\.\d{3} \[[^]]*\]", next(line for line in text.splitlines() if line.startswith(f"| {said} |")))
            found = []
            for workload in ("select", "tpcb"):
                pairs = [(trial["0"], trial["1"]) for (of, load, _), trial in trials.items() if (of, load) == (variant, workload)]
                ratio = signed_rank_ratio(pairs)
                found.append(f"{ratio.estimate:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]")
            assert quoted == found, page


def test_what_is_measured_keeps_what_python_compiled_from_when_a_bench_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.syspath_prepend(str(BENCH))
    import record

    assert os.environ["PYTHONDONTWRITEBYTECODE"] == "1"
    record.start_as_installed()
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ


def test_the_page_on_statistics_has_the_tables_of_its_record() -> None:
    page = (BENCH.parent / "docs/concepts/statistics.md").read_text(encoding="utf-8")
    [folder] = re.findall(r"bench/runs/([0-9-]+)/README", page)
    record = BENCH / "runs" / folder / "truth.json"
    tables = subprocess.run([sys.executable, BENCH / "truth.py", "--page", record], capture_output=True, text=True, check=True).stdout
    assert tables.strip() in page
    kinds = json.loads(record.read_text(encoding="utf-8"))["result"]["kinds"]
    assert all(0.93 <= of["coverage"] <= 0.97 and of["alike_families_with_a_difference"] <= 0.05 for of in kinds.values())
