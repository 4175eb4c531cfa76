"""What takes a while to open, opened in a thread of its own: how far it is, its result, its end before it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from leadline.capture.reader import Tell
from leadline.duck import duckdb
from leadline.errors import LeadlineError

T = TypeVar("T")


class Stopped(Exception):
    """The page ended before it was opened."""


class Opening(Generic[T]):
    """make: gives what is opened; it calls what it is given with how far it is. ended: called when it is done, or has failed."""

    def __init__(self, make: Callable[[Tell], T], ended: Callable[[], None] = lambda: None) -> None:
        self.told = (0, 0, "")  # steps done, of how many, and the one that runs
        self.error: BaseException | None = None
        self._made: list[T] = []
        self._make, self._ended = make, ended
        self._stopping = False
        self._db: duckdb.DuckDBPyConnection | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> Opening[T]:
        self._thread.start()
        return self

    @property
    def is_ready(self) -> bool:
        return bool(self._made)

    def get(self) -> T:
        """Waits for it. Raises what kept it from being opened."""
        self._thread.join()
        if self.error is not None:
            raise self.error
        return self._made[0]

    def state(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        done, of, what = self.told
        return {"ready": self.is_ready, "done": done, "of": of, "what": what}

    def stop(self) -> None:
        """Waits until the thread has ended; a query that runs is interrupted."""
        self._stopping = True
        while self._thread.is_alive():
            if self._db is not None:
                self._db.interrupt()
            self._thread.join(0.05)  # again: the interrupted query may have been the one before

    def _tell(self, db: duckdb.DuckDBPyConnection | None, done: int, of: int, what: str) -> None:
        if self._stopping:
            raise Stopped
        self._db, self.told = db, (done, of, what)

    def _run(self) -> None:
        try:
            self._made.append(self._make(self._tell))
        except BaseException as e:
            self.error = e if not self._stopping else LeadlineError("gone", "the page has ended")
        finally:
            self._ended()
