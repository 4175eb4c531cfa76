"""Sampled seconds against those that the server counts in pg_stat_database. bench/active_time.py has more loads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Server, find_pgbench

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from active_time import compare, prepare

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", [15, 18])
def test_samples_add_up_to_what_the_server_counts(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """Statements that sleep, and transactions that stay open: four sessions each, so a few seconds give 1000 samples."""
    server = fresh_server(major, autovacuum=False)
    prepare(server.private)
    active = compare(server.private, "sleeping", 3, 100, find_pgbench(), tmp_path)
    assert active.active_s > 10
    assert active.passes + active.missed == pytest.approx(600, abs=15), "each pass that was due is there, or counted as missed"
    assert active.sampled_s == pytest.approx(active.active_s, rel=0.03)
    assert active.database_s == pytest.approx(active.active_s, rel=0.03)
    opened = compare(server.private, "idle in transaction", 3, 100, find_pgbench(), tmp_path)
    assert opened.sampled_idle_s == pytest.approx(opened.idle_in_transaction_s, rel=0.03)


def test_the_server_does_not_count_the_planning_of_prepared_statements(servers: Callable[[int], Server]) -> None:
    """Why the loads are simple queries: Execute reports the state active anew, and the time since Bind is lost."""
    server = servers(17)
    grown = []
    for prepared in (True, False):
        server.sql("drop database if exists load")
        server.sql("create database load")
        with server.connect(dbname="load") as db:
            db.execute("create function slow() returns int immutable language plpgsql as 'begin perform pg_sleep(0.3); return 1; end'")
            db.execute(*(("select slow() + %s", [1]) if prepared else ("select slow() + 1",)))
        [[active_ms]] = server.sql("select active_time from pg_stat_database where datname = 'load'")
        grown.append(active_ms)
    server.sql("drop database load")
    assert grown[0] < 200 and grown[1] > 300
