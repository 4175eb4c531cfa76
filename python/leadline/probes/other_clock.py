"""The clock of another host on that of this one, from exchanges of four timestamps: how far apart they are, and how wrong that may be.

Both are CLOCK_MONOTONIC: nobody sets it, and NTP slews it by at most 0.05 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FASTEST = 10  # one of so many exchanges counts: those that waited least on their way


@dataclass(frozen=True)
class Exchange:
    """sent, came: by our clock; received, answered: by theirs, in ns."""

    sent: int
    received: int
    answered: int
    came: int

    @property
    def round_trip_ns(self) -> int:
        """Without the time that the other side took."""
        return (self.came - self.sent) - (self.answered - self.received)

    @property
    def offset_ns(self) -> int:
        """Theirs less ours, right to half of the round trip: nobody knows how its two ways share it."""
        return ((self.received - self.sent) + (self.answered - self.came)) // 2


@dataclass(frozen=True)
class Reading:
    """What several exchanges say. theirs: when, by their clock."""

    theirs: int
    offset_ns: int
    error_ns: int

    @staticmethod
    def of(exchanges: Sequence[Exchange]) -> Reading:
        fastest = sorted(exchanges, key=lambda one: one.round_trip_ns)[: -(-len(exchanges) // FASTEST)]
        middle = sorted(fastest, key=lambda one: one.offset_ns)[(len(fastest) - 1) // 2]
        return Reading(middle.received, middle.offset_ns, middle.round_trip_ns // 2 + 1)


@dataclass(frozen=True)
class OtherClock:
    """The line through the first and the last reading. between: the others."""

    first: Reading
    last: Reading
    between: Sequence[Reading] = ()

    @property
    def _slope(self) -> float:
        return (self.last.offset_ns - self.first.offset_ns) / max(1, self.last.theirs - self.first.theirs)

    def offset_ns(self, theirs: int) -> int:
        return self.first.offset_ns + round(self._slope * (theirs - self.first.theirs))

    def ours(self, theirs: int) -> int:
        return theirs - self.offset_ns(theirs)

    @property
    def error_ns(self) -> int:
        """The most by which `ours` may be wrong: also where a reading between shows that the clocks did not drift evenly."""
        off = [abs(one.offset_ns - self.offset_ns(one.theirs)) - one.error_ns for one in self.between]
        return max(self.first.error_ns, self.last.error_ns) + max([0, *off])

    @property
    def drift_ppm(self) -> float:
        """By how much more their clock goes than ours."""
        return self._slope * 1e6

    @property
    def drift_error_ppm(self) -> float:
        return (self.first.error_ns + self.last.error_ns) / max(1, self.last.theirs - self.first.theirs) * 1e6
