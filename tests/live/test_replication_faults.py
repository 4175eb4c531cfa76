"""A pair of servers to which something happens while it is captured: rows say what was known, and nothing is invented."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server
from leadline.capture.reader import Capture, open_capture
from leadline.findings import SEVERITIES, evaluate
from replicating import at, restarts, streaming, taken, writing
from standby import Standby

pytestmark = pytest.mark.live
REPLICATION = ["STANDBY-BEHIND", "REPLAY-PAUSED", "LAG-BLIND", "REPLAY-SATURATED", "REPLAY-IO-BOUND", "SLOT-LOST"]


@pytest.fixture(params=[13, 18])
def pair(request: pytest.FixtureRequest, fresh_server: Callable[..., Server]) -> Iterator[tuple[Server, Standby]]:
    with streaming(fresh_server(request.param)) as both:
        yield both


def nothing_is_found(capture: Capture) -> None:
    found = evaluate(capture, REPLICATION)
    assert found.not_evaluated == []
    assert [f.statement for f in found.findings if SEVERITIES.index(f.severity) < SEVERITIES.index("low")] == []


def behind(capture: Capture, node: int) -> list[dict[str, Any]]:
    return capture.rows(f"select * from replication_lag where is_standby and node = {node} order by ts")


def test_a_standby_that_is_restarted(pair: tuple[Server, Standby], tmp_path: Path) -> None:
    """There are no rows of it while it is away, and none that says that it had replayed nothing."""
    server, standby = pair

    with writing(server.dsn), restarts(standby) as restart:
        path = taken(tmp_path / "x.leadline", restart, dsn=server.dsn, others=[standby.dsn], for_s=9.0)
    with closing(open_capture(path)) as capture:
        positions = capture.rows("select ts, replay_lsn, flush_lsn, record_lsn from replication_position where node = 2 order by ts")
        steps = [later["ts"] - row["ts"] for row, later in pairwise(positions)]
        assert max(steps) > 0.2e9  # it was away
        replayed = [row["replay_lsn"] for row in positions if row["replay_lsn"] is not None]
        assert replayed and min(replayed) > 0
        assert capture.manifest.probe("replication").status == "partial"
        assert behind(capture, 2)[-1]["lag_s"] < 3
        wrong = "select count(*) from replay_record where start_lsn >= end_lsn"
        assert capture.scalar(wrong) == 0
        nothing_is_found(capture)


def test_a_standby_that_is_promoted_beside_its_primary(pair: tuple[Server, Standby], tmp_path: Path) -> None:
    """From then on it is no standby, and there are two that make WAL: nobody is behind."""
    server, standby = pair
    done: list[Any] = []

    def promote() -> None:
        done.append(at(standby.dsn, "select pg_promote()"))
        with psycopg.connect(standby.dsn, autocommit=True) as db:
            db.execute("create table mine as select 1 as id")

    with writing(server.dsn):
        path = taken(tmp_path / "x.leadline", promote, dsn=server.dsn, others=[standby.dsn], for_s=6.0)
    assert done == [True]
    with closing(open_capture(path)) as capture:
        promoted = capture.scalar("select min(ts) from replication_position where node = 2 and not in_recovery")
        assert capture.scalar("select max(ts) from replication_position where node = 2 and in_recovery") < promoted
        assert capture.scalar("select max(ts) from replication_lag") < promoted
        nothing_is_found(capture)


def test_a_primary_that_fails_over(pair: tuple[Server, Standby], tmp_path: Path) -> None:
    """The primary ends, its standby takes over and is written to for longer than the primary was."""
    server, standby = pair

    def fail_over() -> None:
        server.private.stop()
        assert at(standby.dsn, "select pg_promote()")
        with writing(standby.dsn) as gone:
            gone.wait(3)

    with writing(server.dsn) as gone:
        path = taken(tmp_path / "x.leadline", fail_over, dsn=standby.dsn, others=[server.dsn], for_s=8.0)
        assert gone.is_set()
    with closing(open_capture(path)) as capture:
        rows = behind(capture, 1)
        promoted = capture.scalar("select min(ts) from replication_position where node = 1 and not in_recovery")
        assert rows and rows[-1]["ts"] < promoted
        made = "select max(flush_lsn) from replication_position where node = 2 and not in_recovery and ts <= {}"
        for row in rows:  # compared with the old primary only
            assert row["made_lsn"] == max(capture.scalar(made.format(row["ts"])), row["replay_lsn"])
        nothing_is_found(capture)


@pytest.mark.parametrize("alone", [False, True])
def test_a_way_that_is_cut(pair: tuple[Server, Standby], tmp_path: Path, alone: bool) -> None:
    """The walsender sends nothing more and closes nothing, as when a network is cut. A standby alone knows what it last heard."""
    server, standby = pair
    [[sender]] = server.sql("select pid from pg_stat_replication")
    where = {"dsn": standby.dsn} if alone else {"dsn": server.dsn, "others": [standby.dsn]}
    try:
        with writing(server.dsn):
            path = taken(tmp_path / "x.leadline", lambda: os.kill(sender, signal.SIGSTOP), **where, for_s=8.0)
    finally:
        os.kill(sender, signal.SIGCONT)
    with closing(open_capture(path)) as capture:
        last = behind(capture, 1 if alone else 2)[-1]
        if alone:
            assert last["lag_bytes"] == 0
            nothing_is_found(capture)
        else:
            [finding] = evaluate(capture, ["STANDBY-BEHIND", "REPLAY-SATURATED", "REPLAY-PAUSED"], {"behind_min_s": 2}).findings
            assert finding.id == "STANDBY-BEHIND" and "that wait are not received" in finding.statement
            assert last["lag_s"] > 4 and last["unreceived_bytes"] == last["lag_bytes"] > 0
