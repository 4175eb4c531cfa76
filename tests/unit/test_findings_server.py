"""Findings about what surrounds the sessions: who writes pages, standbys, the disk, poolers, loaders. By hand computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture, rows


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """60 s, 100 Hz, one session 30 s on a CPU: 30 s of database time."""
    made = SyntheticCapture(tmp_path)
    made.background()
    made.sample(made.add_session(application_name="worker"), "active", None, 0, 29.4, statement_id=901)
    made.add("statement", statement_id=5, id_source="server", query="update t set a = $1")
    made.add("statement", statement_id=6, id_source="server", query="COPY t FROM STDIN")
    made.stat("pg_stat_database", "xact_commit", 10, 20, obj="shop")
    return made


def wait(cap: SyntheticCapture, event: str | None, from_s: float, to_s: float, statement_id: int = 5) -> int:
    session = cap.add_session(application_name="client")
    cap.sample(session, "active", event, from_s, to_s, statement_id=statement_id)
    return session


# -- BACKEND-WRITES -----------------------------------------------------------------------------------------------------------


def written(cap: SyntheticCapture, backend: float, clean: float, checkpoint: float, fsyncs: float = 0) -> None:
    """As up to version 15: one number for all writes of sessions."""
    for metric, grown in (("buffers_backend", backend), ("buffers_clean", clean), ("buffers_checkpoint", checkpoint)):
        cap.stat("pg_stat_bgwriter", metric, 1000, 1000 + grown)
    cap.stat("pg_stat_bgwriter", "buffers_backend_fsync", 0, fsyncs)


def written_by(cap: SyntheticCapture, context: str, **grown: float) -> None:
    """As from version 16 on."""
    for metric, value in grown.items():
        cap.stat("pg_stat_io", metric, 100, 100 + value, obj=f"client backend/relation/{context}")


def test_pages_that_sessions_write_before_16(cap: SyntheticCapture) -> None:
    written(cap, 60_000, 20_000, 20_000)
    wait(cap, "IO:DataFileWrite", 0, 10)
    cap.setting("bgwriter_lru_maxpages", 100)
    cap.setting("bgwriter_delay", 200, unit="ms")
    cap.stat("pg_stat_bgwriter", "maxwritten_clean", 0, 250)
    (finding,) = rows(cap, "BACKEND-WRITES")
    assert finding.cost_s == pytest.approx(10) and finding.share_of_db_time == pytest.approx(0.25, abs=1e-6)
    assert "wrote 60000 pages themselves (those that make files longer are among them), 60 % of all" in finding.statement
    assert "it stopped 250 times at bgwriter_lru_maxpages = 100" in finding.statement
    assert "bgwriter_lru_maxpages = 533;" in finding.action  # 2 * 80000 / 60 s * 0.2 s
    assert "bgwriter_delay = '10ms'" not in finding.action


def test_the_server_times_its_writes_from_16_on(cap: SyntheticCapture) -> None:
    written_by(cap, "normal", writes=30_000, write_time=12_000, extends=5, extend_time=900)
    written_by(cap, "bulkwrite", writes=90_000, write_time=50_000)
    cap.stat("pg_stat_checkpointer", "buffers_written", 0, 10_000)
    wait(cap, "IO:DataFileWrite", 0, 10)
    cap.setting("bgwriter_lru_maxpages", 0)
    (finding,) = rows(cap, "BACKEND-WRITES")
    assert finding.cost_s == pytest.approx(12) and finding.confidence == "high"
    assert "wrote 30000 pages themselves, 75 %" in finding.statement
    assert "it took 12.0 s" in finding.statement and "0.40 ms each" in finding.statement
    assert "the background writer is off (bgwriter_lru_maxpages = 0)" in finding.statement
    assert "ALTER SYSTEM SET bgwriter_lru_maxpages = 200;" in finding.action


def test_a_long_statement_is_counted_by_its_own_session(cap: SyntheticCapture) -> None:
    """The server learns of the writes of a transaction at its end."""
    written_by(cap, "normal", writes=0, extends=3)
    session = wait(cap, "IO:DataFileWrite", 0, 10)
    cap.delta(session, 0, 60, shared_blks_written=500)
    (finding,) = rows(cap, "BACKEND-WRITES")
    assert "wrote 30000 pages themselves" in finding.statement and finding.cost_s == pytest.approx(10)


def test_a_session_that_flushes_a_file_is_told_whatever_it_cost(cap: SyntheticCapture) -> None:
    written(cap, 100, 20_000, 20_000, fsyncs=7)
    (finding,) = rows(cap, "BACKEND-WRITES")
    assert finding.severity == "medium" and "7 times a session had to flush a file itself" in finding.statement


@pytest.mark.parametrize("case", ["bulk", "bulk before 16", "extends", "few", "reset", "by the writer"])
def test_writes_that_are_no_fault(cap: SyntheticCapture, case: str) -> None:
    if case == "bulk":
        written_by(cap, "bulkwrite", writes=90_000, write_time=50_000)
        written_by(cap, "vacuum", writes=90_000, write_time=50_000)
        wait(cap, "IO:DataFileWrite", 0, 10, statement_id=6)
    elif case == "bulk before 16":
        written(cap, 60_000, 0, 0)
        wait(cap, "IO:DataFileWrite", 0, 10, statement_id=6)
    elif case == "extends":
        written_by(cap, "normal", extends=90_000, extend_time=50_000)
        wait(cap, "IO:DataFileExtend", 0, 10)
    elif case == "few":
        written_by(cap, "normal", writes=200, write_time=100)
    elif case == "reset":
        cap.stat("pg_stat_bgwriter", "buffers_backend", 90_000, 3)
        wait(cap, "IO:DataFileWrite", 0, 10)
    else:
        written_by(cap, "normal", writes=10_000, write_time=5_000)
        cap.stat("pg_stat_bgwriter", "buffers_clean", 0, 90_000)
        wait(cap, "IO:DataFileWrite", 0, 5)
    assert rows(cap, "BACKEND-WRITES") == []


# -- SYNC-STANDBY-GONE --------------------------------------------------------------------------------------------------------


def names(cap: SyntheticCapture, wanted: str) -> None:
    cap.setting("synchronous_standby_names", wanted)


def test_commits_that_wait_for_a_standby_that_is_gone(cap: SyntheticCapture) -> None:
    names(cap, 'near, "Far away", s_3')
    cap.walsender("s_4", client_addr="10.0.0.5")
    cap.walsender("pg_basebackup")
    wait(cap, "IPC:SyncRep", 10, 60)
    wait(cap, "IPC:SyncRep", 30, 60)
    (finding,) = rows(cap, "SYNC-STANDBY-GONE")
    assert (finding.severity, finding.subject) == ("critical", "synchronous standby near, Far away, s_3")
    assert finding.cost_s == pytest.approx(80)
    assert finding.statement == (
        "2 sessions waited 80.0 s (72.7 % of database time) for commits that could not end, since 2025-10-09 08:53:30 UTC, "
        '50.0 s at the longest, and 2 still waited at the end: '
        'synchronous_standby_names = near, "Far away", s_3 needs one standby, but none was connected; '
        "missing: near, Far away, s_3; connected under a name that is not in the list: s_4 at 10.0.0.5"
    )
    assert "Start or reconnect near, Far away, s_3." in finding.action and "on what is connected as s_4 at 10.0.0.5" in finding.action
    assert "with the standbys that answer" not in finding.action
    assert [e["waited_s"] for e in finding.evidence] == [50.0, 30.0]
    assert rows(cap, "SYNCREP-BOUND") == []


@pytest.mark.parametrize(
    ("wanted", "connected", "missing", "fewer"),
    [
        ("ANY 2 (a,b,c)", ["A"], "b, c", "'ANY 1 (a,b,c)'"),
        ("2(a, b)", ["b"], "a", "'1(a, b)'"),
        ('first 3 ("a ""x""", b, "c,d")', ["a \"x\"", "b"], "c,d", "'first 2 (\"a \"\"x\"\"\", b, \"c,d\")'"),
        ("FIRST 1 (*)", [], "", ""),
        ("FIRST 2 (a)", ["a"], "", "'FIRST 1 (a)'"),
    ],
)  # fmt: skip
def test_fewer_standbys_than_the_setting_asks_for(
    cap: SyntheticCapture, wanted: str, connected: list[str], missing: str, fewer: str
) -> None:
    names(cap, wanted)
    for name in connected:
        cap.walsender(name)
    wait(cap, "IPC:SyncRep", 0, 60)
    (finding,) = rows(cap, "SYNC-STANDBY-GONE")
    assert finding.severity == "critical"
    assert finding.subject == f"synchronous standby {missing}".strip()
    assert ("; missing: " in finding.statement) == bool(missing)
    assert ("it lists fewer names than it needs" in finding.statement) == (wanted == "FIRST 2 (a)")
    assert finding.action.partition("that answer: `ALTER SYSTEM SET synchronous_standby_names = ")[2].partition(";")[0] == fewer


@pytest.mark.parametrize(
    ("level", "says", "does"),
    [
        ("remote_write", "a took 10.0 ms to confirm: 100 % for the network round trip", "is the network round trip"),
        ("on", "a took 40.0 ms to confirm: 25 % for the network round trip, 75 % for its disk", "is the flush"),
        ("remote_apply", "100.0 ms to confirm: 10 % for the network round trip, 30 % for its disk, 60 % for replay", "is replay"),
    ],
)
def test_the_parts_of_a_synchronous_commit(cap: SyntheticCapture, level: str, says: str, does: str) -> None:
    """Beside the synchronous standby there is one that nobody waits for. What is shown while a flush is awaited does not count."""
    names(cap, "a")
    cap.setting("synchronous_commit", level)
    cap.walsender("a")
    for name, pid, times in (("a", 77, 1), ("archive", 78, 5)):
        lags = {"write_lag": 10_000 * times, "flush_lag": 40_000 * times, "replay_lag": 100_000 * times}
        for at in range(60):
            sender = {"ts": cap.ts(at), "node": 1, "pid": pid, "application_name": name, "state": "streaming"}
            cap.add("walsender", **sender, **lags, write_lsn=9, flush_lsn=9, replay_lsn=9)
            cap.add("walsender", **sender | {"ts": cap.ts(at + 0.5)}, write_lag=10, flush_lag=10, write_lsn=9, flush_lsn=8, replay_lsn=8)
    wait(cap, "IPC:SyncRep", 0, 60)
    (slow,) = rows(cap, "SYNCREP-BOUND")
    assert slow.statement.endswith(says) and f"Most of the time {does}" in slow.action and "Run `SELECT application_name" not in slow.action


def test_two_synchronous_standbys_have_no_parts(cap: SyntheticCapture) -> None:
    names(cap, "ANY 1 (a, b)")
    cap.setting("synchronous_commit", "on")
    lags = {"write_lag": 1000, "flush_lag": 2000, "write_lsn": 9, "flush_lsn": 9}
    for name, pid in (("a", 77), ("b", 78)):
        cap.walsender(name)
        for at in range(20):
            sender = {"ts": cap.ts(at), "node": 1, "pid": pid, "application_name": name, "state": "streaming"}
            cap.add("walsender", **sender, **lags, sync_state="quorum")
    wait(cap, "IPC:SyncRep", 0, 60)
    (slow,) = rows(cap, "SYNCREP-BOUND")
    assert "to confirm" not in slow.statement and "Run `SELECT application_name" in slow.action


def test_a_standby_that_returns_is_no_longer_critical(cap: SyntheticCapture) -> None:
    names(cap, "a")
    cap.walsender("a", 0, 20)
    cap.walsender("a", 30, 60)
    wait(cap, "IPC:SyncRep", 20, 30)
    wait(cap, "IPC:SyncRep", 35, 55)
    (finding,) = rows(cap, "SYNC-STANDBY-GONE")
    assert (finding.severity, finding.cost_s) == ("high", pytest.approx(10))
    (slow,) = rows(cap, "SYNCREP-BOUND")
    assert slow.cost_s == pytest.approx(20)


def test_a_standby_that_is_connected_but_behind(cap: SyntheticCapture) -> None:
    """What it answers does not count before it has all WAL; the server says so."""
    names(cap, "a")
    cap.walsender("a")
    cap.stat("pg_stat_replication", "sync_priority", 1, 1, obj="a//77")
    cap.stat("pg_stat_replication", "streaming", 0, 0, obj="a//77")
    wait(cap, "IPC:SyncRep", 0, 60)
    (finding,) = rows(cap, "SYNC-STANDBY-GONE")
    assert finding.statement.endswith("a standby is connected, but it still copies WAL that it missed")
    assert "Start or reconnect" not in finding.action and "counts as soon as it streams" in finding.action


@pytest.mark.parametrize("hidden", [False, True])
def test_a_slow_standby_is_not_missing(cap: SyntheticCapture, hidden: bool) -> None:
    """Nor is one that connects again at once, nor one that the user may not see."""
    names(cap, "ANY 2 (a, b)")
    cap.walsender("a")
    if hidden:
        cap.sample(cap.add_session(), "hidden", None, 0, 60)
    else:
        cap.walsender("b", 0, 30)
        cap.walsender("b", 30.5, 60)
    wait(cap, "IPC:SyncRep", 0, 60)
    assert rows(cap, "SYNC-STANDBY-GONE") == []
    (slow,) = rows(cap, "SYNCREP-BOUND")
    assert slow.cost_s == pytest.approx(60 if hidden else 59.5)


# -- STORAGE-SLOW -------------------------------------------------------------------------------------------------------------


def device(cap: SyntheticCapture, write_ms: float = 0, flush_ms: float = 0, read_ms: float = 0, name: str = "sda") -> None:
    """50 writes and flushes and 100 reads a second, which take so long."""
    cap.fact("storage.wal", name)
    cap.fact("storage.data", name)
    cap.add("mount", mount_point="/", device=f"/dev/{name}1", fstype="ext4", holds="data,wal")
    given = {"reads": 100, "read_ns": read_ms * 1e8, "writes": 50, "write_ns": write_ms * 5e7, "flushes": 50 if flush_ms else 0}
    for second in range(1, 61):
        cap.add("device_delta", ts=cap.ts(second), dt_ns=10**9, device="sda", flush_ns=flush_ms * 5e7, **given)


def flushed(cap: SyntheticCapture, times: int, timed_s: float = 0) -> None:
    cap.stat("pg_stat_wal", "wal_sync", 5, 5 + times)
    cap.stat("pg_stat_wal", "wal_sync_time", 0, 1e3 * timed_s)


def test_a_slow_device(cap: SyntheticCapture) -> None:
    device(cap, write_ms=6, flush_ms=10)
    wait(cap, "IO:WALSync", 0, 60)
    flushed(cap, 3000, 59)
    (finding,) = rows(cap, "STORAGE-SLOW")
    assert (finding.subject, finding.severity, finding.cost_s) == ("flushes of the WAL", "high", pytest.approx(60))
    assert finding.statement.endswith(
        ": 19.7 ms each; device sda took 16.0 ms for a write and the flush of its cache. It is the device"
    )
    assert "The device sda needs this time" in finding.action and "Raise or remove" not in finding.action


def test_a_limit_of_the_control_group_holds_writes_back(cap: SyntheticCapture) -> None:
    device(cap, write_ms=0.5)
    wait(cap, "IO:WALSync", 0, 60)
    cap.fact("cgroup.io_max.sda", "wbps=1000000 wiops=50")
    cap.fact("cgroup.io_max.sdb", "wiops=1")
    (finding,) = rows(cap, "STORAGE-SLOW")  # 13 does not count flushes: 3000 writes of the device stand for them
    assert ": about 20.0 ms each; device sda took 0.5 ms for each write. " in finding.statement
    assert "It is a limit of the control group (wbps=1000000 wiops=50)" in finding.statement
    assert "Raise or remove the limit for sda: wbps=1000000 wiops=50." in finding.action


@pytest.mark.parametrize("where", ["above", "network", "limit of reads only"])
def test_what_lies_above_the_device(cap: SyntheticCapture, where: str) -> None:
    wait(cap, "IO:WALSync", 0, 60)
    flushed(cap, 3000)
    if where == "network":
        cap.add("device_delta", ts=cap.ts(1), dt_ns=10**9, device="sda")
        cap.fact("kernel.release", "6")
        cap.add("mount", mount_point="/", device="nas:/pg", fstype="nfs4", holds="data,wal,temp")
    else:
        device(cap, write_ms=0.5, flush_ms=1)
    if where == "limit of reads only":
        cap.fact("cgroup.io_max.sda", "rbps=1000000")
    (finding,) = rows(cap, "STORAGE-SLOW")
    above = "It is neither the device nor a limit of the control group: the file system (ext4)"
    assert ("The file system (nfs4) is on no block device" if where == "network" else above) in finding.statement
    assert "Look at the file system" in finding.action


def test_sessions_that_wait_for_a_cpu_after_their_flush(cap: SyntheticCapture) -> None:
    device(cap, write_ms=0.2)
    session = wait(cap, "IO:WALSync", 0, 60)
    flushed(cap, 3000)
    cap.delta(session, 0, 60, cpu_run_ns=10_000_000, cpu_queue_ns=700_000_000)
    (finding,) = rows(cap, "STORAGE-SLOW")
    assert "It is the CPU: after the flush had ended, the sessions waited 42.0 s more to run" in finding.statement
    assert finding.cost_s == pytest.approx(18, rel=1e-3)


def test_slow_reads_are_told_apart_from_the_page_cache(cap: SyntheticCapture) -> None:
    """6000 reads of the device among 60000 blocks: 1 ms each on average."""
    device(cap, read_ms=9)
    session = wait(cap, "IO:DataFileRead", 0, 60)
    cap.delta(session, 0, 60, shared_blks_read=1000)
    (finding,) = rows(cap, "STORAGE-SLOW")
    assert finding.subject == "reads of data files"
    assert "about 1.0 ms each; device sda took 9.0 ms for each read. It is the device" in finding.statement


@pytest.mark.parametrize("case", ["quick", "seldom", "cached"])
def test_storage_that_is_well(cap: SyntheticCapture, case: str) -> None:
    device(cap, write_ms=0.5, read_ms=9 if case == "cached" else 0.3)
    session = wait(cap, "IO:DataFileRead" if case == "cached" else "IO:WALSync", 0, 3 if case == "seldom" else 60)
    flushed(cap, 100 if case == "seldom" else 60_000)
    if case == "cached":
        cap.delta(session, 0, 60, shared_blks_read=20_000)
        for second in range(1, 61):  # the device has nearly nothing to do
            cap.add("device_delta", ts=cap.ts(second), dt_ns=10**9, device="sda", reads=10_000, read_ns=1000)
    assert rows(cap, "STORAGE-SLOW") == []


# -- SLOW-LOADER --------------------------------------------------------------------------------------------------------------


def loader(cap: SyntheticCapture, waiting: int, working: int, query: str) -> int:
    session = cap.add_session(application_name="etl", client_addr="10.0.0.9")
    cap.cycle(session, [("active", "Client:ClientRead", waiting), ("active", None, working)], 0, 60, statement_id=77)
    cap.add("statement", statement_id=77, id_source="server", query=query)
    return session


def test_a_load_that_waits_for_its_loader(cap: SyntheticCapture) -> None:
    session = loader(cap, 9, 1, 'copy "Shop"."order lines" (a, b)\n FROM  STDIN with (format binary)')
    for metric, grown in (("bytes_processed", 6e7), ("tuples_processed", 600)):
        cap.stat("pg_stat_progress_copy", metric, 5, 5 + grown, obj=f"shop/{cap.pids[session]}")
    (finding,) = rows(cap, "SLOW-LOADER")
    assert finding.subject == 'COPY into "Shop"."order lines" by application etl from 10.0.0.9'
    assert (finding.severity, finding.cost_s) == ("medium", pytest.approx(54))
    assert "waited 54.0 of 60.0 s (90 %, 60.0 % of database time) for its client to send data, in 1 session" in finding.statement
    assert finding.statement.endswith("; it took 0.95 MB and 10 rows a second")
    assert "about 10.0 times as fast" in finding.action and 'load "Shop"."order lines" over several' in finding.action


@pytest.mark.parametrize("case", ["server is the limit", "copy to", "another statement", "file"])
def test_loads_that_do_not_wait_for_their_loader(cap: SyntheticCapture, case: str) -> None:
    queries = {"copy to": "copy t to stdout", "another statement": "insert into t values ($1)", "file": "copy t from '/tmp/from stdin.csv'"}
    loader(cap, 4 if case == "server is the limit" else 9, 6, queries.get(case, "copy t from stdin"))
    assert rows(cap, "SLOW-LOADER") == []


# -- STATEMENT-STORM ----------------------------------------------------------------------------------------------------------


def storm(
    cap: SyntheticCapture, idle: int = 8, rate: float = 400, state: str = "idle", age_s: float = 0.001, statements: int = 1, port: int = -1
) -> int:
    """One connection that runs a statement again and again: of 10 passes, so many meet it idle."""
    session = cap.add_session(application_name="shop", client_addr="10.0.0.9", client_port=port)
    for n in range(statements):
        step: list[tuple[str | None, str | None, int]] = [(state, "Client:ClientRead", idle), ("active", None, 10 - idle)]
        cap.cycle(session, step, 60 * n / statements, 60 * (n + 1) / statements, xact_age_s=age_s, state_age_s=age_s, statement_id=500 + n)
        cap.add("statement", statement_id=500 + n, id_source="server", query="select * from item where id = $1")
    cap.delta(session, 0, 60, status_changes=4 * rate, voluntary_ctxt_switches=rate)
    return session


def test_one_statement_again_and_again(cap: SyntheticCapture) -> None:
    storm(cap)
    (finding,) = rows(cap, "STATEMENT-STORM")
    assert (finding.subject, finding.severity) == ("application shop from 10.0.0.9, statement 500", "low")
    assert finding.cost_s == pytest.approx(48) and finding.share_of_db_time is None
    assert "ran one statement about 400 times a second on 1 connection, each time in a transaction of its own" in finding.statement
    assert "spent 48.0 of 60.0 s outside the database between two runs: 2.00 ms each. Statement: select * from item" in finding.statement
    assert "Each round trip takes" not in finding.action


def test_samples_without_their_statement_belong_to_the_loop(cap: SyntheticCapture) -> None:
    session = storm(cap)
    cap.sample(session, "idle", "Client:ClientRead", 10, 20, state_age_s=0.001)
    (finding,) = rows(cap, "STATEMENT-STORM")
    assert finding.cost_s == pytest.approx(50)


def test_the_server_counts_the_statements_and_the_kernel_times_the_network(cap: SyntheticCapture) -> None:
    session = storm(cap, port=999)
    cap.stat("pg_stat_statements", "calls", 100, 30_100, obj="500")
    cap.add("tcp_sample", ts=cap.ts(1), cookie=1, pid=cap.pids[session], remote_port=999, rtt=1500, min_rtt=1200)
    (finding,) = rows(cap, "STATEMENT-STORM")
    assert "ran one statement 500 times a second" in finding.statement
    assert "1.60 ms each, of which the network takes at least 1.20 ms" in finding.statement and finding.severity == "medium"
    assert "Each round trip takes 1.20 ms in the network" in finding.action


def test_the_end_of_a_transaction_is_not_what_the_application_asks_for(cap: SyntheticCapture) -> None:
    """The pause follows the COMMIT of a transaction that is too short for a sample to see it idle."""
    session = storm(cap)
    cap.add("statement", statement_id=7, id_source="text", query="COMMIT")
    cap.cycle(session, [("idle", "Client:ClientRead", 8), ("active", None, 2)], 0, 50, state_age_s=0.001, statement_id=7)
    for n in range(50):
        cap.sample(session, "active", None, n, n + 0.01, statement_id=500)
    (finding,) = rows(cap, "STATEMENT-STORM")
    assert finding.subject == "application shop from 10.0.0.9, statement 500" and finding.cost_s == pytest.approx(48, abs=1)


def test_a_connection_of_a_pooler_serves_two_applications(cap: SyntheticCapture) -> None:
    """It takes 300 statements a second of one, 100 of the other, and sets the name of each before."""
    session = cap.add_session(application_name="shop", client_addr="10.0.0.9")
    cap.delta(session, 0, 60, status_changes=1600, voluntary_ctxt_switches=400)
    queries = ("select * from item where id = $1", "select * from stock where id = $1", "SET application_name='x'")
    for number, query in enumerate(queries):
        cap.add("statement", statement_id=500 + number, id_source="server", query=query)
    for second in range(60):
        name, statement = ("stock", 501) if second % 4 == 3 else ("shop", 500)
        cap.describe(session, second, application_name=name, client_addr="10.0.0.9")
        step: list[tuple[str | None, str | None, int]] = [("idle", "Client:ClientRead", 8), ("active", None, 1)]
        cap.cycle(session, step, second, second + 0.9, state_age_s=0.001, statement_id=statement)
        cap.sample(session, "active", None, second + 0.9, second + 1, statement_id=502)
    first, second_one = rows(cap, "STATEMENT-STORM")
    assert (first.subject, second_one.subject) == (
        "application shop from 10.0.0.9, statement 500", "application stock from 10.0.0.9, statement 501"
    )  # fmt: skip
    assert (first.cost_s, second_one.cost_s) == (pytest.approx(36, rel=0.01), pytest.approx(12, rel=0.01))
    assert "about 300 times a second" in first.statement and "about 100 times a second" in second_one.statement


def test_a_statement_of_two_applications_is_counted_once(cap: SyntheticCapture) -> None:
    storm(cap)
    other = storm(cap)
    cap.describe(other, 0.001, application_name="stock", client_addr="10.0.0.9")
    cap.stat("pg_stat_statements", "calls", 100, 60_100, obj="500")
    assert all("ran one statement about 500 times a second" in f.statement for f in rows(cap, "STATEMENT-STORM"))


@pytest.mark.parametrize(
    "change", [{"idle": 3}, {"rate": 20}, {"state": "idle in transaction"}, {"age_s": 2.0}, {"statements": 2}], ids=lambda c: next(iter(c))
)
def test_connections_that_are_no_storm(cap: SyntheticCapture, change: dict[str, Any]) -> None:
    """Mostly at work, seldom, in a transaction (CHATTY-APP), with long pauses, or with several statements."""
    storm(cap, **change)
    assert rows(cap, "STATEMENT-STORM") == []
