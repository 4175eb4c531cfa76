"""Lines about intervals while a measurement goes on: the rows of all connections together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Interval:
    """Of all connections. buckets: lowest time of each bucket of the histogram, and how many round trips it has."""

    from_s: float
    to_s: float
    replies: int = 0
    most_ns: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, float | int | None]:
        return {
            "from_s": self.from_s, "to_s": self.to_s, "replies": self.replies, "per_second": self.per_second,
            "p50_ns": self.quantile(0.5), "p99_ns": self.quantile(0.99), "max_ns": self.most_ns or None,
        }  # fmt: skip

    @property
    def per_second(self) -> float:
        return self.replies / (self.to_s - self.from_s)

    def quantile(self, share: float) -> int | None:
        """Within 0.1 %, as the histogram is."""
        wanted, below = share * sum(self.buckets.values()), 0
        for low, count in sorted(self.buckets.items()):
            below += count
            if below >= wanted:
                return low
        return None


class Intervals:
    """Takes rows as they come. An interval is told when each connection has one that is as late: one that stands still delays it."""

    def __init__(self, connections: int, interval_s: float, tell: Callable[[Interval], None]) -> None:
        self.interval_ns, self.tell = int(interval_s * 1e9), tell
        self.reached = [-1] * connections
        self.waiting: dict[int, Interval] = {}
        self.began: int | None = None

    def row(self, text: str) -> None:
        row = json.loads(text)
        if self.began is None:
            self.began = row["ts"] - row["duration_ns"]
        # The middle: an interval ends with the first reply after its time.
        number = max(0, (row["ts"] - row["duration_ns"] // 2 - self.began) // self.interval_ns)
        from_s, to_s = (row["ts"] - row["duration_ns"] - self.began) / 1e9, (row["ts"] - self.began) / 1e9
        of = self.waiting.setdefault(number, Interval(from_s, to_s))
        of.from_s, of.to_s, of.replies = min(of.from_s, from_s), max(of.to_s, to_s), of.replies + row["replies"]
        if "rtt" in row:
            of.most_ns = max(of.most_ns, row["rtt"]["max_ns"] or 0)
            for low, _, count in row["rtt"]["buckets"]:
                of.buckets[low] = of.buckets.get(low, 0) + count
        self.reached[row["connection"]] = max(self.reached[row["connection"]], number)
        self._tell_until(min(self.reached))

    def end(self) -> None:
        self._tell_until(max(self.waiting, default=-1))

    def _tell_until(self, last: int) -> None:
        for number in sorted(number for number in self.waiting if number <= last):
            self.tell(self.waiting.pop(number))


def rate_text(bits_per_s: float) -> str:
    """1.25 Gbit/s."""
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bits_per_s >= size:
            return f"{bits_per_s / size:.4g} {unit}"
    return f"{bits_per_s:.4g} bit/s"

