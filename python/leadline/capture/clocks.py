"""Wall times and boot times of a capture on its own clock, also where the wall clock was set or slewed meanwhile.

Packets carry CLOCK_REALTIME, BPF may carry CLOCK_BOOTTIME, servers write wall times; a ts is CLOCK_MONOTONIC. Table `clock` has the
three together once a second, and view `clock_piece` cuts time into stretches in which one follows the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from leadline.capture.reader import Capture

Clock = Literal["realtime", "boottime"]


@dataclass(frozen=True)
class Piece:
    """A row of clock_piece: at, on the other clock, goes straight from at_from to at_to while ts goes from ts_from to ts_to."""

    ts_from: int
    ts_to: int
    at_from: int
    at_to: int
    stepped: bool

    def ts(self, at: int) -> int | None:
        if not self.at_from <= at < self.at_to:
            return None
        return self.ts_from + (at - self.at_from) * (self.ts_to - self.ts_from) // (self.at_to - self.at_from)


def pieces(capture: Capture, clock: Clock) -> list[Piece]:
    """The pieces of one clock, those between two rows before the open ends, in the order of time."""
    rows = capture.rows(
        """select ts_from, ts_to, at_from, at_to, stepped from clock_piece where clock = ?
           order by ts_to - ts_from > 1e15, stepped, ts_from, at_from""",
        [clock],
    )
    return [Piece(**row) for row in rows]


def ts_of(known: Iterable[Piece], at: int, near_ts: int | None = None) -> int | None:
    """The moment `at` of the other clock as a ts; None for a time that its clock never showed.

    A clock that was set back shows times twice: near_ts, a moment known to be close (of the row before it in a stream), then
    decides; without it the earlier moment counts. Within the second of the step ts is known to that second only.
    """
    found = [ts for piece in known if (ts := piece.ts(at)) is not None]
    if not found:
        return None
    return found[0] if near_ts is None else min(found, key=lambda ts: abs(ts - near_ts))
