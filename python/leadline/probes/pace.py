"""When a thread that polls makes its passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator


def passes(first_due: int, period_ns: int, stop: threading.Event) -> Iterator[tuple[int, int]]:
    """For each pass, once it is due: when it was (ns on CLOCK_MONOTONIC), and how many whole periods before it went by unseen.

    Ends when `stop` is set.
    """
    due = first_due
    while not stop.is_set():
        now = time.monotonic_ns()
        if now < due:
            stop.wait((due - now) / 1e9)
            continue
        missed = (now - due) // period_ns
        due += missed * period_ns
        yield due, missed
        due += period_ns
