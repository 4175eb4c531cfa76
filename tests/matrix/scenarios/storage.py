"""A disk that is slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
from conftest import Server
from host_changes import loop_disk, writes_limited
from leadline.engines.postgres.server import PrivateServer
from live import Client

from matrix.ground import Ground, Step, Stopwatch
from matrix.scenario import Expected, Truth, scenario


def on_a_slow_disk(g: Ground, writes_per_s: int, **settings: Any) -> Server:
    """A server whose control group may write so often a second. It is captured."""
    disk, device = g.stack.enter_context(loop_disk())
    group = g.stack.enter_context(writes_limited(device, writes_per_s))
    settings = {"fsync": True, "min_wal_size": "32MB", "max_wal_size": "64MB", "wal_recycle": False} | settings
    private = g.stack.enter_context(PrivateServer(g.server.private.bin_dir, disk / "data", settings))
    (group / "cgroup.procs").write_text(str(private.pid))  # and all that it starts from now on
    g.target = private
    return Server(private, g.server.fetched)


def work_there(g: Ground, server: Server, name: str, step: Step, clients: int) -> list[Client]:
    """Clients of a server that ends before the scenario does: they end before it."""
    made = g.repeat(name, step, clients, server)
    g.stack.callback(lambda: [(client.stop.set(), client.join(10)) for client in made])
    return made


@scenario(window_s=4.0, beside=("TOP-WAIT", "WAL-CONTENTION", "DEVICE-SATURATED"))
def commits_behind_a_limit_of_the_control_group(g: Ground) -> Iterator[Truth]:
    """The server's control group may write 20 times a second, and a client inserts rows one by one: it waits for the WAL each time."""
    server, watch = on_a_slow_disk(g, 20), Stopwatch()
    server.sql("create table entry (id int)")

    def insert(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with watch.on():
            db.execute("insert into entry values (1)")

    clients = work_there(g, server, "import", insert, 1)
    # A flush has ended, but the session has no CPU yet, or its client has none to see that.
    queue = g.run_queue([number for client in clients for number in (client.pid, client.native_id) if number])

    def truth() -> list[Expected]:
        waited_s = watch.within(g.window) - queue()
        return [
            Expected("STORAGE-SLOW", "flushes of the WAL", waited_s, ("wiops=20",), "medium"),
            Expected("SINGLE-ROW-COMMITS", "application import from local", waited_s),
        ]

    yield truth


@scenario(window_s=5.0, beside=("TOP-WAIT", "WAL-CONTENTION", "DEVICE-SATURATED", "HOT-HEAP-PAGE", "STORAGE-SLOW"))
def page_held_while_the_wal_is_written(g: Ground) -> Iterator[Truth]:
    """Eight sessions change rows of one page. The buffers of the WAL are full and the disk is slow: who changes the page holds it until
    there is room for its record."""
    settings = {"wal_buffers": "32kB", "wal_sync_method": "open_datasync", "synchronous_commit": False}
    server = on_a_slow_disk(g, 8, **settings)
    server.sql("create table counters (id int, v text); insert into counters select n, '' from generate_series(1, 8) n")

    def count(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("update counters set v = repeat(md5(random()::text), 12) where id = 1 + pg_backend_pid() % 8")

    work_there(g, server, "clicks", count, 8)
    yield lambda: [Expected("LWLOCK-HOLDER-IO", "holders waiting for LWLock:WALWrite", None, ("page of public.counters",), "medium")]
