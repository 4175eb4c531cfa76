"""A primary, a standby and a standby of that: who holds the last one up, and what is said while servers come and go."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from conftest import LONG, Server, wait_until
from host_changes import forget_pages, loop_disk, writes_limited
from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError
from leadline.findings import SEVERITIES, Finding, evaluate
from leadline.probes.take import take
from replicating import MB, at, restarts, taken, writing
from standby import Standby

pytestmark = pytest.mark.live
MAJORS = [13, 18]
ALSO_LONG = [*([13] if LONG else []), 18]  # what takes 20 s each
RULES = ["STANDBY-BEHIND", "CASCADE-HOP", "WALSENDER-READ", "LAG-BLIND", "REPLAY-PAUSED", "REPLAY-SATURATED", "SLOT-LOST"]


@contextmanager
def cascade(server: Server, middle_at: Path | None = None) -> Iterator[tuple[Standby, Standby]]:
    with Standby(server.private, middle_at) as middle:
        middle.until_streaming()
        with Standby(middle) as last:
            middle.until_streaming()
            last.until_streaming()
            yield middle, last


def found(capture: Capture, **thresholds: float) -> dict[str, Finding]:
    evaluation = evaluate(capture, RULES, thresholds)
    assert evaluation.not_evaluated == []
    return {finding.id: finding for finding in evaluation.findings}


def nothing_is_found(capture: Capture) -> None:
    assert [f.statement for f in found(capture).values() if SEVERITIES.index(f.severity) < SEVERITIES.index("low")] == []


def name_of(server: Server | Standby) -> str:
    private = server.private if isinstance(server, Server) else server
    return f"{private.socket_dir}:{private.port}"


def walsender_of(server: Standby) -> int:
    return int(at(server.dsn, "select pid from pg_stat_replication"))


def follow(standby: Standby, conninfo: str) -> None:
    """Where it gets its WAL from now on; it is not waited for."""
    text = conninfo.replace("'", "''")
    with psycopg.connect(standby.dsn, autocommit=True) as db:
        db.execute(f"alter system set primary_conninfo = '{text}'".encode())
        db.execute("select pg_reload_conf()")


@pytest.mark.parametrize("major", MAJORS)
def test_a_cascade_that_keeps_up_is_no_finding(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major)
    with cascade(server) as (middle, last):
        with writing(server.dsn):
            path = taken(tmp_path / "x.leadline", lambda: None, dsn=server.dsn, others=[middle.dsn, last.dsn], for_s=6.0)
        with closing(open_capture(path)) as capture:
            nothing_is_found(capture)
            lags = capture.rows("select node, median(lag_s) as lag_s, count(*) as n from replication_lag where is_standby group by node")
            assert sorted(row["node"] for row in lags) == [2, 3] and all(row["lag_s"] < 1 and row["n"] > 100 for row in lags)
            senders = capture.rows("select distinct node from walsender where not is_logical order by node")
            assert [row["node"] for row in senders] == [1, 2]


@pytest.mark.parametrize("major", MAJORS)
def test_the_second_hop_is_cut(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """The walsender of the middle sends nothing more and closes nothing."""
    server = fresh_server(major)
    with cascade(server) as (middle, last):
        sender = walsender_of(middle)
        try:
            with writing(server.dsn):
                others = [middle.dsn, last.dsn]
                path = taken(tmp_path / "x.leadline", lambda: os.kill(sender, signal.SIGSTOP), dsn=server.dsn, others=others, for_s=9.0)
        finally:
            os.kill(sender, signal.SIGCONT)
        with closing(open_capture(path)) as capture:
            finding = found(capture, hop_lag_s=3)["CASCADE-HOP"]
            assert finding.subject == f"hop from {name_of(middle)} to {name_of(last)}"
            [evidence] = finding.evidence
            lag = capture.rows("select lag_bytes, lag_s from replication_lag where is_standby and node = 3 order by ts")[-1]
            assert 3 < evidence["lag_s"] <= lag["lag_s"]
            assert evidence["hop_bytes"] == pytest.approx(evidence["lag_bytes"], rel=0.1)
            assert capture.rows("select lag_s from replication_lag where is_standby and node = 2 order by ts")[-1]["lag_s"] < 1


@pytest.mark.parametrize("major", ALSO_LONG)
def test_the_middle_restarts(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """The last one gets no WAL meanwhile, and catches up. What the middle had is nowhere said to be less than before."""
    server = fresh_server(major)
    with cascade(server) as (middle, last), writing(server.dsn), restarts(middle) as restart:
        path = taken(tmp_path / "x.leadline", restart, dsn=server.dsn, others=[middle.dsn, last.dsn], for_s=14.0)
        with closing(open_capture(path)) as capture:
            nothing_is_found(capture)
            for node in (2, 3):
                rows = capture.rows(f"select replay_lsn from replication_lag where is_standby and node = {node} order by ts")
                assert rows and all(later["replay_lsn"] >= earlier["replay_lsn"] for earlier, later in pairwise(rows))
            away = capture.rows("select ts from replication_position where node = 2 order by ts")
            assert max(later["ts"] - earlier["ts"] for earlier, later in pairwise(away)) > 0.2e9
            assert "could not be read" in capture.manifest.probe("replication").why


@pytest.mark.parametrize("major", ALSO_LONG)
def test_a_middle_that_reads_the_wal_from_a_slow_disk(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """The last one was away. The middle, which may read three times a second, has the WAL on its disk and not in the page cache."""
    server = fresh_server(major, wal_keep_size="1GB", min_wal_size="32MB", max_wal_size="64MB")
    with loop_disk() as (disk, device), writes_limited(device, 3, "read") as group, cascade(server, disk / "data") as (middle, last):
        follow(last, "host=127.0.0.1 port=1 connect_timeout=1")
        wait_until(lambda: at(middle.dsn, "select count(*) = 0 from pg_stat_replication"), what="the end of the stream")
        for _ in range(3):
            server.sql("select count(pg_logical_emit_message(true, 'test', repeat(md5(i::text), 3000))) from generate_series(1, 160) i")
        made = server.sql("select pg_current_wal_flush_lsn()::text")[0][0]
        wait_until(lambda: at(middle.dsn, f"select pg_last_wal_replay_lsn() >= '{made}'"), what="the WAL at the middle")
        forget_pages(middle.data_dir / "pg_wal")
        (group / "cgroup.procs").write_text(str(middle.pid))  # the walsender is its child
        others = [server.dsn, last.dsn]
        path = taken(tmp_path / "x.leadline", lambda: follow(last, middle.dsn), pid=middle.pid, dsn=middle.dsn, others=others, for_s=11.0)
        with closing(open_capture(path)) as capture:
            seen = found(capture, hop_lag_s=3)
            senders = "backend_type = 'walsender'"
            looked = capture.scalar(f"select sum(weight_s) from session_sample where {senders} and lower(wait_event) = 'walread'")
            of = f"session_id in (select session_id from session where {senders})"
            storage = capture.scalar(f"select sum(read_bytes) from session_delta where {of}")
        finding = seen["WALSENDER-READ"]
        [evidence] = finding.evidence
        assert finding.subject == "walsender of walreceiver" and evidence["read_s"] == pytest.approx(looked, rel=0.1)
        assert evidence["storage_bytes"] == storage > 4 * MB and "MB of it from storage" in finding.statement
        assert seen["CASCADE-HOP"].subject == f"hop from {name_of(middle)} to {name_of(last)}"


def test_a_subscriber_of_another_major(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    """It replays no WAL: it has no lag, which nobody invents. Its walsender is there as a logical one."""
    publisher, subscriber = fresh_server(18, wal_level="logical"), fresh_server(13)
    publisher.sql("create table t(id int)")
    publisher.sql("create publication p for table t")
    with subscriber.connect() as db:
        db.execute("create table t(id int)")
        db.execute(f"create subscription s connection '{publisher.dsn}' publication p".encode())
        try:
            streams = "select 1 from pg_stat_replication where state = 'streaming' and application_name = 's'"
            wait_until(lambda: publisher.sql(streams), what="the subscription")
            rows = "insert into t select generate_series(1, 1000)"
            path = taken(tmp_path / "x.leadline", lambda: publisher.sql(rows), dsn=publisher.dsn, for_s=4.0)
            with closing(open_capture(path)) as capture:
                assert capture.rows("select distinct application_name, is_logical from walsender") == [
                    {"application_name": "s", "is_logical": True}
                ]
                assert capture.scalar("select count(*) from replication_lag") == 0
                nothing_is_found(capture)
            path = taken(tmp_path / "y.leadline", lambda: None, dsn=subscriber.dsn, for_s=1.0)
            with closing(open_capture(path)) as capture:
                assert "replication" not in capture.manifest.probes
            with pytest.raises(LeadlineError, match="not of one cluster"):
                take(for_s=1.0, out=tmp_path / "z.leadline", dsn=publisher.dsn, others=[subscriber.dsn])
        finally:
            db.execute("drop subscription s")
