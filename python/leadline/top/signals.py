"""What the signals that ask a program to end do while the view runs: they end it in order, so that nothing is left behind.

Nothing is raised from a handler: inside a query DuckDB would make another error of it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def on_signal(end: Callable[[], None]) -> Iterator[None]:
    """Within the block the signals that end a program call `end` instead."""

    def handler(number: int, frame: FrameType | None) -> None:
        end()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, handler)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old if old is not None else signal.SIG_DFL)
