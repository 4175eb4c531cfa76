"""The SQL tier: its samples say what pg_stat_activity says, its blockers are those of pg_blocking_pids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from books import Run
from conftest import Server, wait_until
from leadline import _core
from leadline.capture.reader import Capture, open_capture
from leadline.capture.views import with_what_they_read
from leadline.engines.postgres.probes.sql_locks import MODES, LockRow, blocked, conflicts
from leadline.errors import LeadlineError
from leadline.findings import all_findings, evaluate
from leadline.probes.take import take
from psycopg.conninfo import make_conninfo


@contextmanager
def blocked_sessions(server: Server) -> Iterator[dict[str, int]]:
    """root (idle in transaction) <- update <- lock table <- select queued behind it; one advisory wait. Gives the pids."""
    server.sql("drop table if exists chain")
    server.sql("create table chain(id int primary key, v int)")
    server.sql("insert into chain values (1, 0), (2, 0)")
    names = ("root", "updater", "locker", "reader", "advisory")
    conns = {name: server.connect(application_name=f"chain {name}") for name in names}
    pids = {name: conn.info.backend_pid for name, conn in conns.items()}
    conns["root"].execute("begin")
    conns["root"].execute("update chain set v = 1 where id = 1")
    conns["root"].execute("select pg_advisory_lock(77, 5)")
    waits = {
        "updater": "update chain set v = 2 where id = 1",
        "locker": "lock table chain in access exclusive mode",
        "reader": "select * from chain",
        "advisory": "select pg_advisory_lock(77, 5)",
    }
    try:
        for name, statement in waits.items():
            if name == "locker":
                conns[name].execute("begin")
            conns[name].pgconn.send_query(statement.encode())
            waiting = f"select 1 from pg_stat_activity where pid = {pids[name]} and wait_event_type = 'Lock'"
            wait_until(lambda waiting=waiting: server.sql(waiting), what=f"{name} waits for a lock")
        yield pids
    finally:
        for pid in pids.values():
            server.sql(f"select pg_terminate_backend({pid})")
        for conn in conns.values():
            conn.close()


@contextmanager
def running(server: Server, application_name: str, statement: str) -> Iterator[int]:
    """A session that executes one long statement for the time of the block. Gives its pid."""
    conn = server.connect(application_name=application_name)
    try:
        conn.pgconn.send_query(statement.encode())
        active = f"select 1 from pg_stat_activity where pid = {conn.info.backend_pid} and state = 'active'"
        wait_until(lambda: server.sql(active), what=f"{application_name} is active")
        yield conn.info.backend_pid
    finally:
        server.sql(f"select pg_terminate_backend({conn.info.backend_pid})")
        conn.close()


def capture_of(server: Server, tmp_path: Path, **options: Any) -> Capture:
    path = take(**{"dsn": server.dsn, "tier": "sql", "rate_hz": 10, "for_s": 2.0, "out": tmp_path / "c.leadline", **options})
    return open_capture(path)


def test_blockers_are_those_of_pg_blocking_pids(pg: Server, tmp_path: Path) -> None:
    with blocked_sessions(pg) as pids:
        expected = {
            (pid, blocker) for pid, blockers in pg.sql("select pid, pg_blocking_pids(pid) from pg_stat_activity") for blocker in blockers
        }
        capture = capture_of(pg, tmp_path)
    assert {(r["pid"], r["blocker_pid"]) for r in capture.rows("select distinct pid, blocker_pid from lock_wait")} == expected
    roots = capture.rows("select distinct pid, root_pid from lock_chain")
    assert {r["root_pid"] for r in roots} == {pids["root"]} and {r["pid"] for r in roots} == set(pids.values()) - {pids["root"]}
    rows = {r["pid"]: r for r in capture.rows("select * from lock_wait order by blocker_kind desc")}
    assert (rows[pids["updater"]]["locktype"], rows[pids["updater"]]["mode"]) == ("transactionid", "ShareLock")
    assert (rows[pids["locker"]]["locktype"], rows[pids["locker"]]["mode"]) == ("relation", "AccessExclusiveLock")
    assert (rows[pids["advisory"]]["classid"], rows[pids["advisory"]]["objid"]) == (77, 5)
    oid = pg.sql("select 'chain'::regclass::oid")[0][0]
    assert rows[pids["reader"]]["relid"] == oid and rows[pids["reader"]]["blocker_kind"] == "queue"
    if pg.major >= 14:
        now_us = time.time() * 1e6
        assert all(now_us - 60e6 < r["wait_start"] < now_us for r in rows.values())
    spent = capture.scalar(f"select sum(period_ns) / 1e9 from lock_wait where pid = {pids['updater']}")
    assert 1.0 <= spent <= 3.0


def test_samples_say_what_pg_stat_activity_says(pg: Server, tmp_path: Path) -> None:
    """Sessions that do not change: every sample of each must carry the state, wait and times the view shows."""
    query = """
        select pid, state, wait_event_type, wait_event, datname, usename, application_name, backend_type,
               (extract(epoch from backend_start) * 1000000)::int8, (extract(epoch from state_change) * 1000000)::int8
        from pg_stat_activity where application_name like 'chain %' or application_name = 'resting' """
    with blocked_sessions(pg), pg.connect(application_name="resting") as idle:
        idle.execute("select 'rest'")
        expected = {row[0]: row[1:] for row in pg.sql(query)}
        capture = capture_of(pg, tmp_path)
    rows = capture.rows("""
        select s.pid, s.state, s.wait_event_type, s.wait_event, s.datname, s.usename, s.application_name, s.backend_type, s.backend_start,
               max(t.state_change) as state_change, count(*) as samples
        from session_sample s join session_tick t using (ts, session_id)
        where application_name like 'chain %' or application_name = 'resting' group by all""")
    found = {r["pid"]: tuple(r.values())[1:-1] for r in rows}
    assert len(expected) == 6 and found == expected
    assert {r["samples"] for r in rows} == {capture.scalar("select count(*) from tick")}


def test_the_sampler_does_not_sample_itself(servers: Callable[[int], Server], tmp_path: Path) -> None:
    capture = capture_of(servers(16), tmp_path)
    assert capture.rows("select * from session where application_name = 'leadline'") == []
    # Autovacuum may be at work beside it.
    assert capture.rows("select * from session_sample where in_db_time and backend_type = 'client backend'") == []


def test_passes_and_cost_are_counted(servers: Callable[[int], Server], tmp_path: Path) -> None:
    capture = capture_of(servers(16), tmp_path, for_s=3.0)
    ticks = capture.rows("select count(*) as taken, sum(missed) as missed, max(period_ns) as period from tick")[0]
    assert ticks["period"] == 100_000_000 and 27 <= ticks["taken"] + ticks["missed"] <= 31
    assert capture.manifest.probe("sessions").loss["ticks_taken"] == ticks["taken"]
    assert capture.scalar("select max(cpu_user_ns + cpu_system_ns) from self_cost where component = 'sampler'") > 0
    assert 0 < capture.manifest.cost.cpu_percent_of_core < 100


def test_a_rate_beyond_ten_is_clamped_and_said(servers: Callable[[int], Server], tmp_path: Path) -> None:
    capture = capture_of(servers(16), tmp_path, rate_hz=250, for_s=0.5)
    assert capture.manifest.probe("sessions").rate_hz == 10.0
    assert any("250 passes per second" in note for note in capture.manifest.notes)


def test_statements_are_normalised_and_joined(servers: Callable[[int], Server], tmp_path: Path) -> None:
    for major in (13, 18):
        server = servers(major)
        with running(server, "sleeper", "select pg_sleep(9), 'geheim-literal'"):
            capture = capture_of(server, tmp_path / str(major), for_s=0.6)
        texts = capture.rows("""select distinct query, id_source, truncated from session_tick join statement using (statement_id)
                                where wait_event_info <> 0 and query like '%pg_sleep%'""")
        assert texts == [{"query": "select pg_sleep($1), $2", "id_source": "text", "truncated": False}]
        assert b"geheim" not in b"".join(p.read_bytes() for p in capture.path.rglob("*.parquet"))


def test_the_servers_query_id_is_used(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(16, compute_query_id="on")
    with running(server, "sleeper", "select pg_sleep(9)") as pid:
        query_id = server.sql(f"select query_id from pg_stat_activity where pid = {pid}")[0][0]
        capture = capture_of(server, tmp_path, for_s=0.6)
    assert capture.rows("select id_source, query from statement where statement_id = $1", [query_id]) == [
        {"id_source": "server", "query": "select pg_sleep($1)"}
    ]


def test_what_the_user_may_not_see_is_said(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    server.sql("drop role if exists watcher")
    server.sql("create role watcher login")
    with server.connect(application_name="hidden one") as conn:
        conn.execute("select 'something'")
        capture = capture_of(server, tmp_path, dsn=f"{server.dsn} user=watcher", for_s=0.6)
    probe = capture.manifest.probe("sessions")
    assert probe.status == "partial" and probe.hint == "grant pg_monitor to watcher"
    assert capture.manifest.probe("sessions").loss["sessions_hidden"] >= 1
    assert capture.rows("select * from statement where query like '%privilege%'") == []


def test_cpu_of_each_backend_on_this_host(pg: Server, tmp_path: Path) -> None:
    with running(pg, "burner", "do $$begin for i in 1..2000000000 loop null; end loop; end$$"):
        capture = capture_of(pg, tmp_path, for_s=3.2)
    rows = capture.rows("""select sum(cpu_run_ns + cpu_queue_ns) / sum(dt_ns) as busy, sum(d.rchar) as rchar, count(*) as n
                           from session_delta d join session s using (session_id) where application_name = 'burner'""")
    assert rows[0]["n"] >= 2 and 0.5 < rows[0]["busy"] < 1.2
    buffers = capture.rows("select count(shared_blks_hit) as hits, count(temp_blks_written) as temp from session_delta")[0]
    assert (buffers["hits"] > 0) == (pg.major >= 18) and buffers["temp"] == 0
    assert capture.manifest.probe("deltas").status == "partial"


@pytest.mark.parametrize("stop", [True, False], ids=["stops", "goes-on"])
def test_a_lost_connection_is_made_again_or_ends_with_one_error(
    stop: bool, fresh_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = fresh_server(16)
    find = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'leadline'"
    done = threading.Event()

    def cut() -> None:
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            began = time.monotonic()
            while not done.is_set():  # the sampler's connection is the one that is there for more than a second
                if conn.execute(f"{find} and backend_start < now() - interval '1 second'").fetchall() or time.monotonic() - began > 20:
                    return
                done.wait(0.05)

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        with pytest.raises(LeadlineError) if stop else nullcontext() as caught:
            capture_of(server, tmp_path, for_s=20.0 if stop else 4.0, stop_with_server=stop)
    finally:
        done.set()
        cutter.join()
    capture = open_capture(tmp_path / "c.leadline")
    assert capture.scalar("select count(*) from session_sample") > 0
    if caught is not None:
        assert caught.value.kind == "gone" and "leadline show" in caught.value.hint
        assert capture.manifest.status == "failed" and capture.manifest.error["kind"] == "gone"
        return
    assert capture.manifest.status == "complete"
    gap = capture.rows("select cause, pid_before = pid_after as same, ts_to from server_gap")[0]
    assert (gap["cause"], gap["same"]) == ("connection", True)
    assert capture.scalar(f"select count(*) from tick where ts > {gap['ts_to']}") > 5
    assert capture.scalar("select count(*) - count(distinct session_id) from session where backend_type = 'checkpointer'") == 0


def test_a_sampler_that_breaks_is_an_error_and_not_a_short_capture(
    servers: Callable[[int], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.engines.postgres.probes.sql_tier._size_of", lambda folder: 1 / 0)
    with pytest.raises(LeadlineError) as caught:
        capture_of(servers(16), tmp_path, for_s=20.0)
    assert "programming error" in caught.value.message and "ZeroDivisionError" in caught.value.detail
    assert open_capture(tmp_path / "c.leadline").manifest.status == "failed"


# -- blockers, without a server ------------------------------------------------------------------------------------------


def lock(pid: int, mode: str, granted: bool, since: int = 0) -> LockRow:
    return LockRow("relation", 5, 16384, -1, -1, "", 0, 0, 0, 0, pid, mode, granted, since)


def test_conflicts_are_symmetric_and_as_in_the_manual() -> None:
    assert all(conflicts(a, b) == conflicts(b, a) for a in MODES for b in MODES)
    assert sum(conflicts(a, b) for a in MODES for b in MODES) == 38
    assert not conflicts("ShareLock", "SIReadLock")


def test_a_queue_is_named_only_where_it_is_in_the_way() -> None:
    rows = [
        lock(1, "AccessShareLock", True),
        lock(2, "AccessExclusiveLock", False, since=10),
        lock(3, "AccessShareLock", False, since=20),
        lock(4, "AccessShareLock", False, since=5),
    ]
    found = {(b.waiter.pid, b.blocker_pid, b.kind) for b in blocked(rows, {}, {})}
    assert found == {(2, 1, "holder"), (2, 4, "queue"), (3, 2, "queue")}


def test_a_parallel_group_does_not_block_itself() -> None:
    rows = [lock(10, "ExclusiveLock", True), lock(11, "ExclusiveLock", False), lock(20, "ExclusiveLock", False)]
    found = {(b.waiter.pid, b.blocker_pid) for b in blocked(rows, {11: 10}, {11: 1, 20: 2})}
    assert found == {(20, 10)}


def test_a_prepared_transaction_blocks_as_pid_zero() -> None:
    rows = [lock(0, "RowExclusiveLock", True), lock(7, "ShareLock", False)]
    assert [(b.blocker_pid, b.kind, b.blocker_mode) for b in blocked(rows, {}, {})] == [(0, "holder", "RowExclusiveLock")]


def test_any_text_normalises_in_time_of_its_length() -> None:
    began = time.process_time()
    for text in (
        "'" * 50_000,
        "/*" * 50_000,
        "$" * 50_000,
        "e'\\" * 30_000,
        "(1," * 30_000,
        "in (1" + ",1" * 50_000,
        "values (1)" + ",(1)" * 30_000,
        "values (1)" + ",(1,2,3,4,5" * 10_000,
    ):
        _core.recorder.normalise(text)
    assert time.process_time() - began < 5


def test_without_pg_monitor_what_is_hidden_is_said_first(servers: Callable[[int], Server], tmp_path: Path, leadline: Run) -> None:
    """No session becomes a server process, no rule that reads sessions claims to have looked, and waits for locks are still seen."""
    server = servers(16)
    server.sql("drop role if exists plain")
    server.sql("create role plain login")
    with blocked_sessions(server) as pids, running(server, "busy", "select pg_sleep(600)"):
        [[sessions, processes]] = server.sql(
            "select count(*) filter (where datid is not null), count(*) filter (where datid is null) from pg_stat_activity"
            " where pid <> pg_backend_pid() and backend_type not in ('autovacuum worker', 'parallel worker')"
        )
        capture = capture_of(server, tmp_path, dsn=make_conninfo(server.dsn, user="plain"), for_s=3.0)
    manifest = capture.manifest.probe("sessions")
    assert manifest.status == "partial" and manifest.hint == "grant pg_monitor to plain"
    assert sessions <= manifest.loss["sessions_hidden"] <= sessions + 3 and manifest.loss["server_processes_hidden"] >= processes
    assert capture.rows("select distinct state from session_sample") == [{"state": "hidden"}]
    assert {r["pid"] for r in capture.rows("select distinct pid from lock_wait")} == set(pids.values()) - {pids["root"]}

    evaluation = evaluate(capture)
    reads_sessions = [d.id for d in all_findings() if "session" in with_what_they_read(d.reads)]
    assert set(reads_sessions) & set(evaluation.clean) == set() and len(reads_sessions) > 20
    told = f"role plain may not see state, wait and statement of {manifest.loss['sessions_hidden']} sessions of other roles and "
    assert evaluation.unseen.startswith(told) and evaluation.unseen.endswith("grant pg_monitor to plain")
    shown = leadline("show", str(capture.path)).stdout
    assert shown.index("not seen") < shown.index("Database time") and "server processes, working" not in shown
    assert "no session that may be seen was active" in shown and "hidden: may be database time" in shown
    assert leadline("findings", str(capture.path)).stdout.startswith("Not all was seen: role plain may not see")
    server.sql("grant pg_monitor to plain")
    seen = capture_of(server, tmp_path, dsn=make_conninfo(server.dsn, user="plain"), overwrite=True)
    assert seen.manifest.probe("sessions").status == "ok" and evaluate(seen).unseen == ""
    server.sql("drop role plain")
