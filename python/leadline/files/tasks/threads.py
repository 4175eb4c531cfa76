"""Tasks in threads of this process: the default, and the measure of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from threading import Event

from leadline.files.tasks import Receipt, Task


class Threads:
    """An engine. What the tasks do releases the interpreter.

    ended_early: is set when no more receipts are wanted, for tasks that take long.
    """

    def __init__(self, threads: int, ended_early: Event) -> None:
        self._threads = threads
        self._ended_early = ended_early

    def __call__(self, tasks: Iterable[Task], work: Callable[[Task], Receipt]) -> Iterator[Receipt]:
        rest = iter(tasks)
        running: set[Future[Receipt]] = set()
        with ThreadPoolExecutor(self._threads) as pool:
            try:
                while running := running | {pool.submit(work, task) for task in islice(rest, self._threads - len(running))}:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for ended in done:
                        yield ended.result()
            except BaseException:
                self._ended_early.set()
                raise
