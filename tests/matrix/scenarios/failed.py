"""Work that is thrown away, and sessions that wait for what lies outside the server's own code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg

from matrix.ground import Ground, Stopwatch, Tally
from matrix.scenario import Expected, Truth, scenario


@scenario(settings={"deadlock_timeout": "400ms"}, window_s=5.0, never=("ROW-HOTSPOT",))
def deadlocks_of_two_orders(g: Ground) -> Iterator[Truth]:
    """Two transactions change the same two rows in different orders. The truth is how long each waited for its second row."""
    t = g.table("crossed", 2)
    watch, both = Stopwatch(), threading.Barrier(2)

    def crossing(first: int) -> Any:
        def step(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            try:
                try:
                    with db.transaction():
                        db.execute(f"update {t} set v = v + 1 where id = {first}")
                        both.wait(10)
                        with watch.on():
                            db.execute(f"update {t} set v = v + 1 where id = {3 - first}")
                except psycopg.errors.DeadlockDetected:
                    pass  # as planted
                both.wait(10)  # else the victim may be back before the other has its row
            except threading.BrokenBarrierError:
                stop.set()

        return step

    g.begin("shop", crossing(1))
    g.begin("shop", crossing(2))
    g.wait_for("wait_event = 'transactionid'", 2)
    yield lambda: [Expected("DEADLOCKS", "database postgres", watch.within(g.window), ("update public.crossed set v = v +",), "high")]
    both.abort()


@scenario(window_s=5.0)
def transactions_that_are_rolled_back(g: Ground) -> Iterator[Truth]:
    """Two of three transactions end with an error, as of keys that are there already."""
    g.sql("create table entry (id int primary key)")
    g.sql("insert into entry values (1)")
    tally = Tally()

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select 1")
        for _ in range(2):
            try:
                db.execute("insert into entry values (1)")
            except psycopg.errors.UniqueViolation:
                tally.count()
        stop.wait(0.05)

    g.repeat("import", work, 8)

    def truth() -> list[Expected]:
        figures = {"rolled_back_per_s": tally.within(g.window) / g.window.seconds}
        return [Expected("ROLLBACKS", "database postgres", severity="medium", figures=figures)]

    yield truth


@scenario(window_s=4.0)
def transactions_left_failed(g: Ground) -> Iterator[Truth]:
    """A client does not notice that its transaction has failed, and goes on with other things for a while."""
    g.sql("create table entry (id int primary key)")
    g.sql("insert into entry values (1)")
    watch = Stopwatch()

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("begin")
        try:
            db.execute("insert into entry values (1)")  # a session that touches no table keeps its counts to itself
        except psycopg.errors.UniqueViolation:
            with watch.on():
                stop.wait(0.2)
        db.execute("rollback")

    g.repeat("worker", work, 2)
    says = ("2 sessions sat", "failed transactions (application worker)")
    yield lambda: [Expected("ROLLBACKS", "database postgres", None, says, figures={"failed_s": watch.within(g.window)})]


@scenario(window_s=4.0, beside=("TOP-WAIT",))
def statements_that_wait_for_another_server(g: Ground) -> Iterator[Truth]:
    """dblink asks a server that takes its time."""
    g.sql("create extension dblink")
    watch = Stopwatch()

    def ask(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with watch.on():
            db.execute("select * from dblink(%s, 'select pg_sleep(1)') as t (v text)", [g.server.dsn])
        stop.wait(0.1)

    g.repeat("asks", ask, 2)
    # From 17 on the extension gives its waits names, which lie in a memory of the server that is not read.
    subject = "extension wait Extension" if g.major < 17 else "extension wait without a name, code 0x07000001"
    yield lambda: [Expected("EXTENSION-WAIT", subject, watch.within(g.window), ("from dblink(",), "medium")]
