"""Loads without trouble: no rule may fire above low."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from random import choice
from typing import Any

import psycopg
from conftest import in_memory, wait_until
from standby import Standby

from matrix.ground import Ground
from matrix.scenario import Truth, scenario
from matrix.scenarios.ddl import SLOW_VACUUM, vacuumed_slowly
from matrix.steps import looks, pays


@scenario(clean=True, settings={"max_wal_size": "8GB"})
def clean_oltp(g: Ground) -> Iterator[Truth]:
    """Payments of four clients at a pace."""
    g.server.pgbench_init(5)

    def pay(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            db.execute("update pgbench_accounts set abalance = abalance + 1 where aid = %s", [choice(range(1, 400_001))])
            db.execute("insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, 1, 1, now())")
        stop.wait(0.05)

    g.repeat("pay", pay, 4)
    yield list


@scenario(clean=True)
def clean_read_only(g: Ground) -> Iterator[Truth]:
    """Look-ups by key of four clients at a pace."""
    g.table("account", 20000)

    g.repeat("web", looks(20_000, 0.02), 4)
    yield list


@scenario(clean=True)
def clean_idle(g: Ground) -> Iterator[Truth]:
    """A server that nobody uses."""
    yield list


@scenario(clean=True, settings={"max_wal_size": "8GB", "shared_buffers": "256MB"})
def clean_bulk_load(g: Ground) -> Iterator[Truth]:
    """Two loaders copy batches of rows at a pace, each into a table of its own."""
    lines = "".join(f"{n}\t{'x' * 100}\n" for n in range(5000)).encode()

    def loader(table: str) -> Any:
        g.sql(f"create table {table} (id int, t text)")

        def load(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            with db.cursor().copy(f"copy {table} from stdin") as copy:
                copy.write(lines)
            stop.wait(0.2)

        return load

    for name in ("sales", "events"):
        g.repeat(f"load_{name}", loader(name))
    yield list


@scenario(clean=True, settings={"shared_buffers": "256MB"}, busy=True)
def clean_analytics(g: Ground) -> Iterator[Truth]:
    """One session runs reports on a table that fits into the cache, with parallel workers, a pause after each."""
    g.sql("create table fact as select n, n % 100 as kind, random() as x from generate_series(1, 300000) n")
    g.sql("vacuum analyze fact")

    def report(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select kind, count(*), avg(x) from fact group by kind order by kind").fetchall()
        stop.wait(0.2)

    g.repeat("report", report)
    yield list


@scenario(clean=True, settings={"max_connections": 120})
def clean_many_idle(g: Ground) -> Iterator[Truth]:
    """Eighty sessions of pools that do nothing, and one that works."""
    g.table("account", 1000)
    for _ in range(80):
        g.connect("pool")

    g.repeat("web", looks(1000))
    yield list


@scenario(clean=True)
def clean_backup_running(g: Ground) -> Iterator[Truth]:
    """A base backup at a bounded rate beside a light load."""
    g.table("account", 20000)
    options = "(CHECKPOINT 'fast', MAX_RATE 8192)" if g.major >= 15 else "FAST MAX_RATE 8192"
    backup = psycopg.pq.PGconn.connect(f"{g.server.dsn} replication=true application_name=pg_basebackup".encode())
    backup.send_query(f"BASE_BACKUP {options}".encode())

    def receive() -> None:
        while not g.ended.is_set() and (result := backup.get_result()) is not None:
            while result.status == psycopg.pq.ExecStatus.COPY_OUT and backup.get_copy_data(0)[0] > 0:
                if g.ended.is_set():
                    return

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    g.wait_for("application_name = 'pg_basebackup' and state = 'active'")

    g.repeat("pay", pays(20_000), 2)
    yield list
    g.ended.set()
    thread.join(10)
    backup.finish()


@scenario(clean=True, settings={"vacuum_cost_delay": "2ms"})
def clean_vacuum_running(g: Ground) -> Iterator[Truth]:
    """A vacuum with its cost delay beside paced updates of the same table."""
    g.table("account", 100_000)
    g.sql("update account set v = v + 1 where id % 3 = 0")

    def vacuum(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("vacuum account")
        stop.wait(0.5)

    g.begin("maintenance", vacuum)
    g.repeat("pay", pays(100_000), 2)
    yield list


@scenario(clean=True)
def clean_replication_healthy(g: Ground) -> Iterator[Truth]:
    """A synchronous standby on the same host, and payments at a pace."""
    with in_memory(), Standby(g.server.private):
        g.table("account", 1000)
        g.sql("alter system set synchronous_standby_names = '*'")
        g.sql("select pg_reload_conf()")
        wait_until(lambda: g.sql("select 1 from pg_stat_replication where sync_state = 'sync'"), what="a synchronous standby")

        payers = g.repeat("pay", pays(1000), 2)
        yield list
        g.stop(payers)


@scenario(clean=True)
def clean_partitioned(g: Ground) -> Iterator[Truth]:
    """Look-ups and inserts in a table of 24 partitions with an index each."""
    g.sql("create table part (id int, at int) partition by range (at)")
    g.sql("create index on part (id)")
    for n in range(24):
        g.sql(f"create table part_{n} partition of part for values from ({n * 100}) to ({n * 100 + 100})")
    g.sql("insert into part select n, n % 2400 from generate_series(1, 24000) n")
    g.sql("vacuum analyze part")

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("insert into part values (%s, %s)", [choice(range(24000)), choice(range(2400))])
        db.execute("select * from part where id = %s and at = %s", [choice(range(24000)), choice(range(2400))]).fetchall()
        stop.wait(0.05)

    g.repeat("web", work, 3)
    yield list


@scenario(clean=True, settings={"autovacuum_naptime": 1})
def clean_autovacuum_running(g: Ground) -> Iterator[Truth]:
    """A slow autovacuum of a table beside payments in the same table."""
    often = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1"
    g.sql(f"create table account (id int primary key, v int) with ({SLOW_VACUUM}, {often})")
    g.sql("insert into account select n, 0 from generate_series(1, 100000) n")
    g.sql("update account set v = 1 where id % 10 = 0")
    vacuumed_slowly(g)

    g.repeat("pay", pays(100_000), 2)
    yield list
