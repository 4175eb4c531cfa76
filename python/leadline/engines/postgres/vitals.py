"""What the server counts by itself, a second: transactions, cache hits, temporary files. Over one connection, where there is one."""

from __future__ import annotations

import threading
import time

import psycopg

from leadline.engines.live import Vitals
from leadline.engines.postgres.catalog.connection import Connection, connect
from leadline.errors import LeadlineError

READ_EVERY_S = 2.0
RETRY_AFTER_S = 10.0

_SQL = """
select coalesce(sum(xact_commit + xact_rollback), 0)::float8, coalesce(sum(blks_hit), 0)::float8, coalesce(sum(blks_read), 0)::float8,
       coalesce(sum(temp_files), 0)::float8, coalesce(sum(temp_bytes), 0)::float8,
       coalesce(sum(numbackends), 0)::int, current_setting('max_connections')::int
from pg_stat_database
"""


def between(before: tuple[float, ...], after: tuple[float, ...], seconds: float) -> Vitals | None:
    """None when the counters were reset in between."""
    grown = [b - a for a, b in zip(before[:5], after[:5])]
    if seconds <= 0 or min(grown) < 0:
        return None
    transactions, hit, read, files, size = grown
    asked = hit + read
    return Vitals(
        transactions / seconds, hit / asked if asked else None, files / seconds, size / seconds, int(after[5]), int(after[6])
    )  # fmt: skip


class VitalsReader:
    """Reads in a thread of its own; `now` has the newest, None without a connection."""

    def __init__(self, dsn: str | None) -> None:
        self.dsn = dsn
        self.now: Vitals | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leadline-vitals", daemon=True)

    def start(self) -> None:
        if self.dsn is not None:
            self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        assert self.dsn is not None
        while not self._stop.is_set():
            try:
                with connect(self.dsn) as connection:
                    self._read(connection)
            except (LeadlineError, psycopg.Error):
                self.now = None
                self._stop.wait(RETRY_AFTER_S)

    def _read(self, connection: Connection) -> None:
        before: tuple[float, tuple[float, ...]] | None = None
        while not self._stop.is_set():
            row = connection.execute(_SQL).fetchone()
            at = time.monotonic()
            if row is not None:
                if before is not None:
                    self.now = between(before[1], row, at - before[0])
                before = (at, row)
            self._stop.wait(READ_EVERY_S)
