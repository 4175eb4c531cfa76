"""The batch job that purges a table: it deletes what is to go, once, and counts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import output_of
from conftest import Server
from leadline.load.purge import Table, init
from leadline.net.login import server_of
from load_runs import load


@pytest.mark.parametrize("content", ["bytea", "large-object"])
def test_three_jobs_delete_what_is_to_go(fresh_server: Callable[..., Server], tmp_path: Path, content: str) -> None:
    server = fresh_server(14)
    made = init(server_of(server.dsn), Table(12_000, content=content, bytes_each=200))
    assert made["rows"] == 15_000 and made["to_purge"] == 12_000
    assert server.sql("select job, count(*) from leadline_purge where expired group by 1 order by 1") == [(0, 4000), (1, 4000), (2, 4000)]
    query = "select count(*) from pg_indexes where tablename = 'leadline_purge_1'"
    assert server.sql(query) == [(2,)]
    said = output_of("load", "run", server.dsn, "--workload", "purge", "-M", "prepared", "-o", tmp_path / "x")
    assert "12,000 rows deleted in" in said and "rows a second" in said
    assert server.sql("select count(*), count(*) filter (where expired) from leadline_purge") == [(3000, 0)]
    if content == "large-object":  # none is left behind without its row
        assert server.sql("select count(*) from pg_largeobject_metadata") == [(3000,)]
    outcome, found = load(server.dsn, "--workload", "purge")
    assert outcome == 2 and found["error"]["message"] == "there is nothing to purge any more"
    init(server_of(server.dsn), Table(400, content=content, bytes_each=200), force=True)
    if content == "large-object":
        assert server.sql("select count(*) from pg_largeobject_metadata") == [(500,)]
    outcome, found = load(server.dsn, "--workload", "purge", "-c", 2)
    assert outcome == 2 and "2 clients cannot share the jobs" in found["error"]["message"]


def test_a_range_of_pages_is_all_that_a_transaction_reads(servers: Callable[[int], Server]) -> None:
    server = servers(18)
    init(server_of(server.dsn), Table(2000, bytes_each=64), force=True)
    plan = server.sql(
        "explain delete from leadline_purge where ctid >= ('(' || 0::bigint || ',0)')::tid and ctid < ('(' || 4::bigint || ',0)')::tid "
        "and job = 1 and expired"
    )
    assert any("Tid Range Scan on leadline_purge_1" in line for (line,) in plan), plan
    assert not any("Seq Scan" in line or "leadline_purge_0" in line for (line,) in plan)
    server.sql("drop table leadline_purge")


def test_a_server_without_ranges_of_pages_is_refused(servers: Callable[[int], Server]) -> None:
    outcome, found = load(servers(13).dsn, "--workload", "purge")
    assert outcome == 2 and found["error"]["message"] == "purge needs PostgreSQL 14 or later"
