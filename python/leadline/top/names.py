"""Names of relations, databases and roles while the view runs: read in a thread of its own, rarely, never needed.

Over a short SQL connection when there is a connection string, else from the catalog files. The rows go through segments in a
folder of their own, which the view takes in when it next looks: fifty thousand names are then read in one go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from leadline.capture.store import Store
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog import queries
from leadline.engines.postgres.catalog.connection import Connection, connect
from leadline.engines.postgres.catalog.files import collect
from leadline.engines.postgres.catalog.sql import RELATION_LIMIT, Row
from leadline.engines.postgres.target import Target
from leadline.errors import LeadlineError
from leadline.figures import one_line
from leadline.top.live import shown_names

REFRESH_S = 60.0
UNKNOWN_AFTER_S = 5.0  # an unknown number asks for a reading, this often at most
SLOW_S = 1.0  # a reading that takes longer is made
SLOWER = 10  # times less often
MOST_DATABASES = 5
MOST_ASKED = 10_000
CONNECT_TIMEOUT_S = 3

Rows = dict[str, list[Row]]
Read = Callable[[set[int]], Rows]


class Names:
    """Reads when started, then every minute and when asked about a number it has not been asked about before."""

    def __init__(self, folder: Path, read: Read) -> None:
        self._folder, self._read = folder, read
        self.failed = ""
        self._asked: set[tuple[int, int]] = set()
        self._databases: set[int] = set()
        self._ready: Path | None = None
        self._lock = threading.Lock()
        self._wake, self._stop, self.first = threading.Event(), threading.Event(), threading.Event()
        self._readings = 0
        self._thread = threading.Thread(target=self._run, name="leadline-names", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Does not wait for a server that does not answer: the thread ends with the process."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def ask(self, unknown: set[tuple[int, int]]) -> None:
        """(database, number) pairs without a name. A pair that stays unknown (dropped, temporary) is asked for once."""
        new = unknown - self._asked
        if new:
            self._asked = new if len(self._asked) > MOST_ASKED else self._asked | new
            self._databases |= {database for database, _ in new}
            self._wake.set()

    def take(self) -> Path | None:
        """The folder with what was read since the last call; the caller removes it."""
        with self._lock:
            ready, self._ready = self._ready, None
            return ready

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            began = time.monotonic()
            try:
                self._store(self._read(set(self._databases)))
                self.failed = ""
            except LeadlineError as e:
                self.failed = e.message
            except psycopg.Error as e:
                self.failed = one_line(str(e))
            except OSError as e:
                self.failed = e.strerror or str(e)
            self.first.set()
            took = time.monotonic() - began
            pause_s = REFRESH_S * (SLOWER if took > SLOW_S else 1)
            if self._stop.wait(UNKNOWN_AFTER_S):
                return
            self._wake.wait(pause_s - UNKNOWN_AFTER_S)

    def _store(self, rows: Rows) -> None:
        self._readings += 1
        folder = self._folder / f"names-{self._readings}"
        folder.mkdir()
        store = Store(str(folder))
        store.add_all({table: part for table, part in rows.items() if table in shown_names()})
        store.close()
        with self._lock:
            self._ready = folder


def reader(target: Target, dsn: str | None) -> Read:
    """How names of this target are read: over SQL, else from files, which also serve while the server takes no connection."""

    def read(databases: set[int]) -> Rows:
        if dsn is None:
            return from_files(target)
        try:
            return over_sql(dsn, databases)
        except (LeadlineError, psycopg.Error):
            if target.pid is None:
                raise
            return from_files(target)

    return read


def over_sql(dsn: str, wanted: set[int]) -> Rows:
    """Names of the connected database and of the wanted ones. Sizes are the planner's: nothing is opened for them."""
    with connect(dsn, timeout_s=CONNECT_TIMEOUT_S) as conn:
        rows: Rows = {
            "database": conn.execute(queries.DATABASES.replace("{sizes}", "false").encode()).fetchall(),
            "role": conn.execute(queries.ROLES.encode()).fetchall(),
            "relation": _relations(conn, shared=True),
        }
        connected = conn.info.dbname
    others = [row[1] for row in rows["database"] if row[0] in wanted and row[1] != connected]
    for name in others[:MOST_DATABASES]:
        try:
            with connect(dsn, dbname=name, timeout_s=CONNECT_TIMEOUT_S) as conn:
                rows["relation"] += _relations(conn, shared=False)
        except (LeadlineError, psycopg.Error):
            continue  # its relations stay numbers
    return rows


def _relations(conn: Connection, *, shared: bool) -> list[Row]:
    sql = queries.RELATIONS.replace("{size}", queries.SIZE_BY_PLANNER).replace("{limit}", str(RELATION_LIMIT))
    return conn.execute(sql.replace("{shared}", "" if shared else "and not c.relisshared").encode()).fetchall()


def from_files(target: Target) -> Rows:
    """Names of all databases from the files of a server on this host. Raises LeadlineError or OSError."""
    if target.pid is None:
        raise LeadlineError("unsupported", "the server's files are not on this host")
    return collect(postmaster.data_path(target.pid)).rows
