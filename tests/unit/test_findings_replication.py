"""REPLAY-PAUSED and STANDBY-BEHIND: a clean capture gives no row, a planted one exactly one, by hand computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture, rows

MB = 1 << 20


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """60 s. A primary makes 2 MB of WAL a second."""
    made = SyntheticCapture(tmp_path, rate_hz=10)
    for n in range(61):
        made.add("replication_position", ts=made.ts(n), node=1, answer_ns=1000, in_recovery=False, flush_lsn=(100 + 2 * n) * MB)
    for node, name in ((1, "db1:5432"), (2, "db2:5432")):
        made.add("replication_node", node=node, name=name, system_identifier="1")
    return made


def standby(cap: SyntheticCapture, replayed: Any, received: Any = None, paused: Any = lambda at: False) -> None:
    """Read each second; replayed, received: MB of the WAL at a second."""
    for n in range(61):
        got = (received or (lambda at: 100 + 2 * at))(n)
        lsns = {"replay_lsn": round(replayed(n) * MB)} | {f"{name}_lsn": round(got * MB) for name in ("flush", "write", "upstream")}
        cap.add("replication_position", ts=cap.ts(n), node=2, answer_ns=1000, in_recovery=True, is_paused=paused(n), **lsns)


def test_a_standby_that_replays_less_than_is_made(cap: SyntheticCapture) -> None:
    standby(cap, lambda at: 100 + at)
    [found] = rows(cap, "STANDBY-BEHIND", "REPLAY-PAUSED")
    assert (found.id, found.subject, found.severity, found.cost_s) == ("STANDBY-BEHIND", "standby db2:5432", "medium", None)
    assert found.statement == (
        "Standby db2:5432 was 30.0 s behind at the end, 0.5 s more for each second: 2.00 MB/s of WAL were made and 1.00 MB/s replayed; "
        "most of the 60.0 MB that wait are on its disk and not replayed"
    )
    assert "One process replays all WAL" in found.action and "pg_test_fsync" not in found.action


def test_a_standby_that_receives_less_than_is_made(cap: SyntheticCapture) -> None:
    standby(cap, lambda at: 100 + at, lambda at: 100 + at)
    [found] = rows(cap, "STANDBY-BEHIND")
    assert "that wait are not received" in found.statement and "The way to the standby is too slow" in found.action


@pytest.mark.parametrize(
    "replayed",
    [
        pytest.param(lambda at: 100 + 2 * at, id="it keeps up"),
        pytest.param(lambda at: max(100, 100 + 2 * (at - 6)), id="late by the same time"),
        pytest.param(lambda at: min(60 + 3 * at, 100 + 2 * at), id="it catches up"),
        pytest.param(lambda at: 100 + 2 * at - at % 4, id="in steps"),
    ],
)
def test_standbys_that_do_not_fall_behind(cap: SyntheticCapture, replayed: Any) -> None:
    standby(cap, replayed)
    assert rows(cap, "STANDBY-BEHIND", "REPLAY-PAUSED") == []


@pytest.mark.parametrize("until", [40, 61])
def test_replay_that_is_paused(cap: SyntheticCapture, until: int) -> None:
    """From 20 s on, until 40 s or the end. Afterwards it has all at once."""
    standby(cap, lambda at: 140 if 20 <= at < until else 100 + 2 * at, paused=lambda at: 20 <= at < until)
    [found] = rows(cap, "STANDBY-BEHIND", "REPLAY-PAUSED")
    assert (found.id, found.subject) == ("REPLAY-PAUSED", "standby db2:5432")
    assert found.severity == "low"
    seconds, waited = (20, 38) if until == 40 else (41, 80)
    assert found.statement.startswith(f"Replay was paused for {seconds}.0 s of 60.0 s on standby db2:5432")
    assert f"up to {waited}.0 MB of WAL waited" in found.statement
    assert ("pg_wal_replay_resume" in found.action) == (until == 61) == ("resume shuts the standby down" in found.action)


def test_a_last_reading_that_comes_late_adds_no_time(cap: SyntheticCapture) -> None:
    """A busy host: the standby is read for the last time when the window has been over for 3 s."""
    standby(cap, lambda at: 140 if at >= 20 else 100 + 2 * at, paused=lambda at: at >= 20)
    cap.add("replication_position", ts=cap.ts(63), node=1, answer_ns=1000, in_recovery=False, flush_lsn=220 * MB)
    lsns = {"replay_lsn": 140 * MB} | dict.fromkeys(("flush_lsn", "write_lsn", "upstream_lsn"), 220 * MB)
    cap.add("replication_position", ts=cap.ts(63), node=2, answer_ns=1000, in_recovery=True, is_paused=True, **lsns)
    [found] = rows(cap, "REPLAY-PAUSED")
    assert found.statement.startswith("Replay was paused for 41.0 s of 60.0 s on standby db2:5432, also at the end")


def shown(cap: SyntheticCapture, replay_lag_s: Any) -> None:
    """What the primary's view says each second; None for nothing."""
    for n in range(61):
        lag = replay_lag_s(n)
        lags = {} if lag is None else {"replay_lag": round(lag * 1e6)}
        cap.add("walsender", ts=cap.ts(n + 0.5), node=1, pid=77, application_name="west", state="streaming", replay_lsn=100 * MB, **lags)


@pytest.mark.parametrize(
    "view, says",
    [pytest.param(lambda at: 0.01, "0.01 s", id="it stands still"), pytest.param(lambda at: None, "nothing", id="it is empty")],
)
def test_a_lag_that_the_view_does_not_show(cap: SyntheticCapture, view: Any, says: str) -> None:
    """Replay stands still from 20 s on, and is 2 s behind or more from 22 s on: the readings from 22.5 s to 59.5 s stand for 38 s."""
    standby(cap, lambda at: 100 + 2 * min(at, 20))
    shown(cap, view)
    [found] = rows(cap, "LAG-BLIND")
    assert (found.severity, found.cost_s, found.subject) == ("low", None, "standby db2:5432")
    assert found.statement == (
        "For 38.0 s of 60.0 s pg_stat_replication of the primary was wrong about standby db2:5432: "
        f"it showed {says} as replay_lag when the standby was 40.0 s behind"
    )
    assert "Alarm on bytes" in found.action


def test_a_view_that_shows_too_much(cap: SyntheticCapture) -> None:
    standby(cap, lambda at: 100 + 2 * at)
    shown(cap, lambda at: 9 if 10 <= at < 20 else 0)
    [found] = rows(cap, "LAG-BLIND")
    assert found.statement.startswith("For 10.0 s of 60.0 s")
    assert "it showed 9.00 s as replay_lag when the standby was 0.0 s behind" in found.statement


@pytest.mark.parametrize(
    "replayed, view",
    [
        pytest.param(lambda at: 100 + 2 * at, lambda at: 0.01, id="it keeps up"),
        pytest.param(lambda at: 100 + 2 * min(at, 20), lambda at: max(at - 20, 0.0), id="the view is right"),
        pytest.param(lambda at: 100 + 2 * at, lambda at: None, id="nothing to show"),
        pytest.param(lambda at: 100 + 2 * (at - at % 2), lambda at: 0.5, id="behind for a moment"),
    ],
)
def test_views_that_are_right(cap: SyntheticCapture, replayed: Any, view: Any) -> None:
    standby(cap, replayed)
    shown(cap, view)
    assert rows(cap, "LAG-BLIND") == []


def test_nobody_knows_which_of_two_walsenders_serves_the_standby(cap: SyntheticCapture) -> None:
    standby(cap, lambda at: 100 + 2 * min(at, 20))
    shown(cap, lambda at: 0.01)
    cap.add("walsender", ts=cap.ts(1), node=1, pid=78, application_name="east", state="streaming", replay_lsn=100 * MB)
    assert rows(cap, "LAG-BLIND") == []


def replaying(cap: SyntheticCapture, waits: Any) -> None:
    """Memory is read ten times a second: a record is applied all the time; waits: a wait code at a second."""
    cap.add("wait_event", wait_event_info=7, wait_event_type="IO", wait_event="DataFileRead")
    cap.add("replay_record", node=2, end_lsn=5, start_lsn=1, rmgr="Btree", record_type="INSERT_LEAF")
    for n in range(601):
        at = n / 10
        lsns = {"replay_lsn": round((100 + at) * MB), "flush_lsn": round((100 + 2 * at) * MB), "upstream_lsn": round((100 + 2 * at) * MB)}
        memory = {"tier": "shm", "record_lsn": 5, "startup_wait": waits(at)}
        cap.add("replication_position", ts=cap.ts(at), node=2, in_recovery=True, is_paused=False, **memory, **lsns)


def test_replay_that_needs_a_whole_cpu(cap: SyntheticCapture) -> None:
    replaying(cap, lambda at: 0)
    [found] = rows(cap, "REPLAY-SATURATED")
    assert (found.severity, found.subject) == ("medium", "standby db2:5432")
    assert found.evidence[0]["share"] == 1 and found.evidence[0]["lag_s"] == pytest.approx(30, abs=0.2)
    assert "2.00 MB/s were made and 1.00 MB/s replayed; most of its time took Btree INSERT_LEAF (100 %)" in found.statement
    assert "drop indexes that nobody uses, and leave room" in found.action


def test_replay_that_waits_for_the_disk_is_not_saturated(cap: SyntheticCapture) -> None:
    replaying(cap, lambda at: 7 if at % 1 < 0.25 else 0)
    assert rows(cap, "REPLAY-SATURATED") == []


def test_replay_that_keeps_up_is_not_saturated(cap: SyntheticCapture) -> None:
    for n in range(601):
        at = n / 10
        lsn = round((100 + 2 * at) * MB)
        memory = {"tier": "shm", "replay_lsn": lsn - 100, "flush_lsn": lsn, "record_lsn": 5, "startup_wait": 0}
        cap.add("replication_position", ts=cap.ts(at), node=2, in_recovery=True, **memory)
    assert rows(cap, "REPLAY-SATURATED") == []
