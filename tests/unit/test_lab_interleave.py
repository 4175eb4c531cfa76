"""Experiments: trials are run in the drawn order, one at a time, and compared pair by pair; what they ran on is recorded."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from leadline.lab import interleave
from leadline.lab.interleave import Trial
from leadline.lab.machine import machine_cpu, read_environment, steal_share
from leadline.lab.paired import trial_order
from leadline.lab.record import new_directory


def test_trials_are_run_in_the_order_that_was_drawn() -> None:
    ran: list[bool] = []

    def bare() -> float:
        ran.append(False)
        return 100.0

    def variant() -> float:
        ran.append(True)
        return 90.0

    trials = list(interleave.trials(bare, variant, 6, random.Random(1)))
    assert ran == trial_order(6, random.Random(1)) == [trial.on for trial in trials]
    assert [trial.pair for trial in trials] == [n // 2 for n in range(12)]
    found = interleave.compare(trials, lambda value: value)
    assert (found.bare, found.variant, found.ratio.estimate, found.ratio.pairs) == (100.0, 90.0, pytest.approx(0.9), 6)


def test_a_trial_runs_only_when_the_one_before_was_taken() -> None:
    ran: list[int] = []
    trials = interleave.trials(lambda: ran.append(0), lambda: ran.append(1), 3, random.Random(1))
    assert ran == []
    next(trials)
    assert len(ran) == 1


def test_a_trial_that_fails_ends_the_experiment() -> None:
    def broken() -> float:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        list(interleave.trials(lambda: 1.0, broken, 2, random.Random(1)))


def test_a_machine_that_drifts_leaves_the_comparison_alone() -> None:
    speeds = [1.0, 1.1, 2.0, 2.2, 0.5, 0.55, 3.0, 3.3, 0.7, 0.77, 5.0, 5.5]
    trials = [Trial(n, on=n % 2 == 1, result={"tps": speed}) for n, speed in enumerate(speeds)]
    found = interleave.compare(list(reversed(trials)), lambda result: result["tps"])  # in whatever order they come
    assert (found.ratio.low, found.ratio.high) == (pytest.approx(1.1), pytest.approx(1.1))


@pytest.mark.parametrize("results", [[0.0, 1.0], [1.0]])
def test_what_has_no_ratio_is_refused(results: list[float]) -> None:
    with pytest.raises(ValueError):
        interleave.compare([Trial(n, on=n == 1, result=r) for n, r in enumerate(results)], lambda r: r)


def test_each_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    first, second = new_directory(tmp_path / "runs"), new_directory(tmp_path / "runs")
    assert first.is_dir() and second.is_dir() and first.name[:-1] == second.name[:-1] and second.name.endswith("-2")


def test_the_record_says_what_was_measured(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        return subprocess.run(["git", "-C", tmp_path, *who, *arguments], capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = read_environment(tmp_path, ["code"])
    assert (clean["commit"], clean["uncommitted"]) == (git("rev-parse", "HEAD"), [])
    assert clean["cpus"] == os.cpu_count() and clean["memory_bytes"] > 2**20 and len(clean["core_sha256"]) == 64
    (tmp_path / "code" / "a.py").write_text("2")
    (tmp_path / "beside.txt").write_text("not measured")
    assert read_environment(tmp_path, ["code"])["uncommitted"] == ["code/a.py"]
    assert read_environment()["commit"] is None


def test_the_share_that_a_hypervisor_took() -> None:
    assert steal_share((1000, 10), (2000, 60)) == 0.05
    assert 0 <= steal_share(machine_cpu()) <= 1
