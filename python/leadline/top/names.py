"""Names of relations, databases and roles while the view runs: read in a thread of its own, rarely, never needed.

The engine reads them. The rows go through segments in a directory of their own, which the view takes in when it next looks: fifty
thousand names are then read in one go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from leadline.capture.store import Row, Store
from leadline.errors import LeadlineError
from leadline.top.live import shown_names

REFRESH_S = 300.0  # a name that changes is shown so much later; new relations are asked for
UNKNOWN_AFTER_S = 5.0  # an unknown number asks for a reading, this often at most
SLOW_S = 1.0  # a reading that takes longer is made
SLOWER = 2  # times less often
MOST_ASKED = 10_000

Rows = dict[str, list[Row]]
Read = Callable[[set[int]], Rows]


class Names:
    """Reads when started, then every five minutes and when asked about a number it has not been asked about before."""

    def __init__(self, directory: Path, read: Read) -> None:
        self._directory, self._read = directory, read
        self.failed = ""
        self._asked: set[tuple[int, int]] = set()
        self._databases: set[int] = set()
        self._digests: dict[str, bytes] = {}  # of what was read last, by table
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
        """The directory with what was read since the last call; the caller removes it."""
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
            except OSError as e:
                self.failed = e.strerror or str(e)
            self.first.set()
            took = time.monotonic() - began
            pause_s = REFRESH_S * (SLOWER if took > SLOW_S else 1)
            if self._stop.wait(UNKNOWN_AFTER_S):
                return
            self._wake.wait(pause_s - UNKNOWN_AFTER_S)

    def _store(self, rows: Rows) -> None:
        """What is as before is not handed over again: the view would fill its tables anew for nothing."""
        found = {table: part for table, part in rows.items() if table in shown_names()}
        digests = {table: sha256(repr(part).encode()).digest() for table, part in found.items()}
        with self._lock:
            waits = self._ready is not None  # its tables come with what is new
        new = {table: part for table, part in found.items() if waits or digests[table] != self._digests.get(table)}
        self._digests |= digests
        if not new:
            return
        self._readings += 1
        directory = self._directory / f"names-{self._readings}"
        directory.mkdir()
        store = Store(str(directory))
        store.add_all(new)
        store.close()
        with self._lock:
            self._ready = directory
