"""Connections that do nothing, autovacuum workers that give way, and indexes that stay large, on real servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, wait_until
from leadline.host import proc
from live import captured, clients

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", [13, 18])
def test_memory_of_idle_sessions(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major)
    with ExitStack() as stack:
        pool = [stack.enter_context(server.connect(application_name="pool")) for _ in range(12)]
        for n in range(400):
            pool[5].execute(f"prepare p{n} as select count(*) from pg_class a join pg_class b on a.oid = b.oid and a.oid = {n}")
        pid = pool[5].info.backend_pid
        [finding] = captured(server, tmp_path, 1.0, ["IDLE-CONNECTIONS"], {"idle_connections": 10}).findings
        status = proc.status_fields(pid)
    resident, own = int(status["RssAnon"].split()[0]) * 1024, finding.evidence[0]["largest_bytes"]
    assert finding.evidence[0]["sessions"] == 12 and f"WHERE pid = {pid};" in finding.action
    assert 0.4 * resident < own < 1.2 * resident


@pytest.mark.parametrize("major", [13, 18])
def test_a_migration_that_cancels_autovacuum(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major, autovacuum="on", autovacuum_naptime="1s", deadlock_timeout="300ms")
    slow = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
    server.sql(f"create table account (id int, t text) with ({slow}, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1)")
    server.sql("insert into account select n, repeat('x', 500) from generate_series(1, 5000) n")
    server.sql("delete from account where id % 2 = 0")
    at_work = "select pid from pg_stat_activity where backend_type = 'autovacuum worker' and query like '%public.account%'"

    def migrate(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        if db.execute(at_work).fetchall():
            db.execute("alter table account alter t set default 'x'")
        stop.wait(0.1)

    wait_until(lambda: server.sql(at_work), what="a worker in the table")
    with clients(server, ("migrate", migrate)) as [client]:
        result = captured(server, tmp_path, 5.0, ["AUTOVACUUM-CANCELLED"], {"cancel_again": 1})
    [finding] = result.findings
    assert finding.subject == "table public.account" and finding.evidence[0]["waiter_pid"] == client.pid
    assert "application migrate waited" in finding.statement and "alter table account" in finding.statement
    assert finding.evidence[0]["waited_s"] > 0.15


@pytest.mark.parametrize("major", [13, 18])
def test_the_estimate_of_what_an_index_needs(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """New indexes are as large as estimated, also of an expression and of two columns; after a mass delete they stay."""
    server = fresh_server(major)
    server.sql("create table job (id bigint primary key, name text, at timestamptz)")
    server.sql("insert into job select n, md5(n::text), now() from generate_series(1, 60000) n")
    server.sql('create index "Lower" on job (lower(name)); create index pair on job (name, at)')
    server.sql("vacuum analyze job")
    every = {"bloat_bytes": -1e12, "bloat_times": 0.01}
    new = {f.subject: f.evidence[0] for f in captured(server, tmp_path / "new", 0.5, ["INDEX-BLOAT"], every).findings}
    assert set(new) == {"index public.job_pkey", 'index public."Lower"', "index public.pair"}
    for row in new.values():
        assert row["pages_needed"] == pytest.approx(row["pages"], rel=0.15)
    server.sql("delete from job where id > 100")
    server.sql("vacuum analyze job")
    old = captured(server, tmp_path / "old", 0.5, ["INDEX-BLOAT"], {"bloat_bytes": 100_000}).findings
    assert {f.subject for f in old} == set(new) and all(f.evidence[0]["entries"] == 100 for f in old)
