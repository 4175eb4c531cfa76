"""Work on a database by a few threads, each with a cursor of its own: where one thread answers a query, two use both CPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from leadline.duck import duckdb

AT_ONCE = 2  # threads: planning takes most of the time of a query over few rows, and one thread plans a query
T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """needs: steps that must have been done."""

    needs: set[str]
    run: Callable[[duckdb.DuckDBPyConnection], None]


def run_steps(db: duckdb.DuckDBPyConnection, steps: Mapping[str, Step]) -> None:
    """Every step; of those that are ready, the one that most others wait for comes first. Raises what the first to fail raised."""
    left = dict(sorted(steps.items(), key=lambda item: -_waiting_for(item[0], steps)))
    done: set[str] = set()
    failed = False
    changed = threading.Condition()

    def next_step() -> str | None:
        """None when nothing is left to begin."""
        with changed:
            while left and not failed:
                if ready := next((name for name in left if left[name].needs <= done), None):
                    del left[ready]
                    return ready
                changed.wait()
        return None

    def work(cursor: duckdb.DuckDBPyConnection) -> None:
        nonlocal failed
        while name := next_step():
            try:
                steps[name].run(cursor)
            except BaseException:
                failed = True
                raise
            finally:
                with changed:
                    done.add(name)
                    changed.notify_all()

    _by_threads(db, work)


def for_each(db: duckdb.DuckDBPyConnection, items: Iterable[T], work: Callable[[duckdb.DuckDBPyConnection, T], None]) -> None:
    """Each item once, by whichever thread is free. Raises what the first to fail raised."""
    left = iter(list(items))

    def take(cursor: duckdb.DuckDBPyConnection) -> None:
        for item in left:
            work(cursor, item)

    _by_threads(db, take)


def _by_threads(db: duckdb.DuckDBPyConnection, work: Callable[[duckdb.DuckDBPyConnection], None]) -> None:
    """The same work in each of AT_ONCE threads. Raises what the first to fail raised."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with closing(db.cursor()) as cursor:
                work(cursor)
        except BaseException as e:
            failed.append(e)

    others = [threading.Thread(target=run, daemon=True) for _ in range(AT_ONCE - 1)]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()
    if failed:
        raise failed[0]


def _waiting_for(name: str, steps: Mapping[str, Step]) -> int:
    """How many steps need this one, directly or not."""
    found = {name}
    while more := {other for other, step in steps.items() if step.needs & found} - found:
        found |= more
    return len(found) - 1
