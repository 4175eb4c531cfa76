"""The ratio of paired trials by ranks: the estimate of Hodges and Lehmann, with the interval of Wilcoxon's signed-rank test.

Of pairs that differ by nothing but noise, at most one interval in twenty leaves 1 out, however few they are: the distribution of the
ranks is exact. (A bootstrap of the median of ratios leaves it out in up to one of ten below some 20 pairs.) Ratios of pairs must only be
as often above as below the true one by the same factor, not normal: an odd trial moves neither end far. If the two are alike, the coin of
trial_order alone makes it so, whatever disturbs the trials: tests/unit/test_lab_verdict.py tries periods, waves, bursts and drifts.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist, median

from leadline.lab.paired import LEVEL, Ratio

MOST_PAIRS = 1000
EXACT = 60  # pairs; beyond, a normal distribution is as good


def signed_rank_ratio(pairs: Sequence[tuple[float, float]], level: float = LEVEL) -> Ratio:
    """with / bare over the pairs. With too few of them (below paired.ENOUGH_PAIRS at 95 %) the interval has no ends.

    Raises ValueError when a value is not above 0.
    """
    means = _means(pairs)
    left_out = outside(len(pairs), level)
    low, high = (means[left_out], means[-1 - left_out]) if left_out >= 0 else (-math.inf, math.inf)
    return Ratio(_exp(median(means)), _exp(low), _exp(high), len(pairs))


def outside(pairs: int, level: float = LEVEL) -> int:
    """How many of the ordered means of two differences lie outside the interval, on each side; -1: no interval has this level."""
    if pairs > EXACT:
        mean, spread = pairs * (pairs + 1) / 4, math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)
        return math.floor(mean + NormalDist().inv_cdf((1 - level) / 2) * spread - 0.5)
    most, ways = (1 - level) / 2 * 2**pairs, _ways(pairs)
    return bisect_right(ways, most) - 1


def p_differs(pairs: Sequence[tuple[float, float]]) -> float:
    """How often two that are alike differ as much as these or more, to either side. signed_rank_ratio leaves 1 out exactly if that is at
    most 1 - level. Raises ValueError as it does."""
    means = _means(pairs)
    return min(1.0, 2 * min(_at_most(len(pairs), bisect_right(means, 0.0)), _at_most(len(pairs), len(means) - bisect_left(means, 0.0))))


def p_outside(pairs: Sequence[tuple[float, float]], margin: float) -> float:
    """How often two that differ by the margin, or more, look as near to each other as these: two one-sided tests (TOST), of which the less
    certain one counts. It is doubled, so that the interval of signed_rank_ratio lies within the margin exactly if it is at most 1 - level.

    Raises ValueError as signed_rank_ratio does, and for a margin that is not between 0 and 1.
    """
    if not 0 < margin < 1:
        raise ValueError("a margin lies between 0 and 1")
    means = _means(pairs)
    below = bisect_left(means, math.log1p(-margin))
    above = len(means) - bisect_right(means, math.log1p(margin))
    return min(1.0, 2 * max(_at_most(len(pairs), below), _at_most(len(pairs), above)))


def _means(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """The means of each two differences of logarithms, and of each with itself, in order."""
    if not pairs:
        raise ValueError("no pairs")
    if not all(0 < value < math.inf for pair in pairs for value in pair):
        raise ValueError("a ratio needs values above 0")
    logs = [math.log(with_) - math.log(bare) for bare, with_ in pairs]
    return sorted((one + other) / 2 for at, one in enumerate(logs) for other in logs[at:])


@lru_cache(maxsize=EXACT)
def _ways(pairs: int) -> list[int]:
    """Of 2**pairs ways to choose from the ranks 1 to pairs, how many have at most each sum."""
    sums = [1]
    for rank in range(1, pairs + 1):
        sums = [(sums[at] if at < len(sums) else 0) + (sums[at - rank] if at >= rank else 0) for at in range(len(sums) + rank)]
    return list(accumulate(sums))


def _at_most(pairs: int, rank_sum: int) -> float:
    """How likely the ranks on one side have no more than this sum, if the two are alike."""
    if pairs > EXACT:
        mean, spread = pairs * (pairs + 1) / 4, math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)
        return NormalDist().cdf((rank_sum + 0.5 - mean) / spread)
    return float(_ways(pairs)[rank_sum] / 2**pairs)


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
