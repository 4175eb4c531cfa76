"""Whether a standby keeps up: how the WAL that it has not replayed grows while WAL is made at a steady rate, and a verdict.

The backlog is averaged over equal parts of the time. Its growth is the slope of Theil and Sen: the median of the slopes of each two parts,
which a burst or a checkpoint moves little. The 95 % interval comes from a moving-block bootstrap of what lies beside that line: parts
that follow each other are alike, so they are drawn together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from random import Random
from statistics import fmean, median, quantiles

from leadline.engines.postgres.forecast import Reading
from leadline.errors import LeadlineError
from leadline.study.positions import EVERY_S, rate_of

KEEPS_UP, FALLS_BEHIND, UNDECIDED = "keeps up", "falls behind", "undecided"
SHARE = 0.01  # of what is made: a backlog that grows by less does not matter
MOST_BEHIND_S = 1.0
PARTS, LEAST_PARTS, READINGS = 30, 8, 2  # of the time; readings in a part
BLOCKS = 5  # of parts that are drawn together, in the whole time
DRAWS, SEED = 200, 33


@dataclass(frozen=True)
class Backlog:
    """Bytes a second. growth, low, high: of the backlog, as shares of what is made, with a 95 % interval. behind_s: the age of the WAL that
    was being replayed, which 95 % of the readings did not exceed."""

    made_per_s: float
    replayed_per_s: float
    growth: float
    low: float
    high: float
    behind_s: float

    @property
    def verdict(self) -> str:
        return verdict(self.low, self.high, self.behind_s)


def verdict(low: float, high: float, behind_s: float) -> str:
    """Of the interval of the growth, and how far it is behind."""
    if low > SHARE:
        return FALLS_BEHIND
    return KEEPS_UP if high < SHARE and behind_s < MOST_BEHIND_S else UNDECIDED


def backlog(readings: Sequence[Reading]) -> Backlog:
    """Raises LeadlineError where there are too few readings, or nothing was made."""
    parts = min(PARTS, len(readings) // READINGS)
    made = rate_of(readings)
    if parts < LEAST_PARTS or made <= 0:
        raise LeadlineError("gone", "there are too few readings, or no WAL was made", detail=f"{len(readings)} readings")
    begin, seconds = readings[0].at_s, readings[-1].at_s - readings[0].at_s
    of_parts: list[list[Reading]] = [[] for _ in range(parts)]
    for one in readings:
        of_parts[min(int(parts * (one.at_s - begin) / seconds), parts - 1)].append(one)
    points = [(fmean(one.at_s for one in part), fmean(one.made - one.replayed for one in part)) for part in of_parts if part]
    slope = theil_sen(points)
    middle = median(y - slope * x for x, y in points)
    beside = [y - slope * x - middle for x, y in points]
    length, draw, slopes = max(len(points) // BLOCKS, 1), Random(SEED), list[float]()
    for _ in range(DRAWS):
        drawn: list[float] = []
        while len(drawn) < len(points):
            first = draw.randrange(len(points) - length + 1)
            drawn += beside[first : first + length]
        slopes.append(slope + theil_sen([(x, y) for (x, _), y in zip(points, drawn)]))
    cuts = quantiles(slopes, n=40)
    replayed = (readings[-1].replayed - readings[0].replayed) / seconds
    late = quantiles(ages(readings), n=20)[-1]
    return Backlog(made, replayed, slope / made, cuts[0] / made, cuts[-1] / made, max(late, EVERY_S))


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median slope of each two points, which differ in x."""
    return median((d - b) / (c - a) for (a, b), (c, d) in combinations(points, 2))


def ages(readings: Sequence[Reading]) -> list[float]:
    """At each reading, for how long the oldest WAL that is not replayed has existed; 0 where all is. Of WAL that was there at the first
    reading, it is at least so old."""
    out, newest = [], 0
    for one in readings:
        while newest + 1 < len(readings) and readings[newest + 1].made <= one.replayed:
            newest += 1
        out.append(one.at_s - readings[newest].at_s if one.replayed < one.made else 0.0)
    return out


def stall(readings: Sequence[Reading]) -> float:
    """The longest time, in seconds, in which nothing was replayed although WAL lay on the disk of the standby."""
    longest = 0.0
    since: float | None = None
    for before, one in pairwise(readings):
        if one.replayed == before.replayed < before.on_disk:
            since = before.at_s if since is None else since
            longest = max(longest, one.at_s - since)
        else:
            since = None
    return longest
