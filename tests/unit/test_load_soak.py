"""A long load: parts in order, and a trend only where there is one."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest
from leadline.load.soak import Soak, kendall_p, lines, rises


def soak(rates: list[float], p99: list[float | None]) -> Soak:
    of = Soak()
    head: dict[str, Any] = {"warm_up": False, "after_the_end": False, "duration_ns": 10**9}
    of.take(head | {"warm_up": True, "done": 1, "latency": {"p99_ns": 1}})
    for rate, ms in zip(rates, p99):
        of.take(head | {"done": rate, "latency": {"p99_ns": None if ms is None else ms * 1e6}})
    of.take(head | {"after_the_end": True, "done": 1, "latency": {"p99_ns": 1}})
    return of


@pytest.mark.parametrize("n", range(2, 8))
def test_the_chance_of_a_trend_is_that_of_all_orders(n: int) -> None:
    each = [abs(rises(list(map(float, order)))) for order in permutations(range(n))]
    for order in random.Random(n).sample(list(permutations(range(n))), min(20, len(each))):
        values = list(map(float, order))
        least = sum(one >= abs(rises(values)) for one in each) / len(each)
        assert kendall_p(values) == pytest.approx(min(1.0, least if rises(values) else 1.0))


def test_a_rate_that_falls_is_told_and_one_that_only_varies_is_not() -> None:
    rng = random.Random(3)
    falls = soak([1000 - n + rng.gauss(0, 30) for n in range(600)], [5 + rng.random() for _ in range(600)]).found()
    assert falls["trends"]["per_second"]["trend"] == "falls" and falls["trends"]["p99_ms"]["trend"] == "none shown"
    assert [part["part"] for part in falls["parts"]] == list(range(1, 11)) and sum(part["seconds"] for part in falls["parts"]) == 600
    said = lines(falls)
    assert said[2].startswith("rate: falls: ") and "in the last (Kendall, p = " in said[2] and said[3].startswith("p99: no trend shown")
    wrong = sum(
        any(one["trend"] != "none shown" for one in soak([rng.gauss(1000, 30) for _ in range(60)], [rng.gauss(5, 1) for _ in range(60)])
            .found()["trends"].values()) for _ in range(400)
    )  # fmt: skip
    assert wrong <= 32, "at most 5 % of 400, and what chance adds"


def test_a_short_load_and_one_without_latencies_show_no_trend() -> None:
    assert soak([1.0] * 40, [1.0] * 40).found()["trends"] == {"per_second": None, "p99_ms": None}
    found = soak([float(n) for n in range(100)], [None] * 100).found()
    assert found["trends"]["p99_ms"] is None and found["trends"]["per_second"]["trend"] == "grows"
    assert soak([], []).found()["parts"] == [] and "too short" in lines(soak([], []).found())[2]


def test_ties_are_no_trend() -> None:
    assert kendall_p([1.0] * 10) == 1.0
    assert kendall_p([1.0] * 9 + [2.0]) > 0.05
