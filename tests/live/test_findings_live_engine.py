"""The findings on what lies inside the server (pins, transaction caches, lock table, buffer table) against real servers.

Each test makes one trouble by a load and wants exactly its finding of all rules on locks, pages, caches, WAL and I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from live import SERVER_RULES, WINDOW_S, by_rule, captured, planted, seconds_of, sessions, storm, wait_for_event, waiting

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", [13, 18])
def test_a_vacuum_that_needs_a_page_which_a_cursor_stands_on(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    server = servers(major)
    server.sql("drop table if exists pinned")
    server.sql("create table pinned (id int, t text) with (autovacuum_enabled = off)")
    server.sql("insert into pinned select n, repeat('x', 200) from generate_series(1, 2000) n")
    with sessions(server) as connect:
        reader, maintenance = connect("reader"), connect("maintenance")
        vacuum_pid = maintenance.info.backend_pid
        reader.execute("begin")
        reader.execute("declare here no scroll cursor for select ctid from pinned")
        (page,) = {row[0].strip("()").split(",")[0] for row in reader.execute("fetch 500 from here").fetchall()[-1:]}
        with waiting(maintenance, "vacuum (freeze) pinned"):
            wait_for_event(server, "BufferPin")
            finding = planted(server, tmp_path)
    assert (finding.id, finding.subject) == ("PIN-CLEANUP", "pins on public.pinned")
    assert f"mostly block {page} of public.pinned: client backend {vacuum_pid}" in finding.statement
    assert finding.cost_s is not None and finding.cost_s > 2.7  # of 3 s
    assert finding.evidence[0]["query"] == "vacuum (freeze) pinned"


# Subtransaction pages (of 2048 transactions) that the readers need, and what makes the cache hold fewer: it has 32 before 17.
SUBTRANS: dict[int, tuple[int, dict[str, Any]]] = {13: (64, {}), 18: (40, {"subtransaction_buffers": 16})}


@pytest.mark.parametrize("major", SUBTRANS)
def test_readers_of_rows_that_a_transaction_wrote_in_many_subtransactions(
    fresh_server: Callable[..., Server], tmp_path: Path, major: int
) -> None:
    pages, settings = SUBTRANS[major]
    server = fresh_server(major, autovacuum=False, **settings)
    rows = pages * 2048
    server.sql("create table ledger (id int primary key)")
    block = "begin insert into ledger values (n); exception when division_by_zero then null; end"
    lookups = f"select sum((select count(*) from ledger where id = 1 + (g * 104729) % {rows})) from generate_series(1::bigint, 2000) g"
    with server.connect(application_name="batch", autocommit=False) as batch:
        batch.execute(f"do $$ begin for n in 1..{rows} loop {block}; end loop; end $$")
        server.sql("select txid_current()")  # a snapshot taken from now on cannot tell by number alone that they run
        with storm(server, tmp_path, lookups, 8):
            wait_for_event(server, "SubtransBuffer")
            finding = planted(server, tmp_path)
        batch.rollback()
    assert (finding.id, finding.subject) == ("SLRU", "SLRU Subtrans")
    assert finding.share_of_db_time is not None and finding.share_of_db_time > 0.1
    assert "to the subtransaction cache" in finding.statement and " look-ups in it " in finding.statement
    assert "from ledger where id" in finding.evidence[0]["query"]


def test_statements_that_lock_more_relations_than_the_fast_path_holds(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(18)  # has 64 places in it, by max_locks_per_transaction; 16 before
    server.sql("drop table if exists part")
    server.sql("create table part (id int) partition by list (id)")
    each = "execute format('create table part_%s partition of part for values in (%s)', n, n)"
    server.sql(f"do $$ begin for n in 1..200 loop {each}; end loop; end $$")
    with storm(server, tmp_path, "select 1 from part limit 0", 32):
        wait_for_event(server, "LockManager")
        finding = planted(server, tmp_path)
    assert (finding.id, finding.subject) == ("LOCKMANAGER-CONTENTION", "lock table partitions")
    waited_s, of_s = seconds_of(tmp_path, "lockmanager", "lockfastpath")  # few where clients wait for a CPU
    assert waited_s > 0 and (finding.cost_s, finding.share_of_db_time) == (pytest.approx(waited_s), pytest.approx(waited_s / of_s))
    assert "max_locks_per_transaction is 64" in finding.statement
    assert finding.evidence[0]["query"] == "select $1 from part limit $2"


@pytest.mark.parametrize("major", [13, 18])
def test_a_cache_far_smaller_than_what_is_read(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """Two sides of it: sessions wait for reads, and for the table that says which block is where."""
    server = fresh_server(major, shared_buffers="1MB")
    server.sql("create table big (id int primary key, t text) with (autovacuum_enabled = off)")
    server.sql("insert into big select n, repeat('x', 100) from generate_series(1, 100000) n")
    server.sql("analyze big")
    lookups = "select sum((select length(t) from big where id = 1 + (g * 104729) % 100000)) from generate_series(:n::bigint, :n + 500) g"
    with storm(server, tmp_path, f"\\set n random(1, 100000)\n{lookups}", 16):
        wait_for_event(server, "BufferMapping")
        # How many wait for the table depends on how often the host takes the CPU from who has it.
        findings = by_rule(captured(server, tmp_path, WINDOW_S, SERVER_RULES, {"BUFFERMAPPING.min_share": 0.003}))
    assert set(findings) == {"READ-IO", "BUFFERMAPPING"}
    reads, table = findings["READ-IO"], findings["BUFFERMAPPING"]
    assert (reads.subject, table.subject) == ("reads of data files", "buffer table partitions")
    assert "for blocks to be read" in reads.statement and "for partitions of the buffer table" in table.statement
    for finding in (reads, table):
        assert "from big where id" in finding.evidence[0]["query"]
