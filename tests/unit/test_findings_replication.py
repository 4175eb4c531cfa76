"""Findings of replication: a clean capture gives no row, a planted one exactly one, by hand computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture, one, rows

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
    assert "that wait are not received" in found.statement and "The network to the standby is too slow" in found.action


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
    for code, event in ((7, "DataFileRead"), (8, "DataFileWrite"), (9, "ControlFileSyncUpdate")):
        cap.add("wait_event", wait_event_info=code, wait_event_type="IO", wait_event=event)
    cap.add("wait_event", wait_event_info=10, wait_event_type="Activity", wait_event="RecoveryWalStream")
    cap.add("replay_record", node=2, end_lsn=5, start_lsn=1, rmgr="Btree", record_type="INSERT_LEAF")
    for n in range(601):
        at = n / 10
        lsns = {"replay_lsn": round((100 + at) * MB), "flush_lsn": round((100 + 2 * at) * MB), "upstream_lsn": round((100 + 2 * at) * MB)}
        wait = waits(at)
        memory = {"tier": "shm", "record_lsn": None if wait == 10 else 5, "startup_wait": wait}
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


def startup(cap: SyntheticCapture, run_s: float, queue_s: float, wait: str | None = None) -> None:
    """The target is a standby: what the scheduler counts of its startup process each second, and what it waits for."""
    process = cap.add_session(backend_type="startup", pid=99)
    cap.sample(process, None, wait, 0, 60)
    cap.delta(process, 0, 60, cpu_run_ns=round(run_s * 1e9), cpu_queue_ns=round(queue_s * 1e9))


def target_is(cap: SyntheticCapture, node: int) -> None:
    """The servers of `cap` are numbered anew: this one is the target, number 1."""
    for table in ("replication_position", "replication_node", "replay_record"):
        for row in cap._rows.get(table, []):
            row["node"] = 1 if row["node"] == node else 2


def test_replay_that_gets_no_cpu(cap: SyntheticCapture) -> None:
    """It runs for 0.5 s of each second and is ready to run for the rest: it is not the CPU that is too slow."""
    replaying(cap, lambda at: 0)
    target_is(cap, 2)
    startup(cap, 0.5, 0.5)
    [found] = rows(cap, "REPLAY-CPU-STARVED", "REPLAY-SATURATED")
    assert (found.id, found.severity, found.cost_s) == ("REPLAY-CPU-STARVED", "medium", pytest.approx(30))
    assert found.statement == (
        "Replay was ready to run and had no CPU for 30.0 s (50 % of the time in which it had work; it ran for 30.0 s), on 4 CPUs; "
        "at the end this standby was 30.0 s behind"
    )
    assert "renice -n -10 -p 99" in found.action


def test_replay_that_its_quota_stops(cap: SyntheticCapture) -> None:
    """A capture of the standby without a connection: nobody knows how far it is behind."""
    startup(cap, 0.1, 0.9)
    cap.add("process", process_id=5, pid=99, comm="postgres", cgroup="/pod")
    cap.add("cgroup_delta", ts=cap.ts(60), dt_ns=60 * 10**9, cgroup="/pod", throttled_ns=50 * 10**9, cpu_max_milli=100)
    [found] = rows(cap, "REPLAY-CPU-STARVED")
    assert (found.severity, found.cost_s) == ("medium", pytest.approx(54))
    assert "its control group /pod (0.10 CPUs) was stopped by its quota for 50.0 s" in found.statement
    assert "Raise the CPU limit of control group /pod" in found.action and "renice" not in found.action


@pytest.mark.parametrize(
    "run_s, queue_s, wait",
    [
        pytest.param(0.95, 0.05, None, id="it runs"),
        pytest.param(0.01, 0.01, "Activity:RecoveryWalStream", id="it has no work"),
        pytest.param(0.1, 0.08, "IO:DataFileRead", id="it waits for the disk"),
    ],
)
def test_replay_that_gets_the_cpu_that_it_needs(cap: SyntheticCapture, run_s: float, queue_s: float, wait: str | None) -> None:
    startup(cap, run_s, queue_s, wait)
    assert rows(cap, "REPLAY-CPU-STARVED") == []


def test_replay_that_runs_all_the_time_is_saturated_and_not_starved(cap: SyntheticCapture) -> None:
    replaying(cap, lambda at: 0)
    target_is(cap, 2)
    startup(cap, 0.95, 0.05)
    [found] = rows(cap, "REPLAY-CPU-STARVED", "REPLAY-SATURATED")
    assert found.id == "REPLAY-SATURATED"


@pytest.mark.parametrize("node", [1, 2])
def test_replay_that_reads_data_files(cap: SyntheticCapture, node: int) -> None:
    """Half of the time, for one table. The settings are those of the target."""
    replaying(cap, lambda at: 7 if at % 1 < 0.45 else 0)
    for row in cap._rows["replay_record"]:
        row |= {"spcnode": 1663, "dbnode": 5, "relfilenode": 16400}
    cap.setting("recovery_prefetch", "off")
    cap.setting("maintenance_io_concurrency", 10)
    if node == 1:
        target_is(cap, 2)
    cap.add("replication_node", node=3, name="db3:5432", system_identifier="1")
    [found] = rows(cap, "REPLAY-IO-BOUND", "REPLAY-SATURATED")
    assert (found.id, found.subject, found.severity) == ("REPLAY-IO-BOUND", "standby db2:5432", "medium")
    assert found.cost_s == pytest.approx(30, abs=0.2)
    assert "waited 30.0 s for reads of data files (50 % of the 60.0 s in which it worked), 30.0 s of it for 1663/5/16400" in found.statement
    assert ("recovery_prefetch is off, maintenance_io_concurrency 10" in found.statement) == (node == 1)
    assert ("ALTER SYSTEM SET recovery_prefetch = try" in found.action) == (node == 1)


def test_reads_that_had_ended_are_no_reads(cap: SyntheticCapture) -> None:
    """Half of the time it shows a read. For 12 s of these 30 it had been woken and had no CPU: it was ready to run for 0.4 s of each
    second, of which its samples without a wait show 0.2."""
    replaying(cap, lambda at: 7 if at % 1 < 0.45 else 0)
    target_is(cap, 2)
    startup(cap, 0.3, 0.4)
    found = one(cap, "REPLAY-IO-BOUND")
    assert found.cost_s == pytest.approx(18, abs=0.3)


def test_replay_that_reads_now_and_then_is_not_bound(cap: SyntheticCapture) -> None:
    replaying(cap, lambda at: 7 if at % 1 < 0.15 else 0)
    assert rows(cap, "REPLAY-IO-BOUND") == []


def evicting(at: float) -> int:
    """Of each ten readings one shows a write of a page, one a flush of pg_control."""
    return {3: 8, 7: 9}.get(round(at * 10) % 10, 0)


@pytest.mark.parametrize("node", [1, 2])
def test_replay_that_writes_pages(cap: SyntheticCapture, node: int) -> None:
    """A fifth of the time. Settings and counters are those of the target."""
    replaying(cap, evicting)
    cap.setting("shared_buffers", 16384)
    cap.setting("bgwriter_lru_maxpages", 0)
    if node == 1:
        target_is(cap, 2)
        startup(cap, 0.9, 0.0)
        for row in cap._rows["session_delta"]:
            row["shared_blks_written"] = 50
    [found] = rows(cap, "REPLAY-EVICTS", "REPLAY-IO-BOUND")
    assert (found.id, found.subject, found.severity) == ("REPLAY-EVICTS", "standby db2:5432", "medium")
    assert found.cost_s == pytest.approx(12, abs=0.1)
    assert found.statement.startswith(
        "Replay on standby db2:5432 waited 12.0 s to write pages out of its cache (20 % of the 60.0 s in which it worked), "
        "6.0 s of it for pg_control"
    )
    of_target = "; it wrote 3000 pages; shared_buffers has 128 MB, bgwriter_lru_maxpages is 0; "
    assert (of_target in found.statement) == (node == 1)
    assert ("bgwriter_lru_maxpages = 100;" in found.action) == (node == 1) == ("bgwriter_lru_maxpages = 1000" not in found.action)


def test_writes_that_had_ended_are_no_writes(cap: SyntheticCapture) -> None:
    """It shows a write for 12 s, and had been woken for a quarter of these: it was ready to run for 0.05 s of each second, and its samples
    without a wait show no more than it ran."""
    replaying(cap, evicting)
    target_is(cap, 2)
    startup(cap, 0.8, 0.05)
    assert one(cap, "REPLAY-EVICTS").cost_s == pytest.approx(9, abs=0.1)


@pytest.mark.parametrize(("code", "rule"), [(7, "REPLAY-IO-BOUND"), (8, "REPLAY-EVICTS")])
def test_replay_that_is_woken_for_new_wal_has_its_other_waits(cap: SyntheticCapture, code: int, rule: str) -> None:
    """Of each ten readings five show a wait, and three that it waits for WAL. It was ready to run for 0.4 s of each second, of which its
    samples without a wait show nothing: half of all its waits."""
    replaying(cap, lambda at: code if round(at * 10) % 10 < 5 else 10 if round(at * 10) % 10 < 8 else 0)
    target_is(cap, 2)
    startup(cap, 0.2, 0.4)
    assert one(cap, rule).cost_s == pytest.approx(15, abs=0.2)


@pytest.mark.parametrize(
    "waits, record",
    [
        pytest.param(lambda at: 8 if round(at * 10) % 25 == 3 else 0, "Btree", id="now and then"),
        pytest.param(lambda at: 9 if round(at * 10) % 10 < 5 else 0, "Btree", id="no page is written"),
        pytest.param(lambda at: 9 if round(at * 10) % 10 else 8 if at in (7, 9) else 0, "Transaction", id="commits that drop tables"),
        pytest.param(lambda at: 8 if round(at * 10) % 10 < 5 else 0, "Database", id="a database is copied"),
        pytest.param(lambda at: 7 if round(at * 10) % 10 < 5 else 0, "Btree", id="it reads"),
    ],
)
def test_replay_that_does_not_evict(cap: SyntheticCapture, waits: Any, record: str) -> None:
    replaying(cap, waits)
    cap._rows["replay_record"][0]["rmgr"] = record
    assert rows(cap, "REPLAY-EVICTS") == []


def receiving(cap: SyntheticCapture, wait: str, part: int) -> None:
    """The target is a standby: its walreceiver waits so for so many of ten passes, else for WAL."""
    process = cap.add_session(backend_type="walreceiver", pid=98)
    cap.cycle(process, [(None, wait, part), (None, "Activity:WalReceiverMain", 10 - part)], 0, 60)


def test_a_walreceiver_that_waits_for_its_disk(cap: SyntheticCapture) -> None:
    standby(cap, lambda at: 90 + 2 * at, lambda at: 100 + 2 * at)
    for row in cap._rows["replication_position"]:
        if row["node"] == 2:
            row["flush_lsn"] = row["replay_lsn"]
    target_is(cap, 2)
    receiving(cap, "IO:WALSync", 7)
    [found] = rows(cap, "WALRECEIVER-FSYNC")
    assert (found.severity, found.cost_s) == ("medium", pytest.approx(42))
    assert "waited 42.0 s (70 % of its time) for its WAL to be on the disk; up to 10.00 MB were received" in found.statement
    assert found.evidence[0]["unflushed_bytes"] == 10 * MB


@pytest.mark.parametrize(("wait", "part"), [("IO:WALSync", 4), ("IPC:Something", 9)])
def test_a_walreceiver_that_has_time_left(cap: SyntheticCapture, wait: str, part: int) -> None:
    receiving(cap, wait, part)
    assert rows(cap, "WALRECEIVER-FSYNC") == []


def sending(
    cap: SyntheticCapture, reads: int, works: int = 1, *, name: str = "west", wait: str = "IO:WALRead", pid: int = 77, **columns: Any
) -> int:
    """The target is a primary. Of ten passes its walsender reads WAL in so many, works without a wait in so many, else waits for WAL."""
    process = cap.add_session(backend_type="walsender", pid=pid, application_name=name, client_addr="10.0.0.2", **columns)
    idle = "Activity:WalSenderMain" if not columns else "Client:WalSenderWaitForWAL"
    cap.cycle(process, [("active", wait, reads), ("active", None, works), ("active", idle, 10 - reads - works)], 0, 60)
    return process


@pytest.mark.parametrize("version", [160014, 180001])
def test_a_walsender_that_reads_files(cap: SyntheticCapture, version: int) -> None:
    """It has work in half of the passes, and reads in two of five of these. It has not sent 120 MB."""
    cap.server_version_num = version
    sender = sending(cap, 2, 3, wait="IO:WALRead" if version < 170000 else "IO:WalRead")
    cap.delta(sender, 0, 60, read_bytes=MB, rchar=4 * MB)
    for n in range(61):
        lsns = {name: (100 + 2 * n) * MB for name in ("write_lsn", "flush_lsn", "replay_lsn")} | {"sent_lsn": 100 * MB}
        cap.add("walsender", ts=cap.ts(n), node=1, pid=77, application_name="west", client_addr="10.0.0.2", state="catchup", **lsns)
    sending(cap, 1, 8, name="east", pid=78)
    found = one(cap, "WALSENDER-READ")
    assert (found.severity, found.cost_s, found.subject) == ("medium", pytest.approx(12), "walsender of west at 10.0.0.2")
    assert found.statement == (
        "The walsender of west at 10.0.0.2 waited 12.0 s for reads of WAL files (40 % of the 30.0 s in which it had work); "
        "it read 240.0 MB, 60.0 MB of it from storage; at the end 120.0 MB were not sent"
    )
    assert ("larger `wal_buffers`" in found.action) == (version > 170000) == ("cascading replication" not in found.action)
    assert "from storage" not in found.action and "subscription" not in found.action


def test_a_walsender_that_decodes_and_reads_from_storage(cap: SyntheticCapture) -> None:
    """Its receiver comes back once: two sessions, one receiver."""
    for pid in (77, 78):
        sender = sending(cap, 5, 2, pid=pid, datid=5)
        cap.delta(sender, 0, 60, read_bytes=4 * MB, rchar=4 * MB)
    found = one(cap, "WALSENDER-READ")
    assert (found.severity, found.cost_s) == ("low", pytest.approx(60))
    assert found.statement.startswith("The walsender, which decodes, of west at 10.0.0.2 waited 60.0 s")
    assert "came from storage" in found.action and "decodes the WAL once" in found.action and "wal_buffers" not in found.action


def test_reads_of_wal_that_had_ended_are_no_reads(cap: SyntheticCapture) -> None:
    """It shows 12 s of reads in 42 s of waits. For two fifths of these 42 s it had been woken and had no CPU."""
    sender = sending(cap, 2, 3)
    cap.delta(sender, 0, 60, cpu_run_ns=300_000_000, cpu_queue_ns=280_000_000)
    assert one(cap, "WALSENDER-READ").cost_s == pytest.approx(7.2)


@pytest.mark.parametrize(
    "reads, works, wait",
    [
        pytest.param(1, 6, "IO:WALRead", id="a seventh of its work"),
        pytest.param(4, 2, "IO:BaseBackupRead", id="a base backup"),
        pytest.param(6, 1, "Client:WalSenderWriteData", id="its client is slow"),
    ],
)
def test_walsenders_that_do_not_read_much(cap: SyntheticCapture, reads: int, works: int, wait: str) -> None:
    sending(cap, reads, works, wait=wait)
    assert rows(cap, "WALSENDER-READ") == []


def test_a_walsender_that_has_little_to_send(cap: SyntheticCapture) -> None:
    """All of its work is reads, but it has work in one pass of 25."""
    process = cap.add_session(backend_type="walsender", pid=77, application_name="west")
    cap.cycle(process, [("active", "IO:WALRead", 1), ("active", "Activity:WalSenderMain", 24)], 0, 60)
    assert rows(cap, "WALSENDER-READ") == []


def cascade(
    cap: SyntheticCapture, on_disk: dict[int, Any], senders: dict[tuple[int, int], int], replayed: dict[int, Any] | None = None
) -> None:
    """Standbys db2, db3, ..: MB of the WAL on the disk of each at a second. senders: (node, pid) sends to which standby; it has sent 2 MB
    more than its receiver has on its disk, if it has so much."""
    has = on_disk | {1: lambda at: 100 + 2 * at}
    for node in on_disk:
        if node > 2:
            cap.add("replication_node", node=node, name=f"db{node}:5432", system_identifier="1")
        for n in range(61):
            got = round(on_disk[node](n) * MB)
            lsns = {"flush_lsn": got, "write_lsn": got, "replay_lsn": round((replayed or {}).get(node, on_disk[node])(n) * MB)}
            cap.add("replication_position", ts=cap.ts(n), node=node, in_recovery=True, is_paused=False, **lsns)
    for (node, pid), standby in senders.items():
        for n in range(61):
            sent, heard = min(has[node](n), has[standby](n) + 2), has[standby](n)
            lsns = {"sent_lsn": round(sent * MB)} | dict.fromkeys(("write_lsn", "flush_lsn", "replay_lsn"), round(heard * MB))
            cap.add("walsender", ts=cap.ts(n), node=node, pid=pid, application_name="standby", state="streaming", **lsns)


def test_a_hop_that_holds_the_last_standby_up(cap: SyntheticCapture) -> None:
    """db3 gets its WAL from db2, which keeps up. In the last 15 s (46 to 60) it lacks 53 MB on average, 26.5 s of WAL."""
    cascade(cap, {2: lambda at: 100 + 2 * at, 3: lambda at: 100 + at}, {(1, 71): 2, (2, 72): 3})
    [found] = rows(cap, "CASCADE-HOP")
    assert (found.severity, found.cost_s, found.subject) == ("medium", None, "hop from db2:5432 to db3:5432")
    assert found.statement == (
        "Standby db3:5432 was 26.5 s and 53.0 MB behind: 100 % of these bytes wait between db2:5432 and db3:5432, 0 % for its own replay"
    )
    assert "The WAL waits on db2:5432 or on the way to db3:5432" in found.action and "`primary_conninfo`" in found.action


def test_a_first_hop_that_holds_two_standbys_up(cap: SyntheticCapture) -> None:
    """db2 lacks the WAL too, and db4 gets its own from db3, which gets it from db2: each is 1 MB behind the one before."""
    chain = {2: lambda at: 100 + at, 3: lambda at: 99 + at, 4: lambda at: 98 + at}
    cascade(cap, chain, {(1, 71): 2, (2, 72): 3, (3, 73): 4})
    [found] = rows(cap, "CASCADE-HOP")
    assert found.subject == "hop from db1:5432 to db2:5432"
    assert found.statement.startswith("Standby db4:5432 was ") and found.statement.endswith("; the hop holds up 2 standbys")
    assert found.evidence[0]["hop_bytes"] == 53 * MB and found.evidence[0]["lag_bytes"] == 55 * MB
    assert "`primary_conninfo`" not in found.action


def test_a_cascade_beside_another_standby(cap: SyntheticCapture) -> None:
    """db4 streams from the primary and keeps up, as db2 does: the walsender of db2 can serve neither."""
    chain = {2: lambda at: 100 + 2 * at, 3: lambda at: 100 + at, 4: lambda at: 100 + 2 * at}
    cascade(cap, chain, {(1, 71): 2, (1, 74): 4, (2, 72): 3})
    assert one(cap, "CASCADE-HOP").subject == "hop from db2:5432 to db3:5432"


@pytest.mark.parametrize(
    "on_disk, senders, replayed",
    [
        pytest.param({3: lambda at: 100 + 2 * at - 9}, {(1, 71): 2, (2, 72): 3}, {}, id="it is 4.5 s behind"),
        pytest.param({3: lambda at: 100 + at}, {(1, 71): 2, (1, 72): 3}, {}, id="it streams from the primary"),
        pytest.param({3: lambda at: 100 + 1.6 * at}, {(1, 71): 2, (2, 72): 3}, {3: lambda at: 100 + at}, id="two fifths in the hop"),
    ],
)
def test_hops_that_do_not_hold_standbys_up(cap: SyntheticCapture, on_disk: Any, senders: Any, replayed: Any) -> None:
    cascade(cap, {2: lambda at: 100 + 2 * at} | on_disk, senders, replayed)
    assert rows(cap, "CASCADE-HOP") == []


def test_a_receiver_that_connects_anew_asks_from_the_begin_of_its_segment(cap: SyntheticCapture) -> None:
    """db3 has 104 MB when the walsender of db2 begins to send it WAL from 96 MB on, 1 MB a second."""
    cascade(cap, {2: lambda at: 100 + 2 * at, 3: lambda at: max(104, 96 + at)}, {(1, 71): 2})
    for n in range(61):
        lsns = dict.fromkeys(("sent_lsn", "write_lsn", "flush_lsn", "replay_lsn"), (96 + n) * MB)
        cap.add("walsender", ts=cap.ts(n), node=2, pid=72, application_name="standby", state="catchup", **lsns)
    assert one(cap, "CASCADE-HOP").subject == "hop from db2:5432 to db3:5432"


def test_a_reading_is_of_some_moment_within_the_time_that_it_took(cap: SyntheticCapture) -> None:
    """On a busy host: of a second, in which the standby gets WAL that this reading of the walsender has not seen, or has."""
    cascade(cap, {2: lambda at: 100 + 2 * at, 3: lambda at: 100 + at}, {(1, 71): 2, (2, 72): 3})
    for at, seen_at in ((20, 20.4), (40, 39.6)):
        on_disk = round((100 + seen_at) * MB)
        lsns = {"sent_lsn": on_disk, "write_lsn": on_disk, "flush_lsn": on_disk, "replay_lsn": on_disk}
        cap.add("walsender", ts=cap.ts(at), node=2, pid=72, application_name="standby", state="streaming", answer_ns=10**9, **lsns)
        cap.add("replication_position", ts=cap.ts(at + 0.1), node=3, in_recovery=True, flush_lsn=round((100 + at + 0.1) * MB))
    for at in (39.7, 39.8, 39.9):
        cap.add("replication_position", ts=cap.ts(at), node=3, in_recovery=True, flush_lsn=round((100 + at) * MB))
    assert one(cap, "CASCADE-HOP").subject == "hop from db2:5432 to db3:5432"


def test_nobody_knows_whom_the_walsender_of_a_standby_serves(cap: SyntheticCapture) -> None:
    """db3 and db4 have the same WAL at each moment, and db2 as well as the primary may send it to either."""
    cascade(cap, {2: lambda at: 100 + 2 * at, 3: lambda at: 100 + at, 4: lambda at: 100 + at}, {(1, 71): 2, (1, 74): 4, (2, 72): 3})
    assert rows(cap, "CASCADE-HOP") == []


def applying(
    cap: SyntheticCapture, works: int, wait: str, waits: int, *, kind: str = "logical replication apply worker", to_s: float = 60
) -> int:
    """The target is a subscriber: of 25 passes, its apply worker works in so many and waits so in so many, else waits for changes."""
    process = cap.add_session(backend_type=kind, pid=97, datid=5)
    idle = 25 - works - waits
    cap.cycle(process, [("active", None, works), ("active", wait, waits), ("active", "Activity:LogicalApplyMain", idle)], 0, to_s)
    return process


@pytest.mark.parametrize("kind", ["logical replication apply worker", "logical replication worker"])
def test_an_apply_worker_that_needs_a_whole_cpu(cap: SyntheticCapture, kind: str) -> None:
    """For 40 s it works in 23 of 25 passes and else waits for WAL of its own. Then it has applied all."""
    cap.add("database", datid=5, datname="shop")
    worker = applying(cap, 23, "IO:WALSync", 2, kind=kind, to_s=40)
    cap.sample(worker, "idle", "Activity:LogicalApplyMain", 40, 60)
    found = one(cap, "LOGICAL-APPLY-BOUND")
    assert (found.severity, found.cost_s, found.subject) == ("low", None, "apply worker in database shop with pid 97")
    assert found.confidence == ("medium" if "apply" in kind else "low")
    assert found.statement == (
        "The apply worker with pid 97 in database shop always had changes to apply for 40.0 s of 60.0 s, "
        "and worked for 92 % of these without a wait"
    )
    assert "Divide the tables" in found.action and "had no CPU" not in found.action


def test_an_apply_worker_that_gets_no_cpu(cap: SyntheticCapture) -> None:
    worker = applying(cap, 25, "IO:WALSync", 0)
    cap.delta(worker, 0, 60, cpu_run_ns=600_000_000, cpu_queue_ns=400_000_000)
    found = one(cap, "LOGICAL-APPLY-BOUND")
    assert found.severity == "medium" and ", also at the end, and worked for 100 %" in found.statement
    assert (
        found.statement.endswith("; it was ready to run and had no CPU for 40 % of its time on or for a CPU")
        and "had no CPU" in found.action
    )


@pytest.mark.parametrize(
    "works, wait, waits, kind, to_s",
    [
        pytest.param(24, "IO:WALSync", 0, "logical replication apply worker", 60, id="it waits for changes now and then"),
        pytest.param(22, "IO:DataFileRead", 3, "logical replication apply worker", 60, id="it waits for reads"),
        pytest.param(25, "IO:WALSync", 0, "logical replication apply worker", 15, id="one bulk load"),
        pytest.param(24, "IPC:LogicalSyncData", 1, "logical replication worker", 60, id="the first copy of a table"),
        pytest.param(25, "IO:WALSync", 0, "logical replication tablesync worker", 60, id="the same on 17"),
    ],
)
def test_apply_workers_that_keep_up(cap: SyntheticCapture, works: int, wait: str, waits: int, kind: str, to_s: float) -> None:
    worker = applying(cap, works, wait, waits, kind=kind, to_s=to_s)
    if to_s < 60:
        cap.sample(worker, "idle", "Activity:LogicalApplyMain", to_s, 60)
    assert rows(cap, "LOGICAL-APPLY-BOUND") == []


def restartpoint(cap: SyntheticCapture, replayed_gb: float, moved_gb: float) -> None:
    """max_wal_size is 1 GB; at the end the standby has replayed so much since its last restartpoint, which has moved by so much."""
    cap.add("setting", name="max_wal_size", setting="1024")
    gb = 1 << 30
    for metric, before, after in (
        ("redo_lsn", 0, moved_gb * gb), ("replay_lsn", 6 * gb, 12 * gb), ("replayed_bytes", 6 * gb, replayed_gb * gb)
    ):  # fmt: skip
        cap.stat("pg_control_checkpoint", metric, before, after)


@pytest.mark.parametrize(("replayed_gb", "severity"), [(2.0, "low"), (16.0, "medium")])
def test_a_restartpoint_that_is_far_behind(cap: SyntheticCapture, replayed_gb: float, severity: str) -> None:
    restartpoint(cap, replayed_gb, 0)
    found = one(cap, "RESTARTPOINT-LAG")
    assert (found.severity, found.cost_s) == (severity, None)
    assert found.statement == (
        f"This standby has replayed {replayed_gb} GB of WAL since the checkpoint of its last restartpoint, {replayed_gb} times max_wal_size"
        " (1.0 GB): it keeps this WAL, and replays it again if it crashes; none was finished in the capture; it replays 102.4 MB/s"
    )


def test_a_restartpoint_within_two_cycles(cap: SyntheticCapture) -> None:
    restartpoint(cap, 1.9, 4)
    assert rows(cap, "RESTARTPOINT-LAG") == []


def free(cap: SyntheticCapture, wal_free_mb: float | None) -> None:
    """On the disk of the standby's pg_wal."""
    for row in cap._rows["replication_node"]:
        if row["node"] == 2:
            row["wal_free_bytes"] = None if wal_free_mb is None else round(wal_free_mb * MB)


@pytest.mark.parametrize(
    ("free_mb", "severity", "full"), [(3600, "medium", "1.0 hours"), (3599, "high", "60 minutes"), (18_000, "medium", "5.0 hours")]
)
def test_a_disk_that_wal_fills(cap: SyntheticCapture, free_mb: float, severity: str, full: str) -> None:
    """2 MB a second come, and 1 MB a second is replayed."""
    standby(cap, lambda at: 100 + at)
    free(cap, free_mb)
    [found] = rows(cap, "STANDBY-DISK-FILLS", fills_bytes=50 * MB)
    assert (found.subject, found.severity, found.cost_s) == ("standby db2:5432", severity, None)
    assert found.statement == (
        f"WAL that is received and not replayed grows by 1.0 MB/s on standby db2:5432: 0.1 GB wait, {free_mb / 1024:.1f} GB are free on "
        f"the disk of its pg_wal, which is full in {full} at this pace"
    )


@pytest.mark.parametrize(
    ("replayed", "free_mb"),
    [
        pytest.param(lambda at: 100 + at, 21_700, id="in more than six hours"),
        pytest.param(lambda at: 100 + at, None, id="free space not known"),
        pytest.param(lambda at: 100 + 2 * at, 100, id="it keeps up"),
        pytest.param(lambda at: 100 if at < 30 else 40 + 2 * at, 100, id="it grew once, and stays"),
        pytest.param(lambda at: 40 + 3 * at if at < 60 else 220, 100, id="it falls"),
        pytest.param(lambda at: 100 + 1.5 * at, 100, id="it has grown by less than the threshold"),
    ],
)
def test_disks_that_do_not_fill(cap: SyntheticCapture, replayed: Any, free_mb: float | None) -> None:
    standby(cap, replayed)
    free(cap, free_mb)
    assert rows(cap, "STANDBY-DISK-FILLS", fills_bytes=50 * MB) == []
