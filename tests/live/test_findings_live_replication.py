"""Troubles of replication, planted into real pairs of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import LONG, Server, wait_until
from leadline.capture.reader import open_capture
from leadline.findings import Finding, evaluate
from replicating import MB, at, repeated, restarts, streaming, taken, writing
from standby import Standby

pytestmark = pytest.mark.live
MAJORS = list(range(13, 19)) if LONG else [13, 18]
RULES = ["REPLAY-EVICTS", "WALSENDER-READ", "CASCADE-HOP", "LOGICAL-APPLY-BOUND", "RESTARTPOINT-LAG", "STANDBY-DISK-FILLS"]


def found(path: Path, **thresholds: float) -> dict[str, Finding]:
    with closing(open_capture(path)) as capture:
        evaluation = evaluate(capture, RULES, thresholds)
    assert not [reason for _, reason in evaluation.not_evaluated if "query" in reason]
    return {finding.id: finding for finding in evaluation.findings}


@contextmanager
def subscribed(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """Table t of one database is copied to another of the same server, to which this is a connection."""
    server.sql("create database behind")
    server.sql("create table t(id int)")
    server.sql("create publication p for table t")
    server.sql("select pg_create_logical_replication_slot('s', 'pgoutput')")
    source = psycopg.conninfo.make_conninfo(server.dsn, dbname="postgres").replace("'", "''")
    with server.connect(dbname="behind") as db:
        db.execute("create table t(id int)")
        slot = "create_slot = false, slot_name = s, copy_data = false"
        db.execute(f"create subscription s connection '{source}' publication p with ({slot})".encode())
        wait_until(lambda: server.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the subscription")
        try:
            yield db
        finally:
            db.execute("alter subscription s disable")
            db.execute("alter subscription s set (slot_name = none)")
            db.execute("drop subscription s")


@pytest.mark.parametrize("major", MAJORS)
def test_an_apply_worker_that_needs_a_whole_cpu(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """The subscriber has a trigger that computes for each row."""
    server = fresh_server(major, wal_level="logical")
    busy = "select 1 from pg_stat_activity where backend_type like 'logical replication%' and datname = 'behind' and wait_event is null"
    with subscribed(server) as db:
        db.execute("""create function slow() returns trigger language plpgsql as $$
            declare x bigint := 0; begin for i in 1..20000 loop x := x + i; end loop; return new; end $$""")
        db.execute("create trigger slow before insert on t for each row execute function slow()")
        db.execute("alter table t enable always trigger slow")
        server.sql("insert into t select generate_series(1, 200000)")
        wait_until(lambda: server.sql(busy), what="its work")
        path = taken(tmp_path / "x.leadline", lambda: None, pid=server.pid, dsn=server.dsn, for_s=12.0)
    finding = found(path, apply_behind_s=8.0)["LOGICAL-APPLY-BOUND"]
    assert "database behind" in finding.subject and "worked for " in finding.statement, finding.statement


@pytest.mark.parametrize("major", MAJORS)
def test_an_apply_worker_that_keeps_up_is_no_finding(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major, wal_level="logical")
    rows = "insert into t select generate_series(1, 100); select pg_sleep(0.02)"
    with subscribed(server), repeated(server.dsn, rows):
        path = taken(tmp_path / "x.leadline", lambda: None, pid=server.pid, dsn=server.dsn, for_s=12.0)
    idle = "backend_type like 'logical replication%' and wait_event = 'LogicalApplyMain'"
    with closing(open_capture(path)) as capture:
        assert capture.scalar(f"select count(*) from session_sample where {idle}") > 0
    assert found(path, apply_behind_s=5.0) == {}


@pytest.mark.parametrize("major", MAJORS)
def test_replay_that_writes_the_pages_that_it_evicts(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """The standby has hardly a cache, and no background writer that makes room."""
    server = fresh_server(major, full_page_writes=False)
    server.sql("create table t as select i as id, repeat('x', 500) as filler from generate_series(1, 100000) i")
    server.sql("create index on t(id)")
    with Standby(server.private, shared_buffers="512kB", bgwriter_lru_maxpages="0") as standby:
        wait_until(lambda: server.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the stream")
        with repeated(
            server.dsn, "update t set filler = filler where id in (select (random() * 100000)::int from generate_series(1, 500))"
        ):
            path = taken(tmp_path / "x.leadline", lambda: None, dsn=standby.dsn, others=[server.dsn], for_s=10.0)
    finding = found(path, evict_s=0.05, evict_part=0.0)["REPLAY-EVICTS"]
    assert "to write pages out of its cache" in finding.statement and "; shared_buffers has 0.5 MB" in finding.statement, finding.statement


@pytest.mark.parametrize("major", MAJORS)
def test_a_walsender_that_reads_from_the_cache_of_the_kernel_is_no_finding(
    fresh_server: Callable[..., Server], tmp_path: Path, major: int
) -> None:
    server = fresh_server(major, wal_keep_size="3GB")
    with streaming(server) as (_, standby), restarts(standby) as restart:
        standby.stop()
        for _ in range(4):
            server.sql("select count(pg_logical_emit_message(true, 'test', repeat(md5(i::text), 3000))) from generate_series(1, 4000) i")
        path = taken(tmp_path / "x.leadline", restart, pid=server.pid, dsn=server.dsn, for_s=8.0)
    with closing(open_capture(path)) as capture:
        reads = "backend_type = 'walsender' and lower(wait_event) = 'walread'"
        assert capture.scalar(f"select count(*) from session_sample where {reads}") > 0
    assert found(path) == {}


def write(server: Server, standby: Standby, megabytes: int) -> None:
    """So much WAL, which the standby has then replayed."""
    server.sql("select count(pg_logical_emit_message(true, 'test', repeat('x', 1048576))) from generate_series(1, %s)", [megabytes])
    made = server.sql("select pg_current_wal_flush_lsn()::text")[0][0]
    wait_until(lambda: at(standby.dsn, f"select pg_last_wal_replay_lsn() >= '{made}'"), what="replay")


@pytest.mark.parametrize("major", MAJORS)
def test_a_standby_without_restartpoints(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """The primary makes no checkpoint for 100 MB, three times what the standby has as max_wal_size. Then it makes one, and the standby its
    restartpoint."""
    server = fresh_server(major, checkpoint_timeout="1h", max_wal_size="4GB")
    with Standby(server.private, max_wal_size="32MB", min_wal_size="32MB") as standby:
        standby.until_streaming()
        write(server, standby, 100)
        distance = "select pg_wal_lsn_diff(pg_last_wal_replay_lsn(), redo_lsn)::float8 from pg_control_checkpoint()"
        low = at(standby.dsn, distance)
        path = taken(tmp_path / "x.leadline", lambda: write(server, standby, 3), dsn=standby.dsn, for_s=3.0)
        finding = found(path, restartpoint_bytes=50e6)["RESTARTPOINT-LAG"]
        [evidence] = finding.evidence
        assert 100 * MB < low < evidence["replayed_bytes"] <= at(standby.dsn, distance)
        assert evidence["max_wal_bytes"] == 32 * MB and "none was finished in the capture" in finding.statement
        server.sql("checkpoint")
        write(server, standby, 1)
        at(standby.dsn, "checkpoint")
        path = taken(tmp_path / "y.leadline", lambda: None, dsn=standby.dsn, for_s=1.0)
        assert found(path, restartpoint_bytes=0) == {}


@pytest.mark.parametrize("major", MAJORS)
def test_wal_that_a_standby_does_not_replay(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """1 MB of WAL a second at most. Replay goes on in the first capture, and is paused before the second."""
    with streaming(fresh_server(major)) as (server, standby), writing(server.dsn):
        captures = []
        for name in ("clean", "paused"):
            if name == "paused":
                at(standby.dsn, "select pg_wal_replay_pause()")
            captures.append(taken(tmp_path / f"{name}.leadline", lambda: None, dsn=server.dsn, others=[standby.dsn], for_s=5.0))
        at(standby.dsn, "select pg_wal_replay_resume()")
    clean, paused = (found(path, fills_s=1e12, fills_bytes=500_000.0) for path in captures)
    assert clean == {}
    (finding,) = paused.values()
    [row] = finding.evidence
    with closing(open_capture(captures[1])) as capture:
        grown = capture.scalar("select max(unreplayed_bytes) from replication_lag where is_standby")
        free = capture.scalar("select wal_free_bytes from replication_node where node = 2")
    assert (finding.id, row["wal_free_bytes"]) == ("STANDBY-DISK-FILLS", free)
    assert row["growth_bytes_per_s"] * 5 == pytest.approx(grown, rel=0.2)
