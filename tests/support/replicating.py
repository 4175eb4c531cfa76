"""What tests of replication share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from conftest import Server, wait_until
from findings_synthetic import SyntheticCapture
from leadline.probes.options import Options
from leadline.probes.take import take_with
from leadline.progress import Silent
from standby import Standby

MB = 1 << 20


@contextmanager
def streaming(server: Server) -> Iterator[tuple[Server, Standby]]:
    """The server and a standby that follows it."""
    with Standby(server.private) as standby:
        wait_until(lambda: server.sql("select 1 from pg_stat_replication where state = 'streaming'"), what="the stream")
        yield server, standby


@contextmanager
def restarts(standby: Standby) -> Iterator[Callable[[], None]]:
    """How to restart it from any thread: a server ends with the thread that has started it, so that one stays until the block ends."""
    over, started = threading.Event(), threading.Event()

    def start() -> None:
        standby.start()
        started.set()
        over.wait()

    thread = threading.Thread(target=start)

    def restart() -> None:
        standby.stop()
        thread.start()
        assert started.wait(60)

    try:
        yield restart
    finally:
        standby.stop()
        over.set()
        thread.join(30)


def at(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as db:
        found = db.execute(query.encode())
        row = found.fetchone() if found.description else None
        return row and row[0]


@contextmanager
def repeated(dsn: str, statement: str, every_s: float = 0.0) -> Iterator[None]:
    """Runs a statement again and again, with so long a rest between."""
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(dsn, autocommit=True) as db:
            while not stop.wait(every_s):
                db.execute(statement.encode())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


@contextmanager
def writing(dsn: str) -> Iterator[threading.Event]:
    """WAL all the time, as long as the server is there. Set when it is not."""
    stop, gone = threading.Event(), threading.Event()

    def write() -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as db:
                while not stop.wait(0.02):
                    db.execute("select pg_logical_emit_message(true, 'test', repeat('x', 20000))")
        except psycopg.Error:
            gone.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield gone
    finally:
        stop.set()
        thread.join(30)


def taken(path: Path, meanwhile: Callable[[], object], **options: Any) -> Path:
    """A capture of sessions and replication; `meanwhile` is called in a thread of its own when all probes look."""
    begun = threading.Event()

    def work() -> None:
        assert begun.wait(60)
        meanwhile()

    thread = threading.Thread(target=work)
    thread.start()
    chosen = Options(**{"for_s": 4.0} | options, out=path, probes=["sessions"])
    made = take_with(chosen, Silent(), begun=begun.set)
    thread.join(60)
    return made


def pair_of_servers(folder: Path) -> Path:
    """A capture of 20 s. The primary makes 2 MB of WAL a second; the standby is 100 MB behind and replays 5 MB a second. A slot keeps more
    and more WAL, at last 70 MB."""
    cap = SyntheticCapture(folder, rate_hz=10)
    for n in range(201):
        at, made = n / 10, 100 * MB + n * MB // 5
        cap.add("replication_position", ts=cap.ts(at), node=1, answer_ns=1000, in_recovery=False, insert_lsn=made, flush_lsn=made)
        received = {f"{name}_lsn": made for name in ("flush", "write", "upstream")}
        cap.add(
            "replication_position",
            ts=cap.ts(at),
            node=2,
            answer_ns=1000,
            in_recovery=True,
            replay_lsn=n * MB // 2,
            is_paused=False,
            **received,
        )
    cap.add("replication_node", node=1, name="db1:5432", system_identifier="1", wal_free_bytes=3600 * MB)
    cap.add("replication_node", node=2, name="db2:5432", system_identifier="1")
    cap.stat("pg_replication_slots", "retained_bytes", 10 * MB, 70 * MB, "west")
    return cap.write()
