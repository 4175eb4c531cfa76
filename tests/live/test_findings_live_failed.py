"""DEADLOCKS, ROLLBACKS and EXTENSION-WAIT on real servers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import MAJORS, Server
from leadline.capture.reader import open_capture
from live import Step, captured, clients, wait_for_event

pytestmark = pytest.mark.live


def crossing(first: int) -> Step:
    """Two rows, in an order of its own."""

    def step(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        try:
            with db.transaction():
                for row in (first, 3 - first):
                    db.execute("update crossed set v = v + 1 where id = %s", [row])
                    db.execute("select pg_sleep(0.02)")
        except psycopg.errors.DeadlockDetected:
            return

    return step


def undone(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    db.execute("begin")
    db.execute("select pg_sleep(0.01)")
    db.execute("rollback")


@pytest.mark.parametrize("major", MAJORS)
def test_deadlocks_rollbacks_and_a_wait_in_an_extension(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    server = servers(major)
    server.sql("create extension if not exists dblink; drop table if exists crossed; create table crossed (id int primary key, v int)")
    server.sql("insert into crossed values (1, 0), (2, 0)")

    def remote(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select * from dblink(%s, 'select pg_sleep(0.2)') as t (v text)", [server.dsn])

    timeout_ms = server.sql("select setting::int from pg_settings where name = 'deadlock_timeout'")[0][0]
    before = server.sql("select deadlocks from pg_stat_database where datname = 'postgres'")[0][0]
    with clients(server, ("shop", crossing(1)), ("shop", crossing(2)), ("undoes", undone), ("asks", remote)):
        wait_for_event(server, "transactionid")
        found = {f.id: f for f in captured(server, tmp_path, 3.0, ["DEADLOCKS", "ROLLBACKS", "EXTENSION-WAIT", "ROW-HOTSPOT"]).findings}
    deadlocks, rollbacks, extension = (found.pop(name) for name in ("DEADLOCKS", "ROLLBACKS", "EXTENSION-WAIT"))
    counted = int(re.search(r"broke (\d+) deadlocks? in database postgres", deadlocks.statement)[1])  # type: ignore[index]
    after = server.sql("select deadlocks from pg_stat_database where datname = 'postgres'")[0][0]
    assert 1 <= counted <= after - before
    assert deadlocks.cost_s is not None and deadlocks.cost_s >= counted * timeout_ms / 1000
    assert all(f.cost_s < 0.3 * deadlocks.cost_s for f in found.values()), found  # a slow machine also has short waits outside a circle
    assert "update crossed set v = v +" in deadlocks.statement
    assert "transactions of database postgres were rolled back" in rollbacks.statement
    assert extension.cost_s == pytest.approx(3, rel=0.2) and "from dblink(" in extension.statement
    assert "waits for another server" in extension.action


@pytest.mark.parametrize("major", [m for m in MAJORS if m >= 16])
def test_a_session_that_has_overflowed_its_subtransactions_is_listed(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    server = servers(major)
    server.sql("drop table if exists nested; create table nested (v int)")
    with server.connect(application_name="nested") as db:
        db.execute("begin")
        for n in range(70):
            db.execute(f"savepoint s{n}")
            db.execute("insert into nested values (1)")
        captured(server, tmp_path, 1.0, ["SLRU"])
        with closing(open_capture(tmp_path / "live.leadline")) as capture:
            listed = capture.rows("select distinct object, metric, value from server_stat where view = 'pg_stat_get_backend_subxact'")
        assert listed == [{"object": str(db.info.backend_pid), "metric": "subxact_count", "value": 64.0}]
