"""The terminal driver of a screen that may stay up for days: its thread for keys sleeps until there is one.

Textual's asks ten times a second whether a key has come or the screen goes away, which takes as much CPU as writing what was sampled.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

AWAKE_S = 1.0  # that long after a key it is asked as before: an escape may stand alone or begin something


class EndOrInput(threading.Event):
    """Ends the thread for keys. That thread asks for it before each look at the terminal, and then waits here for what comes first."""

    def __init__(self, terminal: int) -> None:
        super().__init__()
        self._terminal, self._end = terminal, os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._last_key = time.monotonic()

    def set(self) -> None:
        super().set()
        os.eventfd_write(self._end, 1)

    def clear(self) -> None:
        if super().is_set():
            os.eventfd_read(self._end)
        super().clear()

    def is_set(self) -> bool:
        if not super().is_set() and threading.current_thread() is not threading.main_thread():  # the main thread asks, too
            is_awake = time.monotonic() - self._last_key < AWAKE_S
            ready, _, _ = select.select([self._terminal, self._end], [], [], 0 if is_awake else None)
            if self._terminal in ready:
                self._last_key = time.monotonic()
        return super().is_set()


class QuietDriver(LinuxDriver):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.exit_event = EndOrInput(self.fileno)
