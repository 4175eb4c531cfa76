"""Findings about tables and statements on real servers: one server of each major with all the troubles at once, and nothing else found."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import MAJORS, Server, wait_until
from leadline.capture.reader import open_capture
from leadline.findings import Finding, evaluate
from leadline.probes.take import take
from live import captured, changes_events, clients, looks_at_events, partitioned_events

STATEMENT_RULES = ["MISSING-INDEX", "PLAN-FLIP", "JIT-COST", "PARALLEL-STARVED", "PLANNING-TIME"]
RULES = ["AUTOVACUUM-OFF", "AUTOVACUUM-BLOCKED", "AUTOVACUUM-SLOW", "STALE-STATISTICS"]


def counted(server: Server, table: str, metric: str, value: int) -> None:
    """Until the server's statistics have it: a session hands its counts over at most once a second."""
    query = f"select {metric} >= %s from pg_stat_user_tables where relname = %s"
    wait_until(lambda: server.sql(query, [value, table])[0][0], what=f"{metric} of {table}")


@pytest.mark.parametrize("major", MAJORS)
def test_dead_rows_and_old_statistics_by_table(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major, autovacuum_naptime="600s")
    for name, options in {"off": " with (autovacuum_enabled = off)", "kept": "", "clean": ""}.items():
        server.sql(f'create table "{name}" (a int primary key, b text){options}')
        server.sql(f"insert into \"{name}\" select i, 'x' from generate_series(1, 40000) i")
        server.sql(f'vacuum analyze "{name}"')
    with server.connect(application_name="report") as holder:
        holder.autocommit = False
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from kept")
        server.sql('delete from "off" where a <= 30000')
        server.sql("delete from kept where a <= 30000")
        counted(server, "kept", "n_dead_tup", 30000)
        server.sql("vacuum kept")
        wait_until(
            lambda: server.sql(
                "select last_vacuum > now() - interval '1 min' and n_dead_tup = 30000 from pg_stat_user_tables where relname = 'kept'"
            )[0][0]
        )
        counted(server, "off", "n_dead_tup", 30000)
        path = take(dsn=server.dsn, pid=server.pid, for_s=2.0, out=tmp_path / "c.leadline", probes=["sessions"])
        pid = holder.info.backend_pid
    capture = open_capture(path)
    result = evaluate(capture, RULES)
    capture.close()
    assert result.not_evaluated == []
    found: dict[tuple[str, str], Finding] = {(f.id, f.subject): f for f in result.findings}
    off, kept = found.pop(("AUTOVACUUM-OFF", "table public.off")), found.pop(("AUTOVACUUM-BLOCKED", "table public.kept"))
    stale = found.pop(("STALE-STATISTICS", "table public.off"))
    assert found == {}
    [(size,)] = server.sql("select pg_relation_size('\"off\"')")
    assert off.evidence[0]["dead_rows"] == 30_000 and off.evidence[0]["dead_bytes_estimate"] == pytest.approx(0.75 * size, rel=0.02)
    assert kept.evidence[0]["pid"] == pid and "application report" in kept.statement
    assert stale.evidence[0]["changed_rows"] == 30_000


def step(statement: str, *settings: str) -> Any:
    """A step of a client (tests/support/live.py): the statement with these settings, which stay."""

    def run(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        if settings and db.execute("select current_setting('leadline.set', true)").fetchall() != [("1",)]:
            for setting in (*settings, "leadline.set = '1'"):
                db.execute(f"set {setting}")
        db.execute(statement, prepare=False)

    return run


@pytest.mark.parametrize("major", MAJORS)
def test_costs_of_statements(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """A missing index, planning and parallel workers; beside them full reports and lookups by key, which are fine."""
    options = {"max_parallel_workers": 1, "pg_stat_statements.track_planning": "on", "jit": "off", "autovacuum": "off"}
    server = fresh_server(major, shared_preload_libraries="pg_stat_statements", **options)
    server.sql("create extension pg_stat_statements")
    server.sql("create table orders (id int primary key, customer int, words text)")
    server.sql("insert into orders select i, i / 5, 'abcdefghijklmnopqrst' from generate_series(1, 100000) i")
    server.sql("vacuum analyze orders")
    alone = "max_parallel_workers_per_gather = 0"
    together = [f"{name} = 0" for name in ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size")]
    together.append("max_parallel_workers_per_gather = 4")
    joins = "".join(f" join pg_class t{n} on t{n}.relname = a.relname" for n in range(8))
    work = {
        "lookup": step("select words from orders where customer = 777", alone),
        "key": step("select words from orders where id = 777", alone),
        "plan": step("select count(*) from pg_class a" + joins + " where a.relname = 'x'", alone),
        "report": step("select max(words), count(*) from orders", *together),
    }
    with clients(server, *work.items()) as running:
        wait_until(lambda: all(client.done > 3 for client in running), what="the load")
        path = take(dsn=server.dsn, pid=server.pid, for_s=4.0, out=tmp_path / "c.leadline", probes=["sessions"])
        calls = server.sql("select sum(calls) from pg_stat_statements where query like '%%customer%%'")
    capture = open_capture(path)
    result = evaluate(capture, STATEMENT_RULES)
    ran = capture.rows("select calls, result_rows, blocks from statement_stat where query like '%customer%'")
    capture.close()
    assert [rule for rule, _ in result.not_evaluated] == (["JIT-COST"] if major < 15 else [])
    found = {f.id: f for f in result.findings}
    planning = found.pop("PLANNING-TIME")
    assert planning.evidence[0]["calls"] == pytest.approx(planning.evidence[0]["plans"], abs=1) and planning.evidence[0]["calls"] > 10
    if major >= 18:
        starved = found.pop("PARALLEL-STARVED")
        assert starved.evidence[0]["workers_asked"] > 2 * starved.evidence[0]["workers_had"] and "orders" in starved.statement
    if major >= 14:  # before, the server gives no ids of statements: it can have been either of the two that look for rows
        index = found.pop("MISSING-INDEX")
        assert index.subject == "table public.orders"
        assert [e["query"] for e in index.evidence] == ["select words from orders where customer = $1"]
        assert ran[0]["result_rows"] == 5 * ran[0]["calls"] and 0 < ran[0]["calls"] <= calls[0][0]
        assert "pg_class" in planning.statement
    assert found == {}


def temporary(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    db.execute("create temp table work (a int primary key, b text, c text); drop table work", prepare=False)


def slow_copy(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    with db.cursor() as cursor, cursor.copy("copy loaded from stdin") as copy:
        while not stop.wait(0.01):
            copy.write_row((1,))


@pytest.mark.parametrize("major", MAJORS)
def test_costs_of_clients(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """Temporary tables without end, a COPY that waits for its client, and rows that are committed one by one."""
    server = fresh_server(major, fsync=True)
    server.sql("create table loaded (a int)")
    server.sql("create table entry (a int)")
    work = {"temporary": temporary, "loader": slow_copy, "import": step("insert into entry values (1)")}
    with clients(server, *work.items()) as running:
        wait_until(lambda: running[0].done > 10 and running[2].done > 10, what="the load")
        path = take(dsn=server.dsn, pid=server.pid, for_s=4.0, out=tmp_path / "c.leadline", probes=["sessions"])
    capture = open_capture(path)
    # how long a flush takes is a matter of the disk
    low = {"single_share": 0.02, "single_min_sessions": 0.01, "single_min_samples": 3}
    found = {f.id: f for f in evaluate(capture, ["CATALOG-BLOAT", "SLOW-LOADER", "SINGLE-ROW-COMMITS"], low).findings}
    capture.close()
    assert found.keys() == {"CATALOG-BLOAT", "SLOW-LOADER", "SINGLE-ROW-COMMITS"}
    assert found["SLOW-LOADER"].subject == "COPY into loaded by application loader from local"
    assert found["SLOW-LOADER"].evidence[0]["pid"] == running[1].pid
    assert found["SINGLE-ROW-COMMITS"].subject == "application import from local"
    deleted = {e["relation"]: e["deleted"] for e in found["CATALOG-BLOAT"].evidence}
    # a table, its primary key, its TOAST table and the index of that, and the columns of each
    assert deleted["pg_catalog.pg_attribute"] > 2 * deleted["pg_catalog.pg_class"] > 0


@pytest.mark.parametrize("major", [13, 18])
def test_ddl_that_makes_sessions_plan_again(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """A table with many partitions, four sessions with a prepared statement each, and a job that changes the table again and again."""
    options = {"pg_stat_statements.track_planning": "on", "autovacuum": "off", "jit": "off"}
    server = fresh_server(major, shared_preload_libraries="pg_stat_statements", **options)
    partitioned_events(server, 50)

    def elsewhere(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("create index other_idx on other (id); drop index other_idx", prepare=False)
        stop.wait(0.05)

    server.sql("create table other (id int)")
    with clients(server, *[("shop", looks_at_events)] * 4, ("quiet", elsewhere)) as running:
        wait_until(lambda: all(client.done > 30 for client in running), what="the load")
        assert captured(server, tmp_path / "quiet", 2.0, ["PLAN-INVALIDATION"], {"again_min_sessions": 0.001}).findings == []
        with clients(server, ("migrate", changes_events)) as [job]:
            wait_until(lambda: job.done > 1, what="the job")
            before = job.done
            result = captured(server, tmp_path / "changed", 5.0, ["PLAN-INVALIDATION"], {"again_min_sessions": 0.001})
            commands = job.done - before
    [finding] = result.findings
    [evidence] = finding.evidence
    [of_table] = [c for c in evidence["commands"] if c["name"] == "event"]
    assert of_table["command"] == "ALTER TABLE" and 0 < of_table["times"] <= commands + 1
    assert f"ALTER TABLE of event ({of_table['times']:.0f} times)" in finding.statement
    [statement] = evidence["statements"]
    assert of_table["times"] <= statement["plans_again"] <= 4 * (of_table["times"] + 1) < statement["calls"]
    assert finding.cost_s == pytest.approx(statement["lost_s"], abs=0.001) and finding.cost_s > 0.005 * of_table["times"] * 0.1
