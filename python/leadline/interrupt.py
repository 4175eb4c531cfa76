"""Puts Ctrl-C off while something must be finished, such as removing a server; it arrives right afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Within the block SIGTERM, as `timeout` and service managers send it, is what Ctrl-C is. Outside the main thread: nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Within the block SIGINT and SIGTERM are noted, and delivered to their handlers at its end. Outside the main thread: nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [(number, signal.signal(number, note)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for arrived in dict.fromkeys(noted):
            signal.raise_signal(arrived)
