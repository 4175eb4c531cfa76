"""The bench: its scripts find what they use, and measure an installed leadline."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.parametrize("script", ["active_time", "alter", "auth_cost", "overhead", "page_files", "rows", "wal"])
def test_each_bench_starts(script: str) -> None:
    done = subprocess.run([sys.executable, BENCH / f"{script}.py", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {script}.py")


def test_what_is_measured_keeps_what_python_compiled_from_when_a_bench_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.syspath_prepend(str(BENCH))
    import record

    assert os.environ["PYTHONDONTWRITEBYTECODE"] == "1"
    record.start_as_installed()
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
