"""Positions read from the memory of a primary and a standby against what both say over SQL, while WAL flows and after a failover."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, wait_until
from leadline.capture.reader import Capture, open_capture
from leadline.probes.take import take
from replicating import taken
from servers import MAJORS
from standby import Standby

pytestmark = pytest.mark.live

POSITIONS = (
    {  # column: SQL of a standby; of a primary
        "flush_lsn": "pg_last_wal_receive_lsn()",
        "replay_lsn": "pg_last_wal_replay_lsn()",
    },
    {"insert_lsn": "pg_current_wal_insert_lsn()", "flush_lsn": "pg_current_wal_flush_lsn()"},
)
Told = list[tuple[int, int, dict[str, int | None]]]


def ask(dsn: str, positions: dict[str, str], stop: threading.Event, told: Told) -> None:
    """Until told to stop: when it was asked and answered, and what."""
    query = "select " + ", ".join(f"({sql} - '0/0'::pg_lsn)::bigint" for sql in positions.values())
    with psycopg.connect(dsn, autocommit=True) as db:
        while not stop.wait(0.02):
            asked = time.monotonic_ns()
            row: Any = db.execute(query.encode()).fetchone()
            told.append((asked, time.monotonic_ns(), dict(zip(positions, row, strict=True))))


def compared(capture: Capture, node: int, told: Told) -> int:
    """How many answers were compared: each lies between the last reading before the question and the first after the answer."""
    readings = capture.rows(f"select * from replication_position where node = {node} and tier = 'shm' order by ts")
    times = [reading["ts"] for reading in readings]
    done = 0
    for asked, answered, values in told:
        before, after = bisect_left(times, asked) - 1, bisect_right(times, answered)
        if before < 0 or after >= len(times):
            continue
        for name, value in values.items():
            low, high = readings[before][name], readings[after][name]
            assert low <= value <= high, (name, asked)
            done += 1
    return done


@pytest.mark.parametrize("major", MAJORS)
def test_memory_says_what_sql_says_while_wal_flows(major: int, fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(major)
    with Standby(server.private) as standby:
        wait_until(lambda: server.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the stream")
        server.sql("create table t (id bigint primary key, text text)")
        stop = threading.Event()
        told: tuple[Told, Told] = ([], [])

        def write() -> None:
            with psycopg.connect(server.dsn, autocommit=True) as db:
                for first in count(0, 200):
                    if stop.is_set():
                        return
                    db.execute("insert into t select g, repeat('x', 50) from generate_series(%s::bigint, %s) g", [first, first + 199])

        def work() -> None:
            asking = [
                threading.Thread(target=ask, args=(dsn, POSITIONS[place], stop, told[place]))
                for place, dsn in ((0, standby.dsn), (1, server.dsn))
            ]
            for thread in [*asking, writer]:
                thread.start()

        writer = threading.Thread(target=write)
        path = taken(tmp_path / "x.leadline", work, dsn=server.dsn, others=[standby.dsn])
        stop.set()
        writer.join(60)
        with closing(open_capture(path)) as capture:
            assert [(n["tier"], n["why_sql"]) for n in capture.rows("select * from replication_node order by node")] == [("shm", "")] * 2
            assert compared(capture, 2, told[0]) > 50 and compared(capture, 1, told[1]) > 50
            grown = "select max(replay_lsn) - min(replay_lsn) from replication_position where node = 2"
            assert capture.scalar(grown) > 1 << 20
            [sender] = capture.rows(
                "select distinct pid, application_name, client_addr, is_logical, state from walsender where tier = 'shm'"
            )
            assert (sender["is_logical"], sender["state"]) == (False, "streaming")
            assert capture.rows("select distinct pid, application_name, client_addr from walsender") == [
                {name: sender[name] for name in ("pid", "application_name", "client_addr")}
            ]
            assert (
                capture.scalar("select count(*) from walsender where tier = 'shm' and sent_lsn >= write_lsn and write_lsn >= flush_lsn")
                > 100
            )
            records = capture.manifest.probe("replication").detail["replayed_records"]
            [counts] = records.values()
            assert (counts["wrong"], counts["gone"]) == (0, 0) and counts["found"] > 0
            kinds = capture.rows("select activity, count(*) as n, count(record_type) as named from replay_sample group by activity")
            by_activity = {kind["activity"]: kind for kind in kinds}
            assert by_activity["apply"]["n"] == by_activity["apply"]["named"] > 0
            named = "select count(*) from replay_sample where record_type like 'INSERT%' and relation like 'public.t%'"
            assert capture.scalar(named) > 0


def test_a_standby_that_is_promoted_is_no_longer_behind(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    """It stops being a standby in memory as over SQL, although what it had replayed still stands there."""
    server = fresh_server(16)
    with Standby(server.private) as standby:
        wait_until(lambda: server.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the stream")
        def promote() -> None:
            with psycopg.connect(standby.dsn, autocommit=True) as db:
                assert db.execute("select pg_promote()").fetchone() == (True,)
                db.execute("create table t (id int)")

        path = taken(tmp_path / "x.leadline", promote, dsn=standby.dsn, for_s=3.0)
        with closing(open_capture(path)) as capture:
            assert capture.rows("select tier, why_sql from replication_node") == [{"tier": "shm", "why_sql": ""}]
            rows = capture.rows("select in_recovery, replay_lsn, insert_lsn from replication_position order by ts")
            kinds = [row["in_recovery"] for row in rows]
            assert kinds == sorted(kinds, reverse=True) and set(kinds) == {True, False}
            assert all((row["replay_lsn"] is None) != row["in_recovery"] for row in rows)
            assert all((row["insert_lsn"] is None) == row["in_recovery"] for row in rows)


def test_only_sql_when_only_sql_is_asked_for(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(18)
    with Standby(server.private) as standby:
        wait_until(lambda: server.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the stream")
        path = take(dsn=server.dsn, others=[standby.dsn], for_s=1.0, out=tmp_path / "x.leadline", probes=["sessions"], tier="sql")
        with closing(open_capture(path)) as capture:
            assert capture.rows("select distinct tier, compared from replication_node") == [{"tier": "sql", "compared": 0}]
            assert capture.rows("select distinct tier from replication_position") == [{"tier": "sql"}]
