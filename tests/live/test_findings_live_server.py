"""BACKEND-WRITES and what else surrounds the sessions, on real servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import MAJORS, Server, fetched_or_skip, wait_until
from host_changes import loop_disk, writes_limited
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer
from live import WINDOW_S, captured, clients, seconds_of, storm, wait_for_event, waiting
from standby import receiver

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", MAJORS)
def test_sessions_that_write_pages_and_a_load_that_only_grows(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """The same server: COPY and files that grow cost their sessions writes too, but nobody else should have made these."""
    server = fresh_server(major, shared_buffers="1MB", bgwriter_lru_maxpages=0, track_io_timing=True, autovacuum=False)
    server.sql("create table page as select i as id, repeat('x', 500) as words from generate_series(1, 30000) i")
    server.sql("create table grown (words text); create index on page (id)")
    with storm(server, tmp_path, "\\set i random(1, 30000)\nupdate page set words = repeat('y', 500) where id = :i", 4):
        wait_for_event(server, "DataFileWrite")
        # Before 16 no counter has the time of writes, and a write that ends in the page cache is in few samples, fewer on a busy host.
        window_s, few = (WINDOW_S, {}) if major >= 16 else (2 * WINDOW_S, {"min_samples": 2, "min_share": 0})
        [finding] = captured(server, tmp_path / "writes", window_s, ["BACKEND-WRITES"], few).findings
    if major >= 16:
        assert finding.cost_s is not None and finding.cost_s > 0.01 * window_s
    else:
        waited_s, _ = seconds_of(tmp_path / "writes", "datafilewrite", "datafileflush", "datafilesync")
        assert waited_s > 0 and finding.cost_s == pytest.approx(waited_s)
    assert "the background writer is off (bgwriter_lru_maxpages = 0)" in finding.statement
    assert finding.evidence[0]["query"].startswith("update page")
    server.sql("checkpoint")
    with storm(server, tmp_path, "copy grown from program 'seq 20000'", 1):
        # With a cache this small, even the catalogs that COPY looks up replace pages of others: some hundred a second.
        assert captured(server, tmp_path / "copy", 1, ["BACKEND-WRITES"], {"min_share": 0, "min_written_rate": 500}).findings == []


@pytest.mark.parametrize("major", MAJORS)
def test_commits_that_wait_for_standbys_that_are_gone(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """Of ANY 2 (a, b, c) one is connected, and another under a wrong name; then the right ones are, and only one is slow."""
    server = fresh_server(major, synchronous_standby_names="ANY 2 (a, b, c)")
    with receiver(server, "b", delay_s=0.05):
        with receiver(server, "walreceiver", delay_s=0.05), server.connect() as db, waiting(db, "create table stuck (id int)"):
            wait_for_event(server, "SyncRep")
            [finding] = captured(server, tmp_path / "gone", 2, ["SYNC-STANDBY-GONE", "SYNCREP-BOUND"]).findings
            server.sql("select pg_cancel_backend(%s)", [db.info.backend_pid])
        assert (finding.id, finding.severity, finding.subject) == ("SYNC-STANDBY-GONE", "critical", "synchronous standby a, c")
        assert finding.cost_s == pytest.approx(2, abs=0.3)
        assert "needs 2 standbys, but 1 was connected; missing: a, c; " in finding.statement
        assert finding.statement.endswith("connected under a name that is not in the list: walreceiver")
        assert "synchronous_standby_names = 'ANY 1 (a, b, c)';" in finding.action
        with receiver(server, "C", delay_s=0.05), storm(server, tmp_path, "insert into stuck values (1)", 2):
            wait_for_event(server, "SyncRep")
            [finding] = captured(server, tmp_path / "slow", 2, ["SYNC-STANDBY-GONE", "SYNCREP-BOUND"]).findings
    assert finding.id == "SYNCREP-BOUND"


@pytest.mark.parametrize("major", MAJORS)
def test_commits_that_a_limit_of_the_control_group_holds_back(tmp_path: Path, major: int) -> None:
    fetched = fetched_or_skip(major)
    with loop_disk() as (mounted, device), writes_limited(device, 40) as group:
        settings = {"fsync": True, "min_wal_size": "32MB", "max_wal_size": "64MB", "wal_recycle": False}
        with PrivateServer(fetched.bin_dir, mounted / "data", settings) as private:
            (group / "cgroup.procs").write_text(str(private.pid))  # and all that it starts from now on
            server = Server(private, fetched)
            server.sql("create table entry (id int)")
            with storm(server, tmp_path, "insert into entry values (1)", 2):
                wait_for_event(server, "WALSync")
                [finding] = captured(server, tmp_path, WINDOW_S, ["STORAGE-SLOW"]).findings
    assert (finding.subject, finding.evidence[0]["cause"]) == ("flushes of the WAL", "limit")
    assert finding.evidence[0]["limits"] == "wiops=40" and finding.evidence[0]["each_ms"] > 20


def think(stop: threading.Event, seconds: float) -> None:
    """What a client does between two messages."""
    stop.wait(seconds)


def load(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    with db.cursor().copy('copy "Load" (words) from stdin') as copy:
        while not stop.is_set():
            copy.write("x" * 500 + "\n")
            think(stop, 0.01)


def ask(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    for id in range(500):
        db.execute("select words from item where id = %s", [id])
        think(stop, 0.005)


@pytest.mark.parametrize("major", MAJORS)
def test_a_slow_loader_beside_a_loop_of_one_statement(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major)
    server.sql('create table "Load" (words text); create table item (id int primary key, words text)')
    rules = ["SLOW-LOADER", "STATEMENT-STORM"]  # how surely the second is seen depends on the machine: tested on made-up captures
    with clients(server, ("etl", load), ("shop", ask)):
        wait_until(lambda: server.sql("select 1 from pg_stat_activity where application_name = 'etl' and wait_event = 'ClientRead'"))
        # On a machine that has other work, the loop is slower.
        result = captured(server, tmp_path / "slow", WINDOW_S, rules, {"storm_rate": 10, "storm_gap_s": 0.5})
    [first] = [f for f in result.findings if f.id == "SLOW-LOADER"]
    assert (first.subject, first.id) == ('COPY into "Load" by application etl from local', "SLOW-LOADER")
    assert first.cost_s == pytest.approx(WINDOW_S, rel=0.15)
    assert ("MB and" in first.statement) == (major >= 14)


@pytest.mark.parametrize("major", [13, 18])
def test_the_pause_after_a_quick_statement_is_known_by_it(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """A sample that meets a session idle says which statement came before the pause, also where no sample ever saw that one at work."""
    server = fresh_server(major)
    server.sql("create table item (id int primary key, words text)")

    def after_a_slow_one(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select pg_sleep(0.01)")
        db.execute("select words from item where id = 1")
        think(stop, 0.01)

    with clients(server, ("shop", ask), ("mixed", after_a_slow_one)) as (shop, mixed):
        wait_until(lambda: server.sql("select 1 from pg_stat_activity where application_name = 'shop' and query like '%item%'"))
        # On a machine that has other work, the loop is slower.
        result = captured(server, tmp_path, 5.0, ["STATEMENT-STORM"], {"storm_rate": 10, "storm_gap_s": 0.5})
    with closing(open_capture(tmp_path / "live.leadline")) as capture:
        seen = capture.rows(
            "select pid, arg_max(query, s) as query from (select pid, query, sum(weight_s) as s from session_sample"
            " left join statement using (statement_id) where state = 'idle' group by all) group by pid"
        )
    assert [f.subject.split(",")[0] for f in result.findings] == ["application shop from local"]
    last = "select words from item where id = $1"
    assert {row["pid"]: row["query"] for row in seen}.items() >= {shop.pid: last, mixed.pid: last}.items()
