"""The ratio of paired legs by ranks: the estimate of Hodges and Lehmann, with the interval of Wilcoxon's signed-rank test.

Of pairs that differ by nothing but noise, at most one interval in twenty leaves 1 out, however few they are: the distribution of the
ranks is exact. (A bootstrap of the median of ratios leaves it out in up to one of ten below some 20 pairs.) Ratios of pairs must only be
as often above as below the true one by the same factor, not normal: an odd leg moves neither end far. If the two are alike, the coin of
leg_order alone makes it so, whatever disturbs the legs: tests/golden/test_lab_verdict.py tries periods, waves, bursts and drifts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist, median

from leadline.lab.paired import LEVEL, Ratio

MOST_PAIRS = 1000
EXACT = 60  # pairs; beyond, a normal distribution is as good


def signed_rank_ratio(pairs: Sequence[tuple[float, float]], level: float = LEVEL) -> Ratio:
    """with / bare over the pairs. With too few of them (below paired.ENOUGH_PAIRS at 95 %) the interval has no ends.

    Raises ValueError when a value is not above 0.
    """
    if not pairs:
        raise ValueError("no pairs")
    if not all(value > 0 for pair in pairs for value in pair):
        raise ValueError("a ratio needs values above 0")
    logs = [math.log(with_) - math.log(bare) for bare, with_ in pairs]
    means = sorted((one + other) / 2 for at, one in enumerate(logs) for other in logs[at:])
    left_out = outside(len(pairs), level)
    low, high = (means[left_out], means[-1 - left_out]) if left_out >= 0 else (-math.inf, math.inf)
    return Ratio(_exp(median(means)), _exp(low), _exp(high), len(pairs))


def outside(pairs: int, level: float = LEVEL) -> int:
    """How many of the ordered means of two differences lie outside the interval, on each side; -1: no interval has this level."""
    if pairs > EXACT:
        mean, spread = pairs * (pairs + 1) / 4, math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)
        return math.floor(mean + NormalDist().inv_cdf((1 - level) / 2) * spread - 0.5)
    sums = [1]  # how many sets of ranks have each sum
    for rank in range(1, pairs + 1):
        sums = [(sums[at] if at < len(sums) else 0) + (sums[at - rank] if at >= rank else 0) for at in range(len(sums) + rank)]
    most, below, out = (1 - level) / 2 * 2**pairs, 0, -1
    while below + sums[out + 1] <= most:
        below += sums[out + 1]
        out += 1
    return out


def median_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Where the median lies of what the values were drawn from, however it is distributed: the sign test turned round.

    From the least value to the most where there are too few for the level. Raises ValueError when there are none.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    n, ways, below, out = len(ordered), 1, 1, -1  # `below` of 2**n ways to lie have at most out + 1 of n values on one side
    least = Fraction((1 - level) / 2) * 2**n  # a float ends at some thousand values
    while below <= least:
        out += 1
        ways = ways * (n - out) // (out + 1)
        below += ways
    out = max(out, 0)
    return ordered[out], ordered[-1 - out]


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
