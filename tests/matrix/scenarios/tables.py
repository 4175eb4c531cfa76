"""Tables that maintenance does not keep up with: dead rows, old statistics, catalogs full of what came and went."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
from conftest import wait_until

from matrix.ground import Ground, Stopwatch
from matrix.scenario import Expected, Truth, scenario
from matrix.scenarios.ddl import SLOW_VACUUM
from matrix.scenarios.locks import holds

NOBODY_COMES = {"autovacuum_naptime": "600s"}
"""Autovacuum is on, but no worker comes by within a scenario."""


def filled(g: Ground, name: str, rows: int, options: str = "") -> str:
    """An analysed table without dead rows. Gives its name with the schema."""
    g.sql(f"create table {name} (id int primary key, words text){f' with ({options})' if options else ''}")
    g.sql(f"insert into {name} select n, 'x' from generate_series(1, {rows}) n")
    g.sql(f"vacuum analyze {name}")
    return f"public.{name}"


def counted(g: Ground, table: str, metric: str, value: int) -> None:
    """Until the server's statistics have it: a session hands its counts over at most once a second."""
    query = f"select {metric} = %s from pg_stat_user_tables where schemaname || '.' || relname = %s"
    wait_until(lambda: g.sql(query, [value, table])[0][0], what=f"{metric} of {table}")


@scenario(settings=NOBODY_COMES)
def autovacuum_off_for_a_table(g: Ground) -> Iterator[Truth]:
    """Most rows of a table without autovacuum have been deleted. Another table has as many dead rows, but is due in the usual way."""
    off, usual = filled(g, "off", 40_000, "autovacuum_enabled = off"), filled(g, "usual", 40_000)
    for table in (off, usual):
        g.sql(f"delete from {table} where id <= 30000")
        counted(g, table, "n_dead_tup", 30_000)
    yield lambda: [
        Expected("AUTOVACUUM-OFF", f"table {off}", None, ("autovacuum is off for public.off",), "medium", {"dead_rows": 30_000}),
        Expected("STALE-STATISTICS", f"table {off}", figures={"changed_rows": 30_000}),
    ]


@scenario(settings={"autovacuum": False}, beside=("STALE-STATISTICS",))
def autovacuum_off_for_the_server(g: Ground) -> Iterator[Truth]:
    """Two tables have dead rows, and autovacuum is off in the configuration: one finding, for the server."""
    for name, dead in (("cart", 30_000), ("visit", 20_000)):
        table = filled(g, name, 40_000)
        g.sql(f"update {table} set words = 'y' where id <= {dead}")
        counted(g, table, "n_dead_tup", dead)
    yield lambda: [Expected("AUTOVACUUM-OFF", "server", None, ("50000 dead rows", "2 tables"), figures={"dead_rows": 30_000})]


@scenario(settings=NOBODY_COMES)
def vacuum_that_may_not_remove_the_rows(g: Ground) -> Iterator[Truth]:
    """A report has an old snapshot: a vacuum has ended and left all dead rows."""
    table = filled(g, "kept", 40_000)
    pid = holds(g, "report", "set transaction isolation level repeatable read", f"select count(*) from {table}").info.backend_pid
    g.sql(f"delete from {table} where id <= 30000")
    counted(g, table, "n_dead_tup", 30_000)
    g.sql(f"vacuum {table}")
    vacuumed = "last_vacuum > now() - interval '1 min' and n_dead_tup = 30000"
    wait_until(lambda: g.sql(f"select {vacuumed} from pg_stat_user_tables where relname = 'kept'")[0][0], what="the end of the vacuum")
    says = (f"pid {pid} (idle in transaction, application report)",)
    yield lambda: [Expected("AUTOVACUUM-BLOCKED", f"table {table}", None, says, "medium", {"dead_rows": 30_000, "pid": pid})]


@scenario(settings=NOBODY_COMES, thresholds={"blocked_lock_s": 1.0}, beside=("IDLE-IN-XACT",))
def vacuum_that_cannot_lock_the_table(g: Ground) -> Iterator[Truth]:
    """A session has left a lock on a table behind: workers pass over it. A minute counts as a second here."""
    table = filled(g, "locked", 40_000)
    g.sql(f"delete from {table} where id <= 30000")
    counted(g, table, "n_dead_tup", 30_000)
    older = "last_vacuum < clock_timestamp() - interval '3 s'"  # than the lock, beyond doubt
    wait_until(lambda: g.sql(f"select {older} from pg_stat_user_tables where relname = 'locked'")[0][0], what="an old vacuum")
    pid = holds(g, "migration", f"lock table {table} in share row exclusive mode").info.backend_pid
    g.wait_for(f"pid = {pid} and clock_timestamp() > xact_start + interval '2 s'")
    says = (f"pid {pid} (idle in transaction, application migration)", "ShareRowExclusiveLock")
    yield lambda: [Expected("AUTOVACUUM-BLOCKED", f"table {table}", None, says, "medium", {"dead_rows": 30_000, "pid": pid})]


@scenario(settings={"autovacuum_naptime": 1, "autovacuum_max_workers": 1}, window_s=4.0, beside=("STALE-STATISTICS",))
def autovacuum_that_sleeps_while_rows_die(g: Ground) -> Iterator[Truth]:
    """The only worker is in a table with its cost limit, and updates make more dead rows there."""
    table = filled(g, "hot", 100_000, f"{SLOW_VACUUM}, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000")
    g.sql(f"update {table} set words = 'y' where id <= 40000")
    g.wait_for(f"backend_type = 'autovacuum worker' and query like '%{table}%'")

    def change(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute(f"update {table} set words = 'z' where id between 50000 and 50100")
        stop.wait(0.05)

    g.repeat("shop", change)
    yield lambda: [Expected("AUTOVACUUM-SLOW", "autovacuum", None, ("wait in public.hot", "for the cost limit"))]


@scenario(settings=NOBODY_COMES)
def table_never_analysed(g: Ground) -> Iterator[Truth]:
    """A table without autovacuum has been loaded, and nobody has analysed it; a session reads it."""
    g.sql("create table events (id int, words text) with (autovacuum_enabled = off)")
    g.sql("insert into events select n, 'x' from generate_series(1, 50000) n")
    counted(g, "public.events", "n_mod_since_analyze", 50_000)

    def read(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select count(*) from events where words = 'y'")
        stop.wait(0.2)

    g.repeat("report", read)
    says = ("has never been analysed and has about 50000 rows", "autovacuum is off for this table")
    yield lambda: [Expected("STALE-STATISTICS", "table public.events", None, says, figures={"changed_rows": 50_000})]


@scenario()
def partitioned_table_never_analysed(g: Ground) -> Iterator[Truth]:
    """Partitions are analysed, their parent is not: autovacuum never does that."""
    g.sql("create table sale (id int, kind int) partition by list (kind)")
    for kind in range(3):
        g.sql(f"create table sale_{kind} partition of sale for values in ({kind})")
    g.sql("insert into sale select n, n % 3 from generate_series(1, 60000) n")
    for kind in range(3):
        g.sql(f"vacuum analyze sale_{kind}")
    yield lambda: [Expected("STALE-STATISTICS", "table public.sale", None, ("its 3 partitions", "about 60000 rows"))]


@scenario(window_s=4.0)
def temporary_tables_without_end(g: Ground) -> Iterator[Truth]:
    """Sessions make a temporary table for each of their jobs and drop it again."""

    def job(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("create temp table work (a int primary key, b text, c text); drop table work", prepare=False)
        stop.wait(0.01)

    g.repeat("job", job, 2)
    yield lambda: [Expected("CATALOG-BLOAT", "system catalogs", None, ("database postgres", "create temp table work"))]


@scenario(settings={"autovacuum": True, "autovacuum_naptime": "1s", "deadlock_timeout": "400ms"}, window_s=6.0,
          thresholds={"cancel_again": 1}, never=("LOCK-CONVOY", "TIMEOUT-REPEATED"))  # fmt: skip
def migration_that_cancels_autovacuum(g: Ground) -> Iterator[Truth]:
    """Each time a slow worker is in the table, a migration asks for its lock: the worker gives way and begins anew."""
    often = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1"
    g.sql(f"create table account (id int, t text) with ({SLOW_VACUUM}, {often})")
    g.sql("insert into account select n, repeat('x', 500) from generate_series(1, 5000) n")
    g.sql("delete from account where id % 2 = 0")
    at_work = "select pid from pg_stat_activity where backend_type = 'autovacuum worker' and query like '%public.account%'"
    wait_until(lambda: g.sql(at_work), what="a worker in the table")
    watch, waits = Stopwatch(), Stopwatch()

    def migrate(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        if db.execute(at_work).fetchall():
            with watch.on():
                db.execute("alter table account alter t set default 'x'")
        stop.wait(0.1)

    [client] = g.begin("migrate", migrate)

    def truth() -> list[Expected]:
        # the others came when it had gone; of one at the very end nobody knows yet whether the worker leaves the table
        waits.spans = [(begin, end) for begin, end in watch.spans if end - begin > 0.3e9 and end <= g.window.ts_to - 0.5e9]
        says = ("application migrate waited", "alter table account", f"pid {client.pid}")
        return [Expected("AUTOVACUUM-CANCELLED", "table public.account", waits.within(g.window), says)]

    yield truth


@scenario(thresholds={"idle_connections": 20})
def pools_whose_connections_do_nothing(g: Ground) -> Iterator[Truth]:
    """Two pools keep connections that nobody uses. A third works now and then."""
    for name, number in (("api", 25), ("reports", 12)):
        for _ in range(number):
            g.connect(name)

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select 1")
        stop.wait(0.2)

    g.repeat("web", work, 4)
    says = ("37 connections did nothing", "most are of application api", "(25)")
    yield lambda: [Expected("IDLE-CONNECTIONS", "idle connections", None, says, figures={"sessions": 25})]


@scenario(settings=NOBODY_COMES, thresholds={"bloat_bytes": 500_000})
def indexes_that_a_mass_delete_has_left_large(g: Ground) -> Iterator[Truth]:
    """Nearly all rows of a table have been deleted and vacuumed. Another table is as large and keeps its rows."""
    for name in ("job", "whole"):
        g.sql(f"create table {name} (id bigint primary key, note text)")
        g.sql(f"insert into {name} select n, 'x' from generate_series(1, 60000) n")
    g.sql("create index by_note on job (lower(note), id)")
    g.sql("delete from job where id % 100 > 0")
    g.sql("vacuum analyze job, whole")
    pages = {name: n for name, n in g.sql("select relname, relpages from pg_class where relname in ('job_pkey', 'by_note')")}
    yield lambda: [Expected("INDEX-BLOAT", f"index public.{name}", figures={"pages": pages[name], "entries": 600}) for name in pages]


@scenario()
def large_objects_that_rows_have_left_behind(g: Ground) -> Iterator[Truth]:
    """Rows with large objects are deleted; the objects of the others are named by an oid, and those of another table by a text."""
    g.sql("create table document (id int, body oid)")
    g.sql("insert into document select n, lo_from_bytea(0, 'x') from generate_series(1, 300) n")
    g.sql("create table by_text as select lo_from_bytea(0, 'x')::text as body from generate_series(1, 50) n")
    g.sql("delete from document where id <= 120")
    [(database,)] = g.sql("select current_database()")
    says = ("no column names 120 of the 350 large objects",)
    figures = {"objects": 350, "orphans": 120}
    yield lambda: [Expected("ORPHANED-LARGE-OBJECTS", f"large objects of database {database}", None, says, figures=figures)]
