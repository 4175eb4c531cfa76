"""The CPU split: how long sessions ran and waited for a CPU, beside what the scheduler counts (views `session_queue` and `db_time`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture
from leadline.views import where


def seconds(cap: SyntheticCapture) -> tuple[dict[str, float], where.CpuSplit]:
    with cap.open() as capture:
        return {c.wait_class: c.seconds for c in where.by_class(capture)}, where.cpu_split(capture)


def test_a_session_woken_from_a_lock_and_not_on_a_cpu_yet_is_taken_from_the_lock(tmp_path: Path) -> None:
    """Of each second: 0.2 s on a CPU, 0.1 s preempted, 0.5 s woken from the lock and in the run queue, 0.2 s in the lock."""
    cap = SyntheticCapture(tmp_path, seconds=20)
    for _ in range(6):
        client = cap.add_session()
        cap.cycle(client, [("active", None, 3), ("active", "Lock:transactionid", 7)], 0, 20, state_age_s=0.005)
        cap.delta(client, 0, 20, cpu_run_ns=200_000_000, cpu_queue_ns=600_000_000)
    classes, cpu = seconds(cap)
    assert cpu.run_s == pytest.approx(6 * 20 * 0.2, rel=0.01)
    assert cpu.queue_s == pytest.approx(6 * 20 * 0.6, rel=0.01)
    assert classes == {"CPU": pytest.approx(6 * 20 * 0.8, rel=0.01), "Lock": pytest.approx(6 * 20 * 0.2, rel=0.01)}


def test_a_long_lock_wait_without_run_queue_stays_whole(tmp_path: Path) -> None:
    """Ten seconds in a lock, in which nobody woke the session; then ten in which it runs half of the time and queues in the other."""
    cap = SyntheticCapture(tmp_path, seconds=20)
    client = cap.add_session()
    cap.sample(client, "active", "Lock:relation", 0, 10)
    cap.sample(client, "active", None, 10, 20)
    cap.delta(client, 0, 10, cpu_run_ns=0, cpu_queue_ns=0)
    cap.delta(client, 10, 20, cpu_run_ns=500_000_000, cpu_queue_ns=500_000_000)
    classes, cpu = seconds(cap)
    assert classes == {"Lock": pytest.approx(10, abs=0.05), "CPU": pytest.approx(10, abs=0.05)}
    assert (cpu.run_s, cpu.queue_s) == (pytest.approx(5, abs=0.05), pytest.approx(5, abs=0.05))


def test_a_wait_for_a_lock_is_woken_once_however_long_it_was(tmp_path: Path) -> None:
    """Each second: 0.9 s in the lock of one statement, then idle; and 0.04 s in the run queue, for it is woken from both."""
    cap = SyntheticCapture(tmp_path, seconds=20)
    client = cap.add_session()
    for second in range(20):
        cap.sample(client, "active", "Lock:advisory", second, second + 0.9)
        cap.sample(client, "idle", "Client:ClientRead", second + 0.9, second + 1)
    cap.delta(client, 0, 20, cpu_run_ns=0, cpu_queue_ns=40_000_000)
    classes, _ = seconds(cap)
    assert classes == {"Lock": pytest.approx(20 * 0.88, rel=0.01), "CPU": pytest.approx(20 * 0.04, rel=0.01)}


def test_a_system_call_for_io_runs_inside_its_wait(tmp_path: Path) -> None:
    """A read from the page cache copies: the wait event stands while the process is on a CPU. The split of the rest is not that of all."""
    cap = SyntheticCapture(tmp_path, seconds=20)
    client = cap.add_session()
    cap.cycle(client, [("active", None, 5), ("active", "IO:DataFileRead", 5)], 0, 20)
    cap.delta(client, 0, 20, cpu_run_ns=750_000_000, cpu_queue_ns=250_000_000)
    classes, cpu = seconds(cap)
    assert (cpu.run_s, cpu.queue_s) == (pytest.approx(7.5, rel=0.01), pytest.approx(5, rel=0.01))
    assert classes == {"CPU": pytest.approx(12.5, rel=0.01), "IO": pytest.approx(7.5, rel=0.01)}
