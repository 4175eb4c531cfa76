"""What clients do to themselves and to the server: round trips, slow reading, connections, more work than CPUs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import psycopg

from matrix.ground import Ground, Stopwatch, Tally
from matrix.scenario import Expected, Truth, scenario


@scenario()
def chatty_transactions(g: Ground) -> Iterator[Truth]:
    """Transactions of twenty short statements, with a pause of the client after each."""
    g.table("account", 200)
    watch = Stopwatch()

    def talk(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            for n in range(20):
                db.execute("select v from account where id = %s", [100 + n])
                with watch.on():
                    stop.wait(0.01)

    g.repeat("orm", talk, 2)
    yield lambda: [Expected("CHATTY-APP", "application orm from local", watch.within(g.window))]


@scenario()
def slow_reader_of_a_large_result(g: Ground) -> Iterator[Truth]:
    """A client of COPY TO pauses after each 200 rows: the server waits for it."""
    g.sql("create table wide as select n, repeat('x', 200) as t from generate_series(1, 50000) n")
    watch = Stopwatch()

    def read_slowly(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        copy = db.pgconn
        assert copy.exec_(b"copy (select * from wide) to stdout").status == psycopg.pq.ExecStatus.COPY_OUT
        rows = 0
        while not stop.is_set() and copy.get_copy_data(0)[0] >= 0:
            rows += 1
            if rows % 200 == 0:
                with watch.on():
                    stop.wait(0.1)

    (client,) = g.begin("export", read_slowly)
    g.wait_for("application_name = 'export' and wait_event = 'ClientWrite'")
    yield lambda: [
        Expected("SLOW-CLIENT", "application export from local", watch.within(g.window), (f"pid {client.pid}", "copy"), "medium")
    ]


@scenario()
def cursor_read_in_small_parts(g: Ground) -> Iterator[Truth]:
    """A cursor of which five rows are fetched at a time, with a pause of the client after each."""
    g.table("account", 20000)
    watch = Stopwatch()

    def fetch(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            db.execute("declare few no scroll cursor for select * from account")
            while not stop.is_set() and db.execute("fetch forward 5 from few").fetchall():
                with watch.on():
                    stop.wait(0.01)

    (client,) = g.begin("etl", fetch)
    g.wait_for("application_name = 'etl' and query like 'fetch%'")
    yield lambda: [Expected("FETCH-SIZE", "application etl from local", watch.within(g.window), (f"pid {client.pid}", "fetch forward"))]


@scenario(window_s=4.0)
def connections_that_live_a_moment(g: Ground) -> Iterator[Truth]:
    """Clients connect for each of their statements."""
    tally = Tally()

    def come_and_go(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with g.server.connect(application_name="php") as short:
            tally.count()
            short.execute("select 1")
            stop.wait(0.05)

    g.repeat("starter", come_and_go, 4)
    yield lambda: [Expected("CONN-STORM", "application php from local")]


@scenario(settings={"max_connections": 20})
def sessions_near_the_limit(g: Ground) -> Iterator[Truth]:
    """Fifteen of seventeen places for ordinary users are taken."""
    for _ in range(15):
        g.connect("web")
    yield lambda: [Expected("CONN-NEAR-LIMIT", "max_connections", None, ("of the 17 slots", "15 of application web"))]


@scenario(busy=True, window_s=5.0)
def more_work_than_cpus(g: Ground) -> Iterator[Truth]:
    """Six sessions for each CPU compute. The truth is what the scheduler counts for their processes."""
    cpus = len(os.sched_getaffinity(0))

    def compute(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select count(*) from generate_series(1, 100000)")

    pids = [client.pid for client in g.repeat("report", compute, 6 * cpus)]
    queue = g.run_queue(pids)
    yield lambda: [
        Expected("CPU-STARVED", "CPUs of the host", queue(), severity="high"),
        Expected("AAS-SATURATED", "server", severity="medium"),
    ]
