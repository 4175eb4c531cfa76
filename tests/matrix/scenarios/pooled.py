"""A PgBouncer before the server: its queue, and what its clients do through it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
from conftest import wait_until
from leadline.engines.postgres.server import PrivateServer
from pooler import pooler

from matrix.ground import Ground, Step, Stopwatch
from matrix.scenario import Expected, Truth, scenario
from matrix.steps import outsiders


def through_a_pooler(g: Ground, connections: int) -> tuple[PrivateServer, str]:
    """A server behind a PgBouncer that has so many connections to it. It is captured. Gives it, and how to connect to the pooler."""
    private = g.stack.enter_context(PrivateServer(g.server.private.bin_dir, loopback=True))
    port = g.stack.enter_context(pooler(private, connections, stats_users="stats"))
    g.target = private
    g.options["pooler"] = f"host=127.0.0.1 port={port} user=stats"
    return private, private.loopback_dsn.replace(f"port={private.port}", f"port={port}")


@scenario(window_s=4.0)
def clients_queue_in_the_pooler(g: Ground) -> Iterator[Truth]:
    """Six clients of PgBouncer share two connections. The truth is their own clock, less what the statement itself takes."""
    _, dsn = through_a_pooler(g, 2)
    asks, runs = Stopwatch(), Stopwatch()
    held_s = 0.1

    def work(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with asks.on():
            db.execute(f"select pg_sleep({held_s})")

    outsiders(g, dsn, work, 6 * ["web"])

    def truth() -> list[Expected]:
        runs.spans += [(end - int(held_s * 1e9), end) for _, end in asks.spans]
        says = ("The pool is full", "the server was busy with them")
        return [Expected("POOLER-QUEUE", "pool postgres/postgres", asks.within(g.window) - runs.within(g.window), says, "high")]

    yield truth


def rows_one_by_one(private: PrivateServer) -> Step:
    with psycopg.connect(private.dsn) as db:
        db.execute("create table item (id int primary key, v int)")
        db.execute("insert into item select n, 0 from generate_series(1, 1000) n")

    def look(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        for number in range(1, 500):
            db.execute("select v from item where id = %s", [number])
            if stop.wait(0.004):
                return

    return look


def backends(private: PrivateServer) -> list[int]:
    with psycopg.connect(private.dsn) as db:
        return [pid for (pid,) in db.execute("select pid from pg_stat_activity where query like 'select v from item%'").fetchall()]


SLOWER = {"storm_rate": 10, "storm_gap_s": 0.2}  # as a loop is on a busy host


@scenario(window_s=5.0, thresholds=SLOWER, beside=("POOLER-QUEUE",))
def one_statement_for_each_row_through_a_pooler(g: Ground) -> Iterator[Truth]:
    """A client of PgBouncer looks rows up one by one, each in a transaction of its own. The truth is how long the backend slept that
    served it, as the scheduler counts."""
    private, dsn = through_a_pooler(g, 1)
    outsiders(g, dsn, rows_one_by_one(private), ["shop"])
    wait_until(lambda: backends(private), what="the loop")
    asleep = g.asleep(backends(private))
    subject = "application shop from 127.0.0.1"
    yield lambda: [Expected("STATEMENT-STORM", f"{subject}, {g.statement('from item')}", asleep())]


@scenario(window_s=5.0, thresholds=SLOWER, beside=("POOLER-QUEUE",))
def loops_of_two_applications_through_a_pooler(g: Ground) -> Iterator[Truth]:
    """Two applications do so through the same connection of PgBouncer, which tells the server the name of each."""
    private, dsn = through_a_pooler(g, 1)
    outsiders(g, dsn, rows_one_by_one(private), ["shop", "stock"])
    wait_until(lambda: backends(private), what="the loops")

    def truth() -> list[Expected]:  # no one knows whose moments those between two statements of different clients are
        statement, says = g.statement("from item"), ("ran one statement about",)
        return [Expected("STATEMENT-STORM", f"application {name} from 127.0.0.1, {statement}", None, says) for name in ("shop", "stock")]

    yield truth
