"""What a running capture tells its user: notes, and one progress line where stderr is a terminal.

Deliberately small: it runs while the server is measured, and its CPU counts as leadline's own.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Protocol, TextIO


class Progress(Protocol):
    """How `take` reports. All calls come from its own thread, at most two a second."""

    def note(self, text: str) -> None:
        """Something the user should know now."""

    def update(self, elapsed_s: float, total_s: float, seen: str) -> None:
        """How far the window is, and what the probes have seen, in a few words."""

    def done(self) -> None:
        """The window ended."""


class Silent:
    """Reports nothing; notes still go into the manifest."""

    def note(self, text: str) -> None: ...

    def update(self, elapsed_s: float, total_s: float, seen: str) -> None: ...

    def done(self) -> None: ...


class TerminalLine:
    """Notes as lines, progress as one line that is written over; no progress when the stream is not a terminal."""

    WIDTH = 30

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = 0

    def note(self, text: str) -> None:
        self._clear()
        print(text, file=self.stream, flush=True)

    def update(self, elapsed_s: float, total_s: float, seen: str) -> None:
        if not self.live:
            return
        if math.isinf(total_s):  # nobody knows how long it takes
            self._draw(f"{elapsed_s:.0f} s  {seen}")
            return
        self._bar(_share(elapsed_s, total_s), f"{elapsed_s:.0f} of {total_s:.0f} s  {seen}")

    def share(self, done: int, total: int, text: str) -> None:
        """The state of work of known size."""
        if self.live:
            share = _share(done, total)
            self._bar(share, f"{share:4.0%}  {text}")

    def _bar(self, share: float, text: str) -> None:
        self._draw(f"[{'#' * int(share * self.WIDTH):<{self.WIDTH}}] {text}")

    def _draw(self, line: str) -> None:
        self.stream.write("\r" + line[:79].ljust(self._shown))
        self.stream.flush()
        self._shown = min(len(line), 79)

    def done(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._shown:
            self.stream.write("\r" + " " * self._shown + "\r")
            self.stream.flush()
            self._shown = 0


def _share(done: float, total: float) -> float:
    """Of work without size all is done."""
    return min(1.0, done / total) if total > 0 else 1.0
