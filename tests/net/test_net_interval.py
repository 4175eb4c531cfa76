"""Exact intervals of a failure rate, against the binomial distribution summed term by term."""

from __future__ import annotations

from math import comb

import pytest
from leadline.net.interval import clean_runs_needed, interval, upper_bound


def at_most(failures: int, runs: int, rate: float) -> float:
    """The probability of so many failures or fewer."""
    return sum(comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(failures + 1))


@pytest.mark.parametrize(("failures", "runs"), [(0, 1), (0, 299), (1, 100), (3, 300), (50, 100), (99, 100), (17, 1000)])
def test_the_bounds_leave_as_much_outside_as_the_confidence_says(failures: int, runs: int) -> None:
    low, high = interval(failures, runs, 0.95)
    assert at_most(failures, runs, high) == pytest.approx(0.025, abs=1e-9)
    if failures:
        assert 1 - at_most(failures - 1, runs, low) == pytest.approx(0.025, abs=1e-9)
    assert at_most(failures, runs, upper_bound(failures, runs, 0.99)) == pytest.approx(0.01, abs=1e-9)


def test_known_values() -> None:
    # R: binom.test(1, 100)$conf.int
    assert interval(1, 100, 0.95) == pytest.approx((0.0002531460, 0.0544593854), abs=1e-9)
    assert interval(0, 5, 0.95)[0] == 0 and interval(5, 5, 0.95)[1] == 1


def test_so_many_clean_runs_rule_a_rate_out_and_one_fewer_does_not() -> None:
    assert clean_runs_needed(0.01, 0.95) == 299  # ln 0.05 / ln 0.99 = 298.07
    for rate, confidence in ((0.01, 0.95), (0.001, 0.99), (0.3, 0.8), (0.1, 0.999)):
        n = clean_runs_needed(rate, confidence)
        assert upper_bound(0, n, confidence) <= rate + 1e-12
        assert upper_bound(0, n - 1, confidence) > rate
