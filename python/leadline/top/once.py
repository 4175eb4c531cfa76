"""One frame for scripts: records for one window, then gives the frame of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from leadline.engines.live import Server
from leadline.top.directory import temporary_directory
from leadline.top.engine import Engine, Request
from leadline.top.model import Frame
from leadline.top.signals import on_signal

POLL_S = 1.0
NAMES_WAIT_S = 5.0


def one_frame(target: Server, rate_hz: float, tier: str, window_s: float, columns: int = 74, others: Sequence[str] = ()) -> Frame:
    """Watches for window_s seconds. Raises LeadlineError, also when the server goes away meanwhile; KeyboardInterrupt on a signal."""
    asked = threading.Event()  # to end early
    with on_signal(asked.set), temporary_directory() as directory:
        engine = Engine(target, directory, rate_hz, tier, others=others)
        engine.start()
        end = time.monotonic() + window_s
        try:
            while engine.feed.error is None and not asked.is_set() and (left := end - time.monotonic()) > 0:
                engine.write_soon()
                asked.wait(min(left, POLL_S))
                engine.take_in()
            if not asked.is_set():
                engine.names.first.wait(NAMES_WAIT_S)
        finally:
            engine.close()
        if asked.is_set():
            raise KeyboardInterrupt
        if engine.feed.error is not None:
            raise engine.feed.error
        extent = engine.live.extent()
        seen_s = (extent[1] - extent[0]) / 1e9 if extent else window_s
        return engine.frame(Request(frozenset(engine.tabs), seen_s, columns))
