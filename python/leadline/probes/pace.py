"""When a thread that polls makes its passes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator


def passes(start: int, period_ns: int, stop: threading.Event) -> Iterator[tuple[int, int]]:
    """For each pass, once it is due: when it was (ns on CLOCK_MONOTONIC), and how many whole periods before it went by unseen.

    The first pass is due at `start`; each of the following periods has one, at a moment drawn anew, so that passes and what goes by the
    clock in a server never keep step (as `Moments` of the memory sampler does). Ends when `stop` is set.
    """
    drawn = random.Random(start)
    number, due = 0, start
    while not stop.is_set():
        now = time.monotonic_ns()
        if now < due:
            stop.wait((due - now) / 1e9)
            continue
        missed = max((now - start) // period_ns - 1 - number, 0)
        number += missed
        due += missed * period_ns
        yield due, missed
        number += 1
        due = start + number * period_ns + drawn.randrange(period_ns)
