"""What a transaction takes at another round-trip time, and how wrong that can be.

The value is t + n * (RTT - RTT now), where t is the time of a transaction now and n its round trips, and what a longer pause costs. What
else does not stay is in bounds, which are added to those of the sample:

- After a longer pause, waking up takes longer and caches are colder: for each round trip, both ends together, half of COLD_MS at
  COLD_AT_MS, and as the square root of the pause. The value has that; the bounds have none of it and all of COLD_MS. Connections that wait
  for each other leave nothing to wake up and to get cold: for these, less by the part of their time that they wait.
- Waiting for a CPU or a lock grows shorter when requests come less often. `floor_ms` is what a transaction took without it.
- An answer that is longer than TCP's first window takes more round trips after a pause (`bulk_trips`).
- Another run of the same load takes another time: RUNS.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

COLD_MS, COLD_AT_MS = 0.15, 0.5  # measured: bench/README.md, pauses.py and budget_loads.py
RUNS = 0.02  # of the time: what runs of the same load differ by


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; without one if the sample is too small to tell."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class WhatIf:
    """At another round-trip time."""

    rtt_ms: float
    transaction_ms: Estimate
    per_second: Estimate
    network_share: float


@dataclass(frozen=True)
class Model:
    """A transaction as it was seen. Times in ms; trips with those that make connections.

    floor_ms: the time without the round trips, and without waiting. slack_ms: by so much the true round-trip time may be shorter.
    busy: connections that were busy at a time. bulk_trips: see above. line_ms: of its data on a line of a given rate.
    """

    time_ms: float
    trips: float
    rtt_ms: float
    floor_ms: float
    slack_ms: float = 0.0
    busy: float = 1.0
    bulk_trips: float = 0.0
    line_ms: float = 0.0

    @property
    def rest_ms(self) -> float:
        """The work of both ends and their waiting."""
        return self.time_ms - self.trips * self.rtt_ms

    @property
    def idle_ms(self) -> float:
        """The work of both ends, without their waiting."""
        return max(0.0, min(self.floor_ms, self.rest_ms))

    def at(self, rtt_ms: float) -> float:
        """A transaction takes no less than its round trips."""
        pauses = (sqrt(rtt_ms / COLD_AT_MS) - sqrt(self.rtt_ms / COLD_AT_MS)) * self.trips * COLD_MS / 2
        alone = self.idle_ms / self.rest_ms if self.rest_ms > 0 else 0.0
        return max(self.trips * rtt_ms + self.line_ms, self._plain(rtt_ms) + pauses * alone)

    def _plain(self, rtt_ms: float) -> float:
        """If everything else stays. Of a part of the sample, a may come out below 0."""
        return self.trips * rtt_ms + max(0.0, self.rest_ms) + self.line_ms

    def bounds(self, rtt_ms: float) -> tuple[float, float]:
        """The shortest and the longest time that the model allows."""
        value, further = self._plain(rtt_ms), rtt_ms - self.rtt_ms
        cold = self.trips * COLD_MS * sqrt(abs(further) / COLD_AT_MS)
        idle, here = self.idle_ms, self.at(rtt_ms)
        doubt = self.trips * min(self.slack_ms, abs(further))
        if further >= 0:  # a longer way makes nothing faster
            low = max(self.time_ms + self.line_ms, self.trips * rtt_ms + idle + self.line_ms)
            high = value + cold + doubt + self.bulk_trips * further
        else:
            low = max(self.trips * rtt_ms, value - (self.rest_ms - idle) - cold)
            high = max(value + doubt, self._crowded_ms() + self.line_ms)
        return min(low, value, here) * (1 - RUNS), max(high, value, here) * (1 + RUNS)

    def _crowded_ms(self) -> float:
        """No shorter than this is certain where connections wait for each other.

        In a closed system that waits for the share 1 - S / R of its time, the place where it waits is busy for that share (M/M/1); the rate
        can grow until it is always busy.
        """
        if self.busy <= 1 or self.rest_ms <= 0:
            return 0.0
        return self.time_ms * max(0.0, 1 - self.floor_ms / self.rest_ms)

    def network_share(self, rtt_ms: float) -> float:
        time_ms = self.at(rtt_ms)
        return self.trips * rtt_ms / time_ms if time_ms else 0.0
