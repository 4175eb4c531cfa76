"""Findings about WAL, checkpoints, temporary files, reads and standbys: clean gives no row, planted exactly one, by hand computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture, rows
from leadline.findings import Finding

IO_FINDINGS = ["WAL-CONTENTION", "CKPT-REQUESTED", "TEMP-SPILL", "SYNCREP-BOUND", "READ-IO"]


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """60 s, 100 Hz, one session 30 s on a CPU: 30 s of database time; and server statistics, so that they are evaluated."""
    made = SyntheticCapture(tmp_path)
    made.background()
    worker = made.add_session(application_name="worker")
    made.sample(worker, "active", None, 0, 29.4, statement_id=901)  # background() makes the other 0.6 s
    made.add("statement", statement_id=5, id_source="server", query="select *\n from big order by x")
    made.stat("pg_stat_database", "xact_commit", 10, 20, obj="shop")
    return made


def found(cap: SyntheticCapture, only: list[str] = IO_FINDINGS) -> list[Finding]:
    return rows(cap, *only)


def wait(cap: SyntheticCapture, event: str | None, from_s: float, to_s: float) -> int:
    session = cap.add_session(application_name="client")
    cap.sample(session, "active", event, from_s, to_s, statement_id=5)
    return session


def test_a_clean_capture_has_no_io_findings(cap: SyntheticCapture) -> None:
    cap.ordinary_load()
    cap.stat("pg_stat_checkpointer", "num_timed", 100, 101)
    cap.stat("pg_stat_checkpointer", "num_requested", 3, 3)
    assert found(cap) == []


@pytest.mark.parametrize("sync", ["IO:WALSync", "IO:WalSync"])  # as 13 to 16, and 17 on, write it
def test_time_in_the_wal_is_split_into_flush_and_buffers(cap: SyntheticCapture, sync: str) -> None:
    wait(cap, sync, 0, 20)
    wait(cap, "LWLock:WALWrite", 0, 8)
    wait(cap, "LWLock:WALInsert", 0, 2)
    cap.stat("pg_stat_wal", "wal_bytes", 1e9, 1e9 + 120e6)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("WAL-CONTENTION", "write-ahead log")
    assert finding.cost_s == pytest.approx(30)
    assert finding.share_of_db_time == pytest.approx(0.5, abs=1e-6)
    assert finding.samples == 3000
    assert "28.0 s to its write and flush, 2.0 s to WALInsert and WALBufMapping; 1.91 MB of WAL a second" in finding.statement
    assert [e["wait_s"] for e in finding.evidence] == [20.0, 8.0, 2.0]


def test_the_sessions_count_the_wal_where_the_server_does_not(cap: SyntheticCapture) -> None:
    session = wait(cap, "IO:WALSync", 0, 20)
    cap.delta(session, 0, 20, wal_bytes=3_000_000)
    (finding,) = found(cap)
    assert "0.95 MB of WAL a second" in finding.statement


def test_a_fight_for_the_wal_buffers_is_found_earlier_than_flushes(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:WALInsert", 0, 2)  # 6 % of 32 s
    (finding,) = found(cap)
    assert (finding.id, finding.severity) == ("WAL-CONTENTION", "low")
    assert "0.0 s to its write and flush, 2.0 s to WALInsert" in finding.statement


def test_flushes_of_that_size_are_the_price_of_commits(cap: SyntheticCapture) -> None:
    wait(cap, "IO:WALSync", 0, 2)
    assert found(cap) == []


@pytest.mark.parametrize(
    ("view", "requested", "timed"),
    [("pg_stat_checkpointer", "num_requested", "num_timed"), ("pg_stat_bgwriter", "checkpoints_req", "checkpoints_timed")],
)
def test_checkpoints_asked_for_by_wal_volume(cap: SyntheticCapture, view: str, requested: str, timed: str) -> None:
    cap.stat(view, requested, 10, 13)
    cap.stat(view, timed, 50, 51)
    cap.stat("pg_stat_wal", "wal_bytes", 0, 1.8e9)
    cap.stat("pg_stat_wal", "wal_records", 0, 1_000_000)
    cap.stat("pg_stat_wal", "wal_fpi", 0, 150_000)
    cap.setting("max_wal_size", 1024, unit="MB")
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("CKPT-REQUESTED", "checkpoints")
    assert finding.cost_s is None
    assert finding.share_of_db_time is None
    assert (finding.samples, finding.severity, finding.confidence) == (3, "high", "high")  # one each 20 s
    for text in (
        "3 of 4 checkpoints in 60 s were requested, by WAL volume",
        "1716.6 MB of WAL with max_wal_size 1024 MB",
        "15 % of its records",
    ):
        assert text in finding.statement
    assert finding.statement.endswith("since the last statistics reset, 13 of 64 were requested")


def test_a_checkpoint_by_command_is_only_information(cap: SyntheticCapture) -> None:
    cap.stat("pg_stat_checkpointer", "num_requested", 10, 11)
    cap.stat("pg_stat_checkpointer", "num_timed", 50, 50)
    cap.stat("pg_stat_wal", "wal_bytes", 0, 5e6)
    cap.setting("max_wal_size", 1024, unit="MB")
    (finding,) = found(cap)
    assert (finding.id, finding.severity) == ("CKPT-REQUESTED", "info")
    assert "by a command rather than by WAL volume" in finding.statement


def test_one_checkpoint_of_unknown_origin_is_of_low_severity(cap: SyntheticCapture) -> None:
    cap.stat("pg_stat_bgwriter", "checkpoints_req", 10, 11)
    cap.stat("pg_stat_bgwriter", "checkpoints_timed", 50, 50)
    (finding,) = found(cap)
    assert (finding.severity, finding.confidence) == ("low", "low")
    assert "1 of 1 checkpoints in 60 s were requested; since" in finding.statement


def test_statistics_that_were_reset_are_no_checkpoints(cap: SyntheticCapture) -> None:
    cap.stat("pg_stat_checkpointer", "num_requested", 10, 1)
    cap.stat("pg_stat_checkpointer", "num_timed", 50, 0)
    assert found(cap) == []


def test_a_spill_is_given_to_the_statement_that_ran(cap: SyntheticCapture) -> None:
    session = wait(cap, None, 10, 20)
    cap.sample(session, "active", "IO:BufFileWrite", 12, 13, statement_id=5)
    cap.sample(session, "active", "IO:BuffileRead", 13, 15, statement_id=5)
    cap.delta(session, 10, 20, temp_blks_written=1000, temp_blks_read=500)
    cap.setting("work_mem", 4096, unit="kB")
    (finding,) = found(cap)
    assert (finding.id, finding.subject, finding.confidence) == ("TEMP-SPILL", "statement 5", "high")
    assert finding.cost_s == pytest.approx(3)
    assert finding.share_of_db_time == pytest.approx(3 / 40, abs=1e-6)
    assert finding.samples == 300
    for text in ("spilled 78.1 MB to temporary files, read 39.1 MB back", "work_mem of the server 4096 kB", "select * from big order by x"):
        assert text in finding.statement  # 10 s of 1000 and 500 blocks of 8192 bytes
    (row,) = finding.evidence
    assert (row["pid"], row["application_name"], row["written_bytes"]) == (cap.pids[session], "client", 10 * 1000 * 8192)


def test_a_small_spill_is_no_finding(cap: SyntheticCapture) -> None:
    session = wait(cap, None, 10, 11)
    cap.delta(session, 10, 11, temp_blks_written=1000)  # 8 MB
    assert found(cap) == []


def test_waits_for_temporary_files_alone_show_a_spill(cap: SyntheticCapture) -> None:
    """As on the SQL tier, where sessions have no block counters."""
    wait(cap, "IO:BufFileRead", 10, 20)
    (finding,) = found(cap)
    assert (finding.id, finding.subject, finding.confidence) == ("TEMP-SPILL", "statement 5", "medium")
    assert finding.cost_s == pytest.approx(10)
    assert "1 session waited 10.0 s (25.0 % of database time) for temporary files" in finding.statement


def test_commits_that_wait_for_a_standby(cap: SyntheticCapture) -> None:
    wait(cap, "IPC:SyncRep", 0, 20)
    for standby, priority in (("near/10.0.0.5/4711", 1), ("local//4712", 2), ("near/10.0.0.5/4713", 1), ("archive//4714", 0)):
        cap.stat("pg_stat_replication", "sync_priority", None, priority, obj=standby)
    cap.setting("synchronous_commit", "remote_apply")
    cap.walsender("near")
    (finding,) = found(cap)
    assert finding.id == "SYNCREP-BOUND"
    assert finding.cost_s == pytest.approx(20)
    assert finding.share_of_db_time == pytest.approx(0.4, abs=1e-6)
    assert "(local, near at 10.0.0.5); synchronous_commit is remote_apply" in finding.statement


@pytest.mark.parametrize("event", ["IO:WALSync", "IPC:SyncRep", "IO:DataFileRead"])
@pytest.mark.parametrize(("sessions", "rows"), [(1, 0), (2, 1)])  # 8 s of each is under a fifth of 60 s
def test_a_quiet_server_may_wait_for_most_of_its_little_time(tmp_path: Path, event: str, sessions: int, rows: int) -> None:
    cap = SyntheticCapture(tmp_path)
    cap.background()
    cap.walsender("near")
    for _ in range(sessions):
        wait(cap, event, 0, 8)
    assert len(found(cap, ["WAL-CONTENTION", "SYNCREP-BOUND", "READ-IO"])) == rows


def test_time_spent_reading_blocks(cap: SyntheticCapture) -> None:
    session = wait(cap, "IO:DataFileRead", 0, 18)
    wait(cap, "IPC:BufferIO", 0, 2)
    cap.delta(session, 0, 20, shared_blks_read=500)
    (finding,) = found(cap)
    assert finding.id == "READ-IO"
    assert finding.cost_s == pytest.approx(20)
    assert finding.share_of_db_time == pytest.approx(0.4, abs=1e-6)
    assert "167 blocks a second, 2.00 ms of waiting for each" in finding.statement  # 10,000 blocks


def replaying(cap: SyntheticCapture, event: str, from_s: float, to_s: float) -> int:
    startup = cap.add_session(backend_type="startup")
    cap.sample(startup, None, "Activity:RecoveryWalStream", 0, 60)
    cap.sample(startup, None, event, from_s, to_s)
    return startup


def test_replay_waits_for_the_oldest_snapshot(cap: SyntheticCapture) -> None:
    replaying(cap, "IPC:RecoveryConflictSnapshot", 10, 50)
    report, younger = cap.add_session(application_name="report"), cap.add_session(application_name="younger")
    cap.sample(report, "idle in transaction", "Client:ClientRead", 5, 60, backend_xmin=cap.next_xid - 500)
    cap.sample(younger, "active", None, 0, 60, backend_xmin=cap.next_xid - 10)
    cap.setting("max_standby_streaming_delay", "-1", unit="ms")
    (finding,) = found(cap, ["REPLAY-CONFLICT"])
    assert (finding.subject, finding.severity, finding.cost_s) == ("replay", "high", pytest.approx(40))
    assert finding.share_of_db_time is None
    assert "stood still for 40.0 s (67 % of the time) because of sessions of this standby: 40.0 s for snapshots;" in finding.statement
    assert f"pid {cap.pids[report]} (idle in transaction, application report) held the oldest snapshot longest" in finding.statement
    assert finding.statement.endswith("; max_standby_streaming_delay is -1, without end")
    assert [(e["pid"], e["waited_for"], e["held_s"]) for e in finding.evidence] == [(cap.pids[report], "snapshots", pytest.approx(40))]


def test_replay_waits_for_a_lock(cap: SyntheticCapture) -> None:
    startup = replaying(cap, "Lock:relation", 10, 20)
    reader, queued = cap.add_session(application_name="reader"), cap.add_session(application_name="queued")
    cap.sample(reader, "idle in transaction", "Client:ClientRead", 5, 25)
    cap.sample(queued, "active", "Lock:relation", 5, 25)
    lock = {"locktype": "relation", "datid": 16384, "relid": 999, "mode": "AccessExclusiveLock", "samples": False}
    cap.lock_wait(startup, reader, 10, 20, **lock)
    cap.lock_wait(startup, queued, 10, 20, blocker_kind="queue", **lock)
    (finding,) = found(cap, ["REPLAY-CONFLICT"])
    assert (finding.cost_s, finding.severity) == (pytest.approx(10), "low")
    assert "10.0 s for locks; " in finding.statement
    assert [(e["pid"], e["held_s"]) for e in finding.evidence] == [(cap.pids[reader], pytest.approx(10))]


def test_replay_that_waits_for_the_log_or_shortly_for_a_pin_is_as_it_should_be(cap: SyntheticCapture) -> None:
    replaying(cap, "BufferPin:BufferPin", 10, 12.5)
    assert found(cap, ["REPLAY-CONFLICT"]) == []
