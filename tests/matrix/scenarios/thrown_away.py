"""Work whose result nobody gets, and work that is done again: timeouts, clients that are gone, plans made anew."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
from conftest import wait_until
from live import changes_events, looks_at_events, partitioned_events

from matrix.ground import Ground, Stopwatch
from matrix.scenario import Expected, Truth, scenario
from matrix.scenarios.locks import UPDATE, holds
from matrix.scenarios.statements import COUNTED, EFFECTS


def ended_within(watch: Stopwatch, g: Ground) -> float:
    """Seconds in the window of those runs that also ended in it: of the last one nobody knows yet how it ends."""
    ended = Stopwatch([span for span in watch.spans if span[1] <= g.window.ts_to])
    return ended.within(g.window)


@scenario(settings={"statement_timeout": "700ms"}, window_s=5.0)
def report_that_never_comes_to_its_end(g: Ground) -> Iterator[Truth]:
    """statement_timeout ends the same report again and again, and its client sends it anew. Beside it, a statement that ends by itself."""
    watch = Stopwatch()

    def report(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with suppress(psycopg.errors.QueryCanceled), watch.on():
            db.execute("select count(*) from pg_sleep(60)")
        stop.wait(0.05)

    def ticker(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select pg_sleep(0.3)")

    g.repeat("report", report, 2)
    g.repeat("ticker", ticker)

    def truth() -> list[Expected]:
        says = ("which is statement_timeout (0.7 s)", "application report")
        return [Expected("TIMEOUT-REPEATED", g.statement("from pg_sleep"), ended_within(watch, g), says)]

    yield truth


@scenario(window_s=5.0)
def driver_with_a_limit_of_its_own(g: Ground) -> Iterator[Truth]:
    """The driver sets lock_timeout in its sessions: updates of two rows give up and come again. The holder is the other half of the
    matter."""
    t, watch = g.table("account", 2), Stopwatch()
    pid = holds(g, "web", f"update {t} set v = v + 1").info.backend_pid

    def attempt(row: int) -> Any:
        def step(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            db.execute("set lock_timeout = '600ms'")
            with suppress(psycopg.errors.LockNotAvailable), watch.on():
                db.execute(UPDATE.format(t, row))
            stop.wait(0.05)

        return step

    g.repeat("retry", attempt(1))
    g.repeat("retry", attempt(2))

    def truth() -> list[Expected]:
        says = ("they waited for a lock when they ended", "application retry")
        return [
            Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 2 sessions",), "medium"),
            Expected("TIMEOUT-REPEATED", g.statement("where id"), ended_within(watch, g), says),
        ]

    yield truth


@scenario(window_s=4.0, loopback=True)
def client_gave_up_and_its_statement_runs_on(g: Ground) -> Iterator[Truth]:
    """Two clients close their connections while a statement runs and while one waits for a lock. A third stays and waits as long."""
    t = g.table("account")
    holds(g, "console", UPDATE.format(t, 1))
    dsn = g.target.loopback_dsn
    sessions = [psycopg.connect(dsn, application_name=name, autocommit=True) for name in ("web", "web", "stays")]
    for session, statement in zip(sessions, ("select pg_sleep(600)", UPDATE.format(t, 1), "select pg_sleep(599)"), strict=True):
        session.pgconn.send_query(statement.encode())
    g.wait_for("application_name in ('web', 'stays') and wait_event in ('PgSleep', 'transactionid')", 3)
    gone: list[int] = []

    def leave() -> None:
        for session in sessions[:2]:
            with socket.socket(fileno=os.dup(session.pgconn.socket)) as connection:
                connection.shutdown(socket.SHUT_RDWR)
        gone.append(time.monotonic_ns())

    g.later(0.5, leave)

    def truth() -> list[Expected]:
        says = ("2 sessions worked", "after the client had closed the connection", "application web")
        return [Expected("CLIENT-GONE", "clients of application web from 127.0.0.1", 2 * (g.window.ts_to - gone[0]) / 1e9, says)]

    yield truth
    for session in sessions:
        session.close()


@scenario(settings=COUNTED | {"pg_stat_statements.track_planning": True}, window_s=6.0, busy=True,
          beside=(*EFFECTS, "PLANNING-TIME", "LOCK-CONVOY"))  # fmt: skip
def job_that_changes_the_table_all_the_time(g: Ground) -> Iterator[Truth]:
    """ALTER TABLE of a partitioned table, five times a second: four sessions plan their prepared statement anew after each."""
    partitioned_events(g.server, 60)
    running = g.repeat("shop", looks_at_events, 4)
    wait_until(lambda: all(client.done > 30 for client in running), what="the load")
    g.repeat("migrate", changes_events)
    yield lambda: [Expected("PLAN-INVALIDATION", "prepared statements", None, ("ALTER TABLE of event",))]
