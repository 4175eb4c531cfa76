"""The findings on locks, pages and I/O against real servers: a planted trouble gives exactly the finding planted.

That a quiet server gives none is said in test_findings_live_sessions.py, for all rules in one capture.
What the findings say is compared with what the test planted and with what the server itself says (pg_blocking_pids).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import live
import pytest
from conftest import Server, running, wait_until
from leadline.capture.reader import open_capture
from leadline.findings import Finding
from leadline.progress import Silent
from leadline.views.lock_tree import lock_trees
from live import SERVER_RULES, WINDOW_S, rows, sessions, storm, waiting

pytestmark = pytest.mark.live

PAGES = ["RIGHT-EDGE-INDEX", "SEQUENCE-PAGE", "HOT-HEAP-PAGE", "BUFFER-WAITS-UNNAMED"]


class AtStart(Silent):
    """Runs something once, when the window has begun (the statistics before it are read by then)."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self.action: Callable[[], Any] | None = action

    def update(self, elapsed_s: float, total_s: float, status: dict[str, Any]) -> None:
        action, self.action = self.action, None
        if action is not None:
            action()


def captured(server: Server, folder: Path, for_s: float = WINDOW_S, only: list[str] = SERVER_RULES, **options: Any) -> list[Finding]:
    return live.captured(server, folder, for_s, only, **options).findings


def blocked_by(server: Server, pid: int) -> set[int]:
    return set(server.sql("select pg_blocking_pids(%s)", [pid])[0][0])


def wait_for_lock(server: Server, pid: int) -> None:
    query = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
    wait_until(lambda: server.sql(query, [pid]), what=f"a lock wait of pid {pid}")


def table(server: Server, name: str) -> str:
    """A fresh table of one row, known to everybody by name."""
    server.sql(f"drop table if exists {name}")
    server.sql(f"create table {name} (id int primary key, v int)")
    server.sql(f"insert into {name} values (1, 0)")
    return name


def test_a_lock_chain_names_its_root(pg: Server, tmp_path: Path) -> None:
    check_lock_chain(pg, "shm", tmp_path)


def test_a_lock_chain_names_its_root_over_sql(servers: Callable[[int], Server], tmp_path: Path) -> None:
    check_lock_chain(servers(16), "sql", tmp_path)


def check_lock_chain(server: Server, tier: str, tmp_path: Path) -> None:
    name = table(server, "chain_of_locks")
    with sessions(server) as connect, ExitStack() as stack:
        root = connect("the-root")
        root_pid = root.info.backend_pid
        root.execute("begin")
        root.execute(f"update {name} set v = v + 1 where id = 1")
        pids = []
        for number in range(3):
            victim = connect(f"victim-{number}")
            stack.enter_context(waiting(victim, f"update {name} set v = v + 10 where id = 1"))
            pids.append(victim.info.backend_pid)
            wait_for_lock(server, pids[-1])
        blockers = {pid: blocked_by(server, pid) for pid in pids}
        (finding,) = captured(server, tmp_path, tier=tier)
    assert (finding.id, finding.subject) == ("BLOCK-CHAIN", f"pid {root_pid}")
    for text in (f"pid {root_pid} (idle in transaction, application the-root", "blocked 3 sessions", f"public.{name}", "transactionid"):
        assert text in finding.statement
    assert {e["victim_pid"] for e in finding.evidence} == set(pids)
    assert finding.cost_s == pytest.approx(3 * WINDOW_S, rel=0.15)  # all three waited for the whole window
    assert finding.share_of_db_time is not None and finding.share_of_db_time > 0.8
    seen: dict[int, set[int]] = {}
    for row in rows(tmp_path, "select distinct pid, blocker_pid from lock_wait"):
        seen.setdefault(row["pid"], set()).add(row["blocker_pid"])
    assert seen == blockers


@pytest.mark.parametrize("tier", ["shm", "sql"])
def test_a_prepared_transaction_is_named(tier: str, servers: Callable[[int], Server], tmp_path: Path) -> None:
    """It has no process and no session, and its client may be long gone."""
    server = servers(16)
    name = table(server, "left_prepared")
    with sessions(server) as connect, ExitStack() as stack:
        connect("gone").execute(f"begin; update {name} set v = 1; prepare transaction 'order 17'")
        stack.callback(server.sql, "rollback prepared 'order 17'")
        victim = connect("victim")
        pid = victim.info.backend_pid
        stack.enter_context(waiting(victim, f"update {name} set v = 2"))
        wait_for_lock(server, pid)
        (finding,) = captured(server, tmp_path, tier=tier)
    assert (finding.id, finding.subject) == ("BLOCK-CHAIN", "prepared transaction postgres/order 17")
    assert "The prepared transaction postgres/order 17 blocked 1 session" in finding.statement
    assert finding.cost_s == pytest.approx(WINDOW_S, rel=0.15)
    (tree,) = lock_trees(open_capture(tmp_path / "live.leadline"))
    assert tree.name == "a prepared transaction (listed: postgres/order 17)"
    assert [w.pid for w in tree.waiters] == [pid]


def test_a_queue_behind_ddl_names_the_request_and_its_holder(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    name = table(server, "queue_for_ddl")
    with sessions(server) as connect, ExitStack() as stack:
        report = connect("report")
        report.execute("begin")
        report.execute(f"select count(*) from {name}")
        ddl = connect("migration")
        report_pid, ddl_pid = report.info.backend_pid, ddl.info.backend_pid
        stack.enter_context(waiting(ddl, f"alter table {name} add column note text"))
        wait_for_lock(server, ddl_pid)
        readers = []
        for number in range(2):
            reader = connect(f"reader-{number}")
            stack.enter_context(waiting(reader, f"select * from {name}"))
            readers.append(reader.info.backend_pid)
            wait_for_lock(server, readers[-1])
        assert all(blocked_by(server, pid) == {ddl_pid} for pid in readers)
        findings = {f.id: f for f in captured(server, tmp_path)}
    assert set(findings) == {"BLOCK-CHAIN", "DDL-QUEUE"}  # who holds the table is the root of the chain
    assert findings["BLOCK-CHAIN"].subject == f"pid {report_pid}"
    queue = findings["DDL-QUEUE"]
    assert queue.subject == f"relation public.{name}"
    assert f"pid {ddl_pid} that waits for AccessExclusiveLock" in queue.statement
    assert f"pid {report_pid} (idle in transaction, application report) holds it up with AccessShareLock" in queue.statement
    assert {e["victim_pid"] for e in queue.evidence} == set(readers)
    assert queue.cost_s == pytest.approx(2 * WINDOW_S, rel=0.15)


def test_inserts_of_growing_keys_name_the_index(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    server.sql("create table if not exists edge_of_index (at timestamptz)")
    server.sql("create index if not exists edge_of_index_at on edge_of_index (at)")
    with storm(server, tmp_path, "insert into edge_of_index select clock_timestamp() from generate_series(1, 50)", 16):
        findings = captured(server, tmp_path, only=PAGES)
    assert [f.subject for f in findings if f.id == "RIGHT-EDGE-INDEX"] == ["index public.edge_of_index_at"]
    finding = next(f for f in findings if f.id == "RIGHT-EDGE-INDEX")
    assert "right-most leaf of index public.edge_of_index_at of table public.edge_of_index" in finding.statement
    assert findings[0] == finding  # the costliest
    assert not {f.id for f in findings} & {"SEQUENCE-PAGE", "BUFFER-WAITS-UNNAMED"}


def test_many_nextval_name_the_sequence(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    server.sql("create sequence if not exists hot_numbers")
    with storm(server, tmp_path, "select count(nextval('hot_numbers')) from generate_series(1, 200)", 16):
        findings = captured(server, tmp_path, only=PAGES)
    assert [(f.id, f.subject) for f in findings] == [("SEQUENCE-PAGE", "sequence public.hot_numbers")]


def test_updates_of_one_row_name_the_table(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    name = table(server, "one_hot_row")
    transaction = f"begin;\nupdate {name} set v = v + 1 where id = 1;\nselect pg_sleep(0.005);\ncommit"
    with storm(server, tmp_path, transaction, 8):
        findings = captured(server, tmp_path, only=["ROW-HOTSPOT", "BLOCK-CHAIN", "DDL-QUEUE"])
    assert [(f.id, f.subject) for f in findings] == [("ROW-HOTSPOT", f"rows of table public.{name}")]


def test_a_sort_with_little_memory_names_its_statement(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    with sessions(server) as connect, ExitStack() as stack:
        sorter = connect("sorter")
        sorter_pid = sorter.info.backend_pid
        sorter.execute("set work_mem = '64kB'")
        query = "select count(*) from (select g from generate_series(1, 50000000) g order by md5(g::text)) s"
        stack.enter_context(waiting(sorter, query))
        findings = captured(server, tmp_path, only=["TEMP-SPILL"])
    (finding,) = findings
    assert "select count(*) from (select g from generate_series($1" in finding.statement
    (row,) = finding.evidence
    assert (row["pid"], row["application_name"]) == (sorter_pid, "sorter")
    assert row["written_bytes"] >= 16 * 1024 * 1024


def test_a_checkpoint_by_command_is_seen(pg: Server, tmp_path: Path) -> None:
    findings = captured(pg, tmp_path, for_s=1.0, only=["CKPT-REQUESTED"], progress=AtStart(lambda: pg.sql("checkpoint")))
    (finding,) = findings
    assert (finding.severity, finding.evidence[0]["requested"], finding.evidence[0]["timed"]) == ("info", 1, 0)
    assert "by a command rather than by WAL volume" in finding.statement


def test_ordinary_transactions_have_no_grave_findings(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(18, max_wal_size="8GB")  # with the 256 MB of the other servers, checkpoints by WAL volume are no mistake
    server.pgbench_init(scale=20)
    server.sql("checkpoint")
    with server.pgbench("-c", 4, "-j", 1, "-T", 60, "-M", "prepared"):
        query = "select count(*) >= 2 from pg_stat_activity where application_name = 'pgbench' and state = 'active'"
        wait_until(lambda: server.sql(query)[0][0], what="the load")
        findings = captured(server, tmp_path)
    assert [f for f in findings if f.severity in ("critical", "high")] == []
    assert not {f.id for f in findings} & {"BLOCK-CHAIN", "DDL-QUEUE", "RIGHT-EDGE-INDEX", "SEQUENCE-PAGE", "HOT-HEAP-PAGE"}


@pytest.mark.parametrize(("major", "tier"), [(13, "shm"), (18, "shm"), (18, "sql")])
def test_an_ordinary_autovacuum_and_one_against_wraparound_are_told_apart(major: int, tier: str, tmp_path: Path) -> None:
    """Both run before a lock of the table: the ordinary one would give way after deadlock_timeout, which is long here."""
    with running(major, autovacuum="on", autovacuum_naptime="1s", deadlock_timeout="1min") as server:
        action = {f.subject: f.action for f in vacuums_that_block(server, tier, tmp_path) if f.id == "BLOCK-CHAIN"}
    [plain, wrapped] = action.values()
    assert "an ordinary autovacuum worker" in plain and "against transaction id wraparound" in wrapped


def vacuums_that_block(server: Server, tier: str, tmp_path: Path) -> list[Finding]:
    """Findings in the order of the names."""
    for name, options in (
        ("plainly", "autovacuum_vacuum_insert_threshold = 0, autovacuum_vacuum_insert_scale_factor = 0"),
        ("wrapped", "autovacuum_freeze_max_age = 100000"),
    ):
        server.sql(f"drop table if exists {name}")
        server.sql(f"create table {name} (v int) with ({options}, autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)")
        server.sql(f"insert into {name} select generate_series(1, 20000)")
    server.sql("do $$ begin for i in 1..100001 loop perform txid_current(); commit; end loop; end $$")
    worker = "select pid, query from pg_stat_activity where backend_type = 'autovacuum worker' and query like %s"
    with sessions(server) as connect, ExitStack() as stack:
        pids = {}
        for name in ("plainly", "wrapped"):
            wait_until(lambda name=name: server.sql(worker, [f"%{name}%"]), what=f"a vacuum of {name}")
            pids[name] = server.sql(worker, [f"%{name}%"])[0][0]
            victim = connect(f"altering {name}")
            stack.enter_context(waiting(victim, f"alter table {name} add column w int"))
            wait_for_lock(server, victim.info.backend_pid)
        findings = captured(server, tmp_path, tier=tier)
    return sorted(findings, key=lambda f: f.subject != f"pid {pids['plainly']}")
