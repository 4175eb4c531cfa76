"""What goes on beside the answers: new events are taken into the store, runs get their project, what is due is started."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.store import Store
from leadline.server.launch import hooks, launch_queue, schedules
from leadline.server.launch.notifications import Notifications
from leadline.server.read import runs

EACH_S = 0.5
Duty = Callable[[Place, Store], None]


def take_in(place: Place, store: Store) -> None:
    ingest(place, store)
    runs.assign(store)


def duties() -> tuple[Duty, ...]:
    return (take_in, schedules.fire, launch_queue.dispatch, hooks.start_after)


class Housekeeping:
    """A thread that does each duty again and again. One that fails is told once for each message, and done again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._stop = threading.Event()
        self._told: set[str] = set()
        self._duties: tuple[Duty, ...] = (*duties(), Notifications(self._tell))
        self.rounds = 0
        self.last_round = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="housekeeping", daemon=True)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(10)

    def _work(self) -> None:
        store: Store | None = None
        while not self._stop.wait(EACH_S):
            for duty in self._duties:
                try:
                    store = store or Store(self._place)
                    duty(self._place, store)
                except Exception as e:
                    self._tell(e)
                    if store is not None and store.db.lost():
                        store = None
            self.rounds += 1
            self.last_round = time.monotonic()
        if store is not None:
            store.close()

    def _tell(self, error: Exception) -> None:
        text = "".join(traceback.format_exception_only(error)).strip()
        if text not in self._told and len(self._told) < 100:
            self._told.add(text)
            sys.stderr.write(f"leadline serve: {text}\n")
            sys.stderr.flush()


def after_command(place: Place, store: Store) -> None:
    """What a command of the shell must not wait for a server to do."""
    launch_queue.dispatch(place, store)
