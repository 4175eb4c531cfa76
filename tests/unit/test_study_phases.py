"""Latencies of a load by what the checkpointer did meanwhile, on captures whose phases and times are planted."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import open_capture
from leadline.study.phases import Phase, by_phase, summed, table

MS = 10**6


def server(folder: Path, *, with_checkpointer: bool = True) -> SyntheticCapture:
    """10 s: a checkpoint writes from 3.2 s to 6.1 s, of which it runs half a second, and syncs up to 6.3 s."""
    cap = SyntheticCapture(folder, seconds=10)
    if with_checkpointer:
        checkpointer = cap.add_session(backend_type="checkpointer")
        cap.sample(checkpointer, None, "Activity:CheckpointerMain", 0, 10)
        cap.sample(checkpointer, None, "Timeout:CheckpointWriteDelay", 3.2, 5.6)
        cap.sample(checkpointer, None, None, 5.6, 6.1)
        cap.sample(checkpointer, None, "IO:DataFileSync", 6.1, 6.3)
    cap.sample(cap.add_session(), "active", "IO:DataFileSync", 0, 2)  # of a client: no checkpoint
    return cap


def load(folder: Path, times: dict[int, dict[float, int]]) -> SyntheticCapture:
    """Its first second is the warm-up. times: of the transactions of each other second, by their end: ms, and how many."""
    cap = SyntheticCapture(folder, seconds=10)
    for second in range(1, 11):
        phase = int(second > 1)
        cap.add("load_second", ts=cap.ts(second), duration_ns=10**9, phase=phase, warm_up=second == 1, done=1)
        for ms, count in times.get(second, {1.0: 1000}).items():
            times_ns = {"low_ns": int(ms * MS) - 1, "high_ns": int(ms * MS)}
            cap.add("load_bucket", ts=cap.ts(second), phase=phase, kind="latency", count=count, **times_ns)
            cap.add("load_bucket", ts=cap.ts(second), phase=phase, kind="service", low_ns=0, high_ns=1, count=count)
    return cap


def phases(tmp_path: Path, times: dict[int, dict[float, int]], *, with_checkpointer: bool = True) -> dict[str, Phase]:
    of_server = open_capture(server(tmp_path / "server", with_checkpointer=with_checkpointer).write(), hold=True)
    of_load = open_capture(load(tmp_path / "load", times).write(), hold=True)
    try:
        return by_phase(of_server, of_load)
    finally:
        of_server.close()
        of_load.close()


def test_phases_are_those_of_the_waits_of_the_checkpointer(tmp_path: Path) -> None:
    with server(tmp_path).open() as capture:
        rows = capture.rows("select phase, seconds, ts - ts_from as ns from checkpoint_phase order by ts")
    assert [row["phase"] for row in rows] == ["none", "write", "sync", "none"]
    assert [row["seconds"] for row in rows] == pytest.approx([3.2, 2.9, 0.2, 3.7])
    assert [row["ns"] / 1e9 for row in rows] == pytest.approx([3.2, 2.9, 0.2, 3.7], abs=0.011)


def test_each_second_counts_where_its_checkpoint_was_furthest(tmp_path: Path) -> None:
    found = phases(tmp_path, {1: {900.0: 5000}, 5: {4.0: 1000}, 7: {10.0: 998, 100.0: 2}})
    assert {name: phase.seconds for name, phase in found.items()} == {"none": 5.0, "write": 3.0, "sync": 1.0}
    assert {name: phase.transactions for name, phase in found.items()} == {"none": 5000, "write": 3000, "sync": 1000}
    assert found["none"].quantile_ms(0.999) == pytest.approx(1.0, rel=0.011)
    assert [found["write"].quantile_ms(share) for share in (0.5, 0.99)] == pytest.approx([1.0, 4.0], rel=0.011)
    assert [found["sync"].quantile_ms(share) for share in (0.99, 0.999)] == pytest.approx([10.0, 100.0], rel=0.011)


def test_a_share_that_leaves_no_transaction_above_is_not_known() -> None:
    assert Phase(1.0, {"1389": 500}).quantile_ms(0.999) is None
    assert Phase(1.0, {"1389": 500}).quantile_ms(0.99) == pytest.approx(1.0, rel=0.011)


def test_without_a_checkpointer_nothing_is_said(tmp_path: Path) -> None:
    assert phases(tmp_path, {}, with_checkpointer=False) == {}


def test_trials_are_added_up_and_stand_beside_each_other() -> None:
    one = summed([{"none": Phase(2.0, {"1389": 1000})}, {"none": Phase(3.0, {"1389": 1000})}])
    other = summed([{"sync": Phase(1.0, {"1389": 10, "1620": 1000})}, {"none": Phase(4.0, {"1389": 50})}])
    assert one["none"].seconds == 5.0 and one["none"].counts == {"1389": 2000}
    [moved] = table(one, other)
    assert [row[:3] for row in moved.grid.rows] == [("no checkpoint", 5.0, 4.0), ("a checkpoint syncs", 0.0, 1.0)]
    row = moved.grid.as_dicts()[1]
    assert row["one_p99_ms"] is None and row["other_p99_ms"] == pytest.approx(1.01**1620 / MS)
    assert list(table(one, one)) == [], "no checkpoint in either"
