"""The findings on WAL, standbys and files that grow, against real servers.

Each test makes one trouble by a load and wants exactly its finding of all rules on locks, pages, caches, WAL and I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Server
from live import SERVER_RULES, WINDOW_S, captured, planted, storm, wait_for_event
from standby import receiver

pytestmark = pytest.mark.live


def test_commits_of_many_sessions_wait_for_the_flush_of_the_wal(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(18, fsync=True, wal_buffers="64kB")
    server.sql("create table entry (id int)")
    with storm(server, tmp_path, "insert into entry values (1)", 8):
        wait_for_event(server, "WALWrite")
        finding = planted(server, tmp_path)
    assert (finding.id, finding.subject) == ("WAL-CONTENTION", "write-ahead log")
    assert "MB of WAL a second" in finding.statement
    seconds = {e["event"].lower(): e["wait_s"] for e in finding.evidence}
    flush_s = seconds.get("lwlock:walwrite", 0) + seconds.get("io:walsync", 0) + seconds.get("io:walwrite", 0)
    assert finding.cost_s is not None and flush_s > 0.8 * finding.cost_s


def test_large_records_of_many_sessions_fight_for_the_wal_buffers(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    """Records that no commit waits for, so that it is the buffers and not the durability."""
    server = fresh_server(13, wal_buffers="64kB", max_wal_size="4GB")
    with storm(server, tmp_path, "select count(pg_logical_emit_message(false, '', repeat('x', 4000))) from generate_series(1, 500)", 8):
        wait_for_event(server, "WALInsert")
        finding = planted(server, tmp_path)
    assert (finding.id, finding.subject) == ("WAL-CONTENTION", "write-ahead log")
    seconds = {e["event"].lower(): e["wait_s"] for e in finding.evidence}
    assert finding.cost_s is not None and seconds["lwlock:walinsert"] > 0.1 * finding.cost_s


def test_commits_that_wait_for_a_slow_standby(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(16, synchronous_standby_names="far")
    with receiver(server, "far", delay_s=0.05), receiver(server, "archive", delay_s=0.05):
        server.sql("create table entry (id int)")
        with storm(server, tmp_path, "insert into entry values (1)", 4):
            wait_for_event(server, "SyncRep")
            finding = planted(server, tmp_path)
    assert (finding.id, finding.subject) == ("SYNCREP-BOUND", "synchronous replication")
    assert finding.statement.startswith("Commits of 4 sessions waited")
    assert "for a synchronous standby (far); synchronous_commit is on; far took " in finding.statement
    assert finding.statement.endswith(" for its disk")
    assert finding.share_of_db_time is not None and finding.share_of_db_time > 0.5
    assert finding.evidence[0]["query"].startswith("insert into entry")


@pytest.mark.parametrize("major", [13, 18])
def test_sessions_that_fill_one_table_queue_to_make_it_longer(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    server = servers(major)
    server.sql("drop table if exists filling")
    server.sql("create unlogged table filling (t text)")
    server.sql("alter table filling alter t set storage plain")
    with storm(server, tmp_path, "insert into filling select repeat('x', 3900) from generate_series(1, 200)", 8):
        wait_for_event(server, "extend")
        first, *others = captured(server, tmp_path, WINDOW_S, SERVER_RULES).findings
    server.sql("drop table filling")
    assert (first.id, first.subject) == ("RELATION-EXTEND", "relation public.filling")
    assert first.evidence[0]["sessions"] == 8
    # Those who queued may then meet on the pages they are given, new or just begun: a part of the same trouble.
    assert {f.id for f in others} <= {"HOT-BLOCK", "BUFFER-WAITS-UNNAMED"}
    assert all(f.subject.endswith(" pages of public.filling") for f in others if f.id == "HOT-BLOCK")
    assert first.share_of_db_time is not None and first.share_of_db_time > 0.1
