"""Logins one after the other, or several at a time, until it is enough."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from leadline._core.net import Login, postgres_login


class Logins:
    """`each` gives what `postgres_login` told of each login, in the order in which they ended. `stop` begins no further one.

    planned: how many at most. parallel: at a time. pause_s: of each of these between two logins. interrupted: by Ctrl-C.
    """

    def __init__(self, login: Login, planned: int, parallel: int, pause_s: float) -> None:
        self.login, self.planned, self.parallel, self.pause_s = login, planned, parallel, pause_s
        self.stopped, self.interrupted = threading.Event(), False
        self._lock, self._begun = threading.Lock(), 0

    def stop(self) -> None:
        self.stopped.set()

    def each(self) -> Iterator[str]:
        """Of one that was broken off by Ctrl-C nothing comes."""
        return self._in_turn() if self.parallel == 1 else self._at_a_time()

    def _takes_one(self) -> bool:
        with self._lock:
            self._begun += 1
            return not self.stopped.is_set() and self._begun <= self.planned

    def _in_turn(self) -> Iterator[str]:
        """In this thread, the only one in which Ctrl-C breaks a login off."""
        while self._takes_one():
            text, self.interrupted = postgres_login(self.login)
            if self.interrupted:
                self.stop()
            if not self.interrupted or '"fault"' not in text:
                yield text
            if self.pause_s and not self.stopped.is_set():
                try:
                    time.sleep(self.pause_s)
                except KeyboardInterrupt:
                    self.interrupted = True
                    self.stop()

    def _at_a_time(self) -> Iterator[str]:
        ended: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()

        def work() -> None:
            try:
                while self._takes_one():
                    ended.put(postgres_login(self.login)[0])
                    if self.pause_s:
                        self.stopped.wait(self.pause_s)
            except BaseException as e:  # for the thread that waits
                ended.put(e)
            finally:
                ended.put(None)

        workers = [threading.Thread(target=work, daemon=True) for _ in range(self.parallel)]
        for worker in workers:
            worker.start()
        left = len(workers)
        try:
            while left:
                try:
                    told = ended.get()
                except KeyboardInterrupt:
                    self.interrupted = True
                    self.stop()
                    continue
                if isinstance(told, BaseException):
                    raise told
                if told is None:
                    left -= 1
                else:
                    yield told
        finally:
            self.stop()
            for worker in workers:
                worker.join()
