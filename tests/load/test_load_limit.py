"""The search of `load find-limit`: against servers whose limit is known."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from leadline.load.limit import Promise, Trial, bounds, find, judge, outliers

PROMISE = Promise(within_s=0.02)


def trial(rate: float, kept: bool) -> Trial:
    return Trial(rate, rate, 1.0, 0, 0, kept)


@pytest.mark.parametrize("limit", [0.7, 40, 1000, 123_456])
@pytest.mark.parametrize("start", [1, 500, 20_000])
def test_a_known_limit_is_found_within_3_percent(limit: float, start: float) -> None:
    trials = find(start, PROMISE.width, lambda rate: trial(rate, rate <= limit))
    low, high = bounds(trials)
    assert low is not None and high is not None
    assert low <= limit < high and high / low <= 1.03
    assert sum(of.rate == low for of in trials) >= 2 and sum(of.rate == high for of in trials) >= 2


def test_a_bound_that_was_kept_by_chance_is_not_believed() -> None:
    rng = random.Random(5)
    for _ in range(50):
        # Up to 1,000 always, above 1,200 never, between them by chance.
        trials = find(500, PROMISE.width, lambda rate: trial(rate, rate < 1000 or (rate < 1200 and rng.random() < 0.5)))
        low, high = bounds(trials)
        assert low is not None and high is not None
        assert 950 <= low < high <= 1270


@pytest.mark.parametrize("disturbed", range(12))
def test_one_disturbed_trial_decides_nothing(disturbed: int) -> None:
    made: list[float] = []

    def attempt(rate: float) -> Trial:
        made.append(rate)
        return trial(rate, rate <= 1000 and len(made) != disturbed + 1)

    trials = find(300, PROMISE.width, attempt)
    low, high = bounds(trials)
    assert low is not None and high is not None
    assert low <= 1000 < high and high / low <= 1.03
    assert [of.rate for of in outliers(trials)] == [rate for rate in made[disturbed : disturbed + 1] if rate <= low]
    assert all(2 * sum(of.kept for of in trials if of.rate == bound) != sum(of.rate == bound for of in trials) for bound in (low, high))


def test_a_rate_that_breaks_the_promise_in_most_trials_is_not_the_limit() -> None:
    tries: Counter[float] = Counter()

    def attempt(rate: float) -> Trial:
        tries[rate] += 1
        return trial(rate, rate < 900 or (rate < 1000 and tries[rate] % 3 == 1))

    low, _ = bounds(find(300, PROMISE.width, attempt))
    assert low is not None and 870 < low < 900


def test_a_promise_that_no_rate_keeps_ends_the_search() -> None:
    trials = find(100, PROMISE.width, lambda rate: trial(rate, False))
    assert bounds(trials)[0] is None and len(trials) < 40


def test_what_was_not_begun_breaks_the_promise() -> None:
    def found(p99_ns: int | None, not_begun: int, gone: int = 0) -> dict[str, object]:
        phases = [{"warm_up": True}, {"warm_up": False, "latency": {"p99_ns": p99_ns}, "per_second": 9.0, "due": 1000, "failed": 0}]
        return {"phases": phases, "not_begun": not_begun, "unfinished": 0, "clients_gone": gone}

    assert judge(10, found(20_000_000, 10), PROMISE).kept
    assert not judge(10, found(20_000_001, 0), PROMISE).kept
    assert not judge(10, found(1000, 11), PROMISE).kept
    assert not judge(10, found(1000, 0, gone=1), PROMISE).kept
    assert not judge(10, found(None, 0), PROMISE).kept
