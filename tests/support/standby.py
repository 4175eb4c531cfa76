"""Standbys of a server: a hot standby of a private server, and what only receives the WAL as slowly as a test wants."""

from __future__ import annotations

import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import Server, wait_until
from leadline.engines.postgres.server import PrivateServer
from leadline.engines.postgres.server import Standby as PrivateStandby
from psycopg import pq


class Standby(PrivateStandby):
    """Conflicts with queries never cancel them. own: settings that the primary does not have."""

    def __init__(self, primary: PrivateServer, data_dir: Path | None = None, **own: str) -> None:
        super().__init__(primary, {"max_standby_streaming_delay": -1} | own, data_dir)


class Receiver(threading.Thread):
    """What the server takes for a standby: receives its WAL and confirms it to be on disk, each time delay_s later.

    writes_at_once: the write is confirmed at once, only the rest later.
    """

    def __init__(self, server: Server, name: str, delay_s: float, writes_at_once: bool = False) -> None:
        super().__init__(daemon=True)
        self.delay_s, self.writes_at_once, self.on_disk = delay_s, writes_at_once, 0
        self.stop = threading.Event()
        self.connection = pq.PGconn.connect(f"{server.dsn} replication=true application_name={name}".encode())
        at = self.connection.exec_(b"IDENTIFY_SYSTEM").get_value(0, 2)
        assert at is not None, self.connection.error_message
        started = self.connection.exec_(b"START_REPLICATION " + at)
        assert started.status == pq.ExecStatus.COPY_BOTH, started.error_message
        high, low = at.split(b"/")
        self.confirm((int(high, 16) << 32) + int(low, 16))

    def confirm(self, lsn: int, on_disk: bool = True) -> None:
        self.on_disk = lsn if on_disk else self.on_disk
        self.connection.put_copy_data(b"r" + struct.pack("!QQQqB", lsn, self.on_disk, self.on_disk, 0, 0))
        self.connection.flush()

    def run(self) -> None:
        while not self.stop.is_set():
            if not select.select([self.connection.socket], [], [], 0.05)[0]:
                continue
            self.connection.consume_input()
            lsn = 0
            length, message = self.connection.get_copy_data(1)
            while length > 0:
                (at,) = struct.unpack("!Q", message[1:9])
                lsn = max(lsn, at + length - 25 if bytes(message[:1]) == b"w" else at)  # w: 25 bytes of header, then WAL
                length, message = self.connection.get_copy_data(1)
            if length < 0:
                return  # the server ends
            if self.writes_at_once:
                self.confirm(lsn, on_disk=False)
            self.stop.wait(self.delay_s)
            self.confirm(lsn)


@contextmanager
def receiver(server: Server, name: str, delay_s: float, writes_at_once: bool = False) -> Iterator[None]:
    thread = Receiver(server, name, delay_s, writes_at_once)
    thread.start()
    try:
        streaming = "select 1 from pg_stat_replication where application_name = %s and state = 'streaming' and flush_lsn is not null"
        wait_until(lambda: server.sql(streaming, [name]), what=f"the stream to {name}")
        yield
    finally:
        thread.stop.set()
        thread.join(10)
        thread.connection.finish()
