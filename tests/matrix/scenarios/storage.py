"""What lies around the server: a disk that is slow, a pooler before it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
from conftest import Server
from host_changes import loop_disk, writes_limited
from leadline.engines.postgres.server import PrivateServer
from pooler import pooler

from matrix.ground import Ground, Stopwatch
from matrix.scenario import Expected, Truth, scenario


@scenario(window_s=4.0, beside=("TOP-WAIT", "WAL-CONTENTION", "DEVICE-SATURATED"))
def commits_behind_a_limit_of_the_control_group(g: Ground) -> Iterator[Truth]:
    """The server's control group may write 20 times a second, and a client inserts rows one by one: it waits for the WAL each time."""
    disk, device = g.stack.enter_context(loop_disk())
    group = g.stack.enter_context(writes_limited(device, 20))
    settings = {"fsync": True, "min_wal_size": "32MB", "max_wal_size": "64MB", "wal_recycle": False}
    private = g.stack.enter_context(PrivateServer(g.server.private.bin_dir, disk / "data", settings))
    (group / "cgroup.procs").write_text(str(private.pid))  # and all that it starts from now on
    g.target = private
    server, watch = Server(private, g.server.fetched), Stopwatch()
    server.sql("create table entry (id int)")

    def insert(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with watch.on():
            db.execute("insert into entry values (1)")

    clients = g.repeat("import", insert, 1, server)
    queue = g.run_queue([client.pid for client in clients])  # a flush has ended, but the session has no CPU yet
    g.stack.callback(lambda: [(client.stop.set(), client.join(10)) for client in clients])  # before their server ends

    def truth() -> list[Expected]:
        waited_s = watch.within(g.window) - queue()
        return [
            Expected("STORAGE-SLOW", "flushes of the WAL", waited_s, ("wiops=20",), "medium"),
            Expected("SINGLE-ROW-COMMITS", "application import from local", waited_s),
        ]

    yield truth


@scenario(window_s=4.0)
def clients_queue_in_the_pooler(g: Ground) -> Iterator[Truth]:
    """Six clients of PgBouncer share two connections. The truth is their own clock, less what the statement itself takes."""
    private = g.stack.enter_context(PrivateServer(g.server.private.bin_dir, loopback=True))
    port = g.stack.enter_context(pooler(private, 2, stats_users="stats"))
    g.target = private
    g.options["pooler"] = f"host=127.0.0.1 port={port} user=stats"
    dsn = private.loopback_dsn.replace(f"port={private.port}", f"port={port}")
    asks, runs, ended = Stopwatch(), Stopwatch(), threading.Event()
    held_s = 0.1

    def work() -> None:
        with psycopg.connect(dsn, prepare_threshold=None, autocommit=True) as db:
            while not ended.is_set():
                with asks.on():
                    db.execute(f"select pg_sleep({held_s})")

    threads = [threading.Thread(target=work) for _ in range(6)]
    g.stack.callback(lambda: [thread.join(20) for thread in threads])
    g.stack.callback(ended.set)
    for thread in threads:
        thread.start()

    def truth() -> list[Expected]:
        runs.spans += [(end - int(held_s * 1e9), end) for _, end in asks.spans]
        says = ("The pool is full", "the server was busy with them")
        return [Expected("POOLER-QUEUE", "pool postgres/postgres", asks.within(g.window) - runs.within(g.window), says, "high")]

    yield truth
