"""Convoys and commands that block, on real servers of every major version."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import MAJORS, Server, wait_until
from live import captured, sessions, storm, waiting

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", MAJORS)
def test_convoys_are_named_with_their_lock(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    """Three convoys at once: a negative key, NOTIFY (whose lock is at the commit) and a table."""
    server = servers(major)
    server.sql("create table if not exists taken_in_turn (v int)")
    loads = {
        "advisory lock -5": "begin;\nselect pg_advisory_xact_lock(-5);\nselect pg_sleep(0.005);\ncommit",
        "lock of NOTIFY": "select count(pg_notify('somebody', repeat('x', 7000) || i)) from generate_series(1, 300) i",
        "table lock of public.taken_in_turn": "begin;\nlock table taken_in_turn;\nselect pg_sleep(0.005);\ncommit",
    }
    folders = [tmp_path / str(n) for n in range(3)]
    for folder in folders:
        folder.mkdir()
    one, two, three = ((folder, text, 6) for folder, text in zip(folders, loads.values()))
    with storm(server, *one), storm(server, *two), storm(server, *three):
        found = captured(server, tmp_path, 3.0, ["LOCK-CONVOY", "BLOCK-CHAIN", "DDL-QUEUE"]).findings
    assert {f.id for f in found} == {"LOCK-CONVOY"}
    by_lock = {f.subject.removesuffix(" in database postgres"): f for f in found}
    assert set(by_lock) == set(loads)
    for name in ("advisory lock -5", "table lock of public.taken_in_turn"):  # five of six wait
        assert by_lock[name].cost_s == pytest.approx(15, rel=0.2)
        assert re.search(r"[3-6] sessions were seen to hold it, none for long, application pgbench", by_lock[name].statement)
        assert "while they held it: Timeout:PgSleep" in by_lock[name].statement


@pytest.mark.parametrize("major", MAJORS)
def test_commands_that_block_are_named_with_what_they_have_done(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    server = servers(major)
    server.sql("drop materialized view if exists slow_view; drop table if exists indexed")
    server.sql("create table indexed as select i, repeat('x', 500) as words from generate_series(1, 4000) i")
    server.sql("create or replace function slow(i int) returns int language sql immutable as 'select i from pg_sleep(0.002)'")
    server.sql("create or replace function pause() returns int language sql as 'select 1 from pg_sleep(20)'")
    commands = {
        "create index on indexed (slow(i))": "insert into indexed values (0)",
        "/* nightly */ refresh materialized view slow_view": "select * from slow_view",
    }
    server.sql("create materialized view slow_view as select pause() with no data")
    sleeps = "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
    waits = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    with sessions(server) as connect, ExitStack() as stack:
        pids = []
        for command, blocked in commands.items():
            root, victim = connect("nightly"), connect("victim")
            stack.enter_context(waiting(root, command))
            pids.append(root.info.backend_pid)
            wait_until(lambda root=root: server.sql(sleeps, [root.info.backend_pid]), what=command)
            stack.enter_context(waiting(victim, blocked))
            wait_until(lambda victim=victim: server.sql(waits, [victim.info.backend_pid]), what=blocked)
        found = {f.subject: f for f in captured(server, tmp_path, 2.0, ["BLOCK-CHAIN", "LOCK-CONVOY"]).findings}
    index, view = (found.pop(f"pid {pid}") for pid in pids)
    assert not found
    for finding in (index, view):
        assert finding.id == "BLOCK-CHAIN" and finding.cost_s == pytest.approx(2, rel=0.15)
        assert "pg_terminate_backend" not in finding.action
    assert re.search(r"runs CREATE INDEX \(\d+ of \d+ blocks done at the end\)", index.statement)
    assert "CREATE INDEX CONCURRENTLY" in index.action and "the next run starts from the beginning" in index.action
    assert "runs REFRESH MATERIALIZED VIEW: " in view.statement and "public.slow_view" in view.statement
    assert "REFRESH MATERIALIZED VIEW CONCURRENTLY" in view.action
