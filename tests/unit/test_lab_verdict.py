"""leadline.lab.signed_rank and verdict: what the interval claims, checked over simulated pairs, and the words that follow from it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from leadline.lab.paired import ENOUGH_PAIRS, Ratio, pair_up, trial_order
from leadline.lab.signed_rank import EXACT, outside, signed_rank_ratio
from leadline.lab.verdict import by_chance, verdict

REPETITIONS = 3000
# Of 3,000 repetitions with a chance of 5 %, more than 6.2 % come once in 800 times.
MOST_FALSE = 0.062


def simulated(pairs: int, rng: random.Random, effect: float = 1.0) -> list[tuple[float, float]]:
    """Trials with noise of 5 %, of which every tenth takes 1.4 times as long."""
    order = trial_order(pairs, rng)

    def trial(on: bool) -> float:
        return rng.lognormvariate(0, 0.05) * (1.4 if rng.random() < 0.1 else 1.0) * (effect if on else 1.0)

    return pair_up([(on, trial(on)) for on in order])


def said(ratio: Ratio) -> str:
    return verdict(ratio, quantity="seconds", margin=0.001, better="less", is_time=True).word


@pytest.mark.parametrize("pairs", [6, 7, 8, 10, 16, 25])
def test_of_two_that_are_alike_no_more_differ_than_the_interval_claims(pairs: int) -> None:
    rng = random.Random(pairs)
    false = sum(said(signed_rank_ratio(simulated(pairs, rng))) in ("faster", "slower") for _ in range(REPETITIONS))
    assert 0 < false / REPETITIONS < MOST_FALSE


def test_a_machine_that_drifts_makes_no_difference_unless_each_is_run_in_one_block() -> None:
    rng = random.Random(1)
    interleaved, blocked = 0, 0
    for _ in range(REPETITIONS):
        times = [rng.lognormvariate(0, 0.02) * (1 + 0.08 * number / 20) for number in range(20)]
        order = trial_order(10, rng)
        interleaved += said(signed_rank_ratio(pair_up(list(zip(order, times))))) in ("faster", "slower")
        blocked += said(signed_rank_ratio(list(zip(times[:10], times[10:])))) in ("faster", "slower")
    assert interleaved / REPETITIONS < MOST_FALSE
    assert blocked / REPETITIONS > 0.9


def cycle(period: int) -> Callable[[int, random.Random], list[float]]:
    """Every so many trials something else runs on the host and takes 10 % of it, beginning anywhere."""

    def times(trials: int, rng: random.Random) -> list[float]:
        phase = rng.randrange(period)
        return [rng.lognormvariate(0, 0.01) * (1.1 if (number + phase) % period == 0 else 1.0) for number in range(trials)]

    return times


def wave(period: int) -> Callable[[int, random.Random], list[float]]:
    def times(trials: int, rng: random.Random) -> list[float]:
        phase = rng.uniform(0, 2 * math.pi)
        return [rng.lognormvariate(0, 0.01) * (1 + 0.05 * math.sin(2 * math.pi * number / period + phase)) for number in range(trials)]

    return times


def autocorrelated(share: float) -> Callable[[int, random.Random], list[float]]:
    """Each trial keeps this share of what the trial before had too much; below 0 it turns round."""

    def times(trials: int, rng: random.Random) -> list[float]:
        at, out = 0.0, []
        for _ in range(trials):
            at = share * at + rng.gauss(0, 0.03)
            out.append(math.exp(at))
        return out

    return times


def burst(trials: int, rng: random.Random) -> list[float]:
    first, long = rng.randrange(trials), rng.randrange(1, 8)
    return [rng.lognormvariate(0, 0.01) * (1.5 if first <= number < first + long else 1.0) for number in range(trials)]


def drift(trials: int, rng: random.Random) -> list[float]:
    return [rng.lognormvariate(0, 0.005) * (1 + 0.1 * number / trials) for number in range(trials)]


def quadratic(trials: int, rng: random.Random) -> list[float]:
    return [rng.lognormvariate(0, 0.005) * (1 + 0.2 * (number / trials) ** 2) for number in range(trials)]


def coarse(trials: int, rng: random.Random) -> list[float]:
    """A clock that tells only three values, so that most pairs are alike."""
    return [rng.choice([1.0, 1.1, 1.2]) for _ in range(trials)]


DISTURBANCES = {f"cycle of {period}": cycle(period) for period in range(2, 13)}
DISTURBANCES |= {f"wave of {period}": wave(period) for period in (2, 3, 4, 5, 7, 8, 12)}
DISTURBANCES |= {f"autocorrelation {share}": autocorrelated(share) for share in (-0.9, -0.5, 0.5, 0.9, 1.0)}
DISTURBANCES |= {"burst": burst, "drift": drift, "drift that grows": quadratic, "coarse clock": coarse}


@pytest.mark.parametrize("pairs", [6, 10, 15])
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_whatever_disturbs_the_host_two_that_are_alike_differ_no_more_often(disturbance: str, pairs: int) -> None:
    """The times of the trials are what they are; only the order is drawn, and that alone must keep the promise."""
    rng = random.Random(f"{disturbance} {pairs}")
    false = 0
    for _ in range(REPETITIONS):
        times = DISTURBANCES[disturbance](2 * pairs, rng)
        ratio = signed_rank_ratio(pair_up(list(zip(trial_order(pairs, rng), times))))
        false += ratio.low > 1 or ratio.high < 1
    assert false / REPETITIONS < MOST_FALSE


def test_an_effect_of_ten_percent_is_found_and_its_interval_holds_it() -> None:
    rng = random.Random(2)
    found = [signed_rank_ratio(simulated(20, rng, effect=0.9)) for _ in range(REPETITIONS)]
    words = [said(ratio) for ratio in found]
    assert words.count("faster") / REPETITIONS > 0.8
    assert words.count("slower") == 0
    assert sum(ratio.low <= 0.9 <= ratio.high for ratio in found) / REPETITIONS > 1 - MOST_FALSE
    quiet = signed_rank_ratio([(1.0 + n / 1000, 0.9 * (1.01 + n / 1000)) for n in range(10)])
    assert (said(quiet), round(quiet.estimate, 3)) == ("faster", 0.909)


# How many means of two are left out at 95 %, from the tables of Wilcoxon's test: two-sided 5 %.
@pytest.mark.parametrize(("pairs", "left_out"), [(5, -1), (6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (15, 25), (20, 52), (25, 89)])
def test_the_ranks_are_those_of_the_tables(pairs: int, left_out: int) -> None:
    assert outside(pairs) == left_out


def test_the_normal_distribution_takes_over_without_a_step() -> None:
    assert 0 <= outside(EXACT + 1) - outside(EXACT) - 22 <= 3


def test_the_estimate_is_the_ratio_and_turns_round_with_it() -> None:
    pairs = [(2.0, 1.0), (4.0, 2.1), (3.0, 1.4), (5.0, 2.5), (1.0, 0.5), (6.0, 3.1), (2.0, 0.9)]
    one, other = signed_rank_ratio(pairs), signed_rank_ratio([(b, a) for a, b in pairs])
    assert (one.estimate, one.low, one.high) == pytest.approx((1 / other.estimate, 1 / other.high, 1 / other.low))
    assert one.low < 0.5 < one.high


@pytest.mark.parametrize("pairs", [[], [(1.0, 0.0)], [(0.0, 1.0)], [(1.0, -1.0)]])
def test_what_has_no_ratio_is_refused(pairs: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"no pairs|above 0"):
        signed_rank_ratio(pairs)


def test_too_few_pairs_are_no_verdict_and_say_how_many_are_needed() -> None:
    few = signed_rank_ratio([(1.0, 0.5)] * (ENOUGH_PAIRS - 1))
    assert (few.low, few.high) == (0.0, math.inf)
    refused = verdict(few, quantity="seconds", margin=0.02, better="less")
    assert (refused.word, refused.text) == ("none", "no verdict: 5 pairs, and 6 are needed (--pairs 6 or more)")
    assert verdict(None, quantity="seconds", margin=0.02, better="less").word == "none"


# Ratio, margin, better, whether it is a time -> the word, and whether it is good.
WORDS = [
    ((0.9, 0.85, 0.95), 0.02, "less", True, "faster", True),
    ((1.1, 1.05, 1.15), 0.02, "less", True, "slower", False),
    ((1.1, 1.05, 1.15), 0.02, "more", False, "more", True),
    ((0.9, 0.85, 0.95), 0.02, "more", False, "less", False),
    ((1.0, 0.99, 1.01), 0.02, "less", True, "equivalent", None),
    ((0.99, 0.985, 0.995), 0.02, "less", True, "equivalent", None),
    ((1.0, 0.97, 1.01), 0.02, "less", True, "inconclusive", None),
    ((1.0, 0.99, 1.021), 0.02, "less", True, "inconclusive", None),
    ((0.98, 0.97, 0.99), 0.02, "less", True, "faster", True),
]


@pytest.mark.parametrize(("ratio", "margin", "better", "is_time", "word", "good"), WORDS)
def test_the_words(ratio: tuple[float, float, float], margin: float, better: str, is_time: bool, word: str, good: bool | None) -> None:
    found = verdict(Ratio(*ratio, 10), quantity="seconds", margin=margin, better=better, is_time=is_time)
    assert (found.word, found.good) == (word, good)
    assert found.text.startswith(word) and "same" not in found.text


def test_many_tries_show_something_by_chance() -> None:
    assert (by_chance(1), by_chance(5)) == pytest.approx((0.05, 0.226), abs=0.001)
