"""What a number of failures says of the rate of failure: exact (Clopper-Pearson), from the binomial distribution."""

from __future__ import annotations

import math
from collections.abc import Callable


def clean_runs_needed(max_rate: float, confidence: float) -> int:
    """So many runs without a failure show, with this confidence, that fewer than max_rate fail."""
    n = max(1, math.floor(math.log(1 - confidence) / math.log1p(-max_rate)))
    while (1 - max_rate) ** n > 1 - confidence:
        n += 1
    return n


def upper_bound(failures: int, runs: int, confidence: float) -> float:
    """With this confidence the rate is not above it (one-sided)."""
    if failures >= runs:
        return 1.0
    # The rate at which so few failures, or fewer, have a probability of 1 - confidence.
    return _root(lambda rate: 1 - _beta(rate, failures + 1, runs - failures) - (1 - confidence))


def interval(failures: int, runs: int, confidence: float) -> tuple[float, float]:
    """The rate lies in it with this confidence (two-sided)."""
    half = (1 - confidence) / 2
    low = 0.0 if failures == 0 else 1 - upper_bound(runs - failures, runs, 1 - half)
    return low, upper_bound(failures, runs, 1 - half)


def _root(falling: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return high


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(0, 1000):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / ((1 + term * d) or tiny)
        c = (1 + term / c) or tiny
        fraction *= c * d
        if step and abs(1 - c * d) < 1e-14:
            break
    return front * (fraction - 1)
