"""Ordinary uses that look like trouble to a careless rule: no rule may fire above low."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from random import choice
from typing import Any

import psycopg

from matrix.ground import Ground
from matrix.scenario import Truth, scenario
from matrix.steps import looks, pays


@scenario(clean=True)
def clean_queue_of_jobs(g: Ground) -> Iterator[Truth]:
    """Six workers take jobs with FOR UPDATE SKIP LOCKED, and a producer adds some."""
    g.sql("create table job (id serial primary key, done bool default false)")
    g.sql("insert into job (done) select false from generate_series(1, 5000)")

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            row = db.execute("select id from job where not done order by id limit 1 for update skip locked").fetchone()
            stop.wait(0.02)
            if row:
                db.execute("update job set done = true where id = %s", row)

    def produce(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("insert into job (done) select false from generate_series(1, 10)")
        stop.wait(0.1)

    g.repeat("worker", work, 6)
    g.repeat("producer", produce)
    yield list


@scenario(clean=True)
def clean_listeners(g: Ground) -> Iterator[Truth]:
    """Twenty sessions listen, and two notify at a pace."""
    for _ in range(20):
        g.connect("listener").execute("listen news")

    def notify(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("notify news, 'x'")
        stop.wait(0.1)

    g.repeat("notifier", notify, 2)
    yield list


@scenario(clean=True, settings={"wal_level": "logical"})
def clean_logical_slot_that_is_read(g: Ground) -> Iterator[Truth]:
    """A consumer reads a logical slot all the time, and payments go on."""
    g.table("account", 1000)
    g.sql("select pg_create_logical_replication_slot('cdc', 'test_decoding')")

    def read(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select count(*) from pg_logical_slot_get_changes('cdc', null, null)").fetchall()
        stop.wait(0.2)

    g.repeat("cdc", read)
    g.repeat("pay", pays(1000), 2)
    yield list


@scenario(clean=True)
def clean_dump_running(g: Ground) -> Iterator[Truth]:
    """A dump reads a table slowly in a repeatable read transaction beside payments."""
    g.table("account", 20_000)

    def dump(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with suppress(psycopg.OperationalError), db.transaction():
            db.execute("set transaction isolation level repeatable read, read only")
            db.execute("declare dump no scroll cursor for select * from account")
            while not stop.is_set() and db.execute("fetch forward 5000 from dump").fetchall():
                pass
        stop.wait(0.3)

    g.repeat("dump", dump)
    g.repeat("pay", pays(20_000), 2)
    yield list


@scenario(clean=True)
def clean_index_built_concurrently(g: Ground) -> Iterator[Truth]:
    """An index is built again and again without blocking the writers of its table, whose transactions are short."""
    g.table("account", 20_000)

    def build(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("create index concurrently by_v on account (v)", prepare=False)
        db.execute("drop index concurrently by_v", prepare=False)
        stop.wait(1.0)

    def pay(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            db.execute("update account set v = v + 1 where id = %s", [choice(range(1, 20_001))])
        stop.wait(0.05)

    g.repeat("pay", pay, 3)
    g.repeat("migrate", build)
    yield list


@scenario(clean=True)
def clean_savepoints(g: Ground) -> Iterator[Truth]:
    """An ORM sets a savepoint around each of a few statements, and rolls one in ten back to it."""
    g.table("account", 5000)

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            for number in range(3):
                with suppress(psycopg.errors.DivisionByZero), db.transaction():
                    db.execute("update account set v = v + 1 where id = %s", [choice(range(1, 5001))])
                    if number == 2 and choice(range(4)) == 0:
                        db.execute("select 1 / 0")
        stop.wait(0.1)

    g.repeat("orm", work, 3)
    yield list


@scenario(clean=True)
def clean_upserts(g: Ground) -> Iterator[Truth]:
    """Three clients insert or update single rows of a table, each with a key by chance."""
    g.table("counter", 2000)

    def count(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        upsert = "insert into counter values (%s, 1) on conflict (id) do update set v = counter.v + 1"
        db.execute(upsert, [choice(range(1, 3001))])
        stop.wait(0.04)

    g.repeat("web", count, 3)
    yield list


@scenario(clean=True)
def clean_job_of_temporary_tables(g: Ground) -> Iterator[Truth]:
    """A report makes a temporary table once a second, and reads it."""
    g.table("account", 5000)

    def report(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("create temp table part as select * from account where id % 10 = 0", prepare=False)
        db.execute("select count(*) from part", prepare=False).fetchall()
        db.execute("drop table part", prepare=False)
        stop.wait(1.0)

    g.repeat("report", report)
    yield list


@scenario(clean=True, settings={"statement_timeout": "5s", "lock_timeout": "2s", "idle_in_transaction_session_timeout": "10s"})
def clean_scheduled_sleeps(g: Ground) -> Iterator[Truth]:
    """Programs that sleep in the server: a poller of half a second, and one that waits for a signal. Limits are set, and none is met."""

    def poll(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select pg_sleep(0.05)")
        stop.wait(0.5)

    def think(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            db.execute("select txid_current()")
            stop.wait(0.05)
        stop.wait(0.5)

    g.repeat("poller", poll, 2)
    g.repeat("form", think, 2)
    yield list


@scenario(clean=True)
def clean_monitoring(g: Ground) -> Iterator[Truth]:
    """Three monitors read the views of statistics, each once a second, beside a light load."""
    g.table("account", 5000)
    views = ("pg_stat_activity", "pg_locks", "pg_stat_database", "pg_stat_user_tables", "pg_stat_user_indexes", "pg_stat_replication")

    def watch(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        for view in views:
            db.execute(f"select * from {view}", prepare=False).fetchall()
        stop.wait(1.0)

    g.repeat("monitor", watch, 3)
    g.repeat("web", looks(5000), 2)
    yield list


@scenario(clean=True)
def clean_deployment(g: Ground) -> Iterator[Truth]:
    """A deployment: old sessions end and new ones come within the window, and a column is added to a table nobody holds."""
    g.table("account", 5000)

    old = g.repeat("web", looks(5000, prepare=False), 8)

    def deploy() -> None:
        g.sql("set lock_timeout = '1s'; alter table account add column if not exists note text")
        g.begin("web", looks(5000, prepare=False), 8)
        for client in old:
            client.stop.set()

    g.later(1.0, deploy)
    yield list
