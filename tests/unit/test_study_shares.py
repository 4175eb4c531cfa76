"""What the studies `limit` and `overload` say of the CPU that replay has, and the trial that finds a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from leadline.engines.postgres.forecast import Reading
from leadline.errors import LeadlineError
from leadline.load.limit import find
from leadline.study import shares
from leadline.study.drain import Replayed
from leadline.study.limit import Tried, Whole, account, bounds_of
from test_study_outages import found

MB = 1 << 20


def tried(rate: float, verdict: str, made: float = 0.0) -> Tried:
    return Tried(rate, verdict, made or rate / 25, rate / 25, rate / 50, 10.0)


def test_what_is_undecided_is_not_kept_up_with_and_each_bound_is_tried_twice() -> None:
    """A verdict is clear up to 390 and from 410 on; of the rates between them nothing is said."""
    trials = find(150, 0.05, lambda rate: tried(rate, "keeps up" if rate < 390 else "falls behind" if rate > 410 else "undecided"))
    low, high = bounds_of(trials)
    assert low < 390 <= high <= 1.05 * low
    assert [sum(one.rate == bound for one in trials) for bound in (low, high)] == [2, 2]


def test_one_trial_that_differs_is_outvoted() -> None:
    said: Iterator[str] = iter(["falls behind"])
    trials = find(300, 0.05, lambda rate: tried(rate, next(said, "keeps up" if rate < 400 else "falls behind")))
    low, high = bounds_of(trials)
    assert low < 400 <= high <= 1.05 * low


def test_a_trial_whose_load_does_not_reach_its_rate_does_not_count() -> None:
    """A transaction makes 0.04 MB, as the first trial shows."""
    made = iter([4.0, 7.0, 7.7, 10.0, 10.0, 10.0, 10.0])
    whole = Whole(lambda rate: tried(rate, "keeps up", next(made)))
    assert [whole.attempt(rate).made_mb_s for rate in (100, 200)] == [4.0, 7.7]
    with pytest.raises(LeadlineError, match="the load does not reach its rate") as refused:
        whole.attempt(300)
    assert refused.value.detail == "10 of 12 MB/s" and next(made, None) is None


@pytest.mark.parametrize(("verdict", "says"), [("keeps up", "all"), ("falls behind", "none")])
def test_rates_that_are_all_alike_have_no_limit_between_them(verdict: str, says: str) -> None:
    with pytest.raises(LeadlineError, match=f"the standby keeps up with {says} of these rates") as refused:
        bounds_of([tried(200, verdict), tried(100, verdict)])
    assert refused.value.detail == "4, 8 MB/s"


def test_the_account_of_a_limit_has_medians_of_its_bounds_and_what_a_backlog_says() -> None:
    trials = [tried(100, "keeps up"), tried(150, "keeps up", 6.0), tried(150, "falls behind", 6.4), tried(150, "keeps up", 6.2),
              tried(156, "falls behind", 6.8), tried(156, "undecided", 6.6)]  # fmt: skip
    of = account(trials, 150, 156, Replayed(60 * MB, 10.0, 0.5, [Reading(0, 0, 0, 0)]))
    assert (of["low_mb_s"], of["high_mb_s"], of["backlog_mb_s"]) == (6.2, 6.7, 6.0)
    assert of["limit_mb_s"] == pytest.approx((6.2 * 6.7) ** 0.5) and of["limit_by_backlog"] == pytest.approx((6.2 * 6.7) ** 0.5 / 6)
    assert (of["low_cpu_percent"], of["high_cpu_percent"], of["backlog_cpu_percent"]) == (3.0, 3.12, 5.0)
    assert len(of["tried"]) == 6 and of["tried"][2]["verdict"] == "falls behind"


def of_limits() -> dict[str, Any]:
    def values(limit: float, backlog: list[float], percent: float) -> dict[str, list[float]]:
        of = {"MB/s at the limit": limit, "MB/s kept up with": limit - 0.5, "MB/s not kept up with": limit + 0.5}
        of |= {"% of a CPU, kept up": percent, "% of a CPU, not kept up": percent}
        return {name: [value] * 3 for name, value in of.items()} | {"MB/s of a backlog": backlog}

    return found("limit", {("10%",): values(20.0, [20.0, 25.0, 16.0], 9.5), ("5%",): values(9.0, [10.0, 9.0, 9.0], 5.0)})


def test_limits_are_said_by_their_share_beside_what_was_replayed_of_a_backlog() -> None:
    of = of_limits()
    five, ten = shares.shares(of)
    assert (five.name, five.percent, five.right) == ("replay_cpu=5%", 5.0, 3)
    assert (ten.ratios, ten.right, ten.cpu_ratios) == ((1.0, 0.8, 1.25), 1, (pytest.approx(0.95),) * 3)
    assert (ten.figures["MB/s of a backlog"].least, ten.figures["MB/s of a backlog"].most) == (16.0, 25.0)
    text = "\n".join(shares.lines(of))
    assert "4 of 6 limits within 10 % of how fast a backlog was replayed" in text
    assert "(a loopback pair, replay held to 10% or 5% of a CPU)" in text
    [heading, plot] = shares.drawn(of)
    assert "10% or 5% of a CPU" in heading and "loopback pair" in plot and plot.count("<circle") == 4 and plot.count("dasharray") == 2
    assert shares.as_dicts(of)[0]["right"] == 3


def test_replay_under_load_and_after_it_is_said_with_each_trial() -> None:
    values = {"MB/s replayed under load": [10.0, 8.0, 10.0], "MB/s replayed after it": [9.0, 8.0, 11.0]}
    values |= {"MB for each CPU s under load": [200.0, 160.0, 200.0], "MB for each CPU s after it": [190.0, 160.0, 210.0]}
    of = found("overload", {("5%",): values})
    [five] = shares.shares(of)
    assert five.ratios == (0.9, 1.0, 1.1) and five.cpu_ratios == (0.95, 1.0, 1.05)
    assert "0.90, 1.00, 1.10" in "\n".join(shares.lines(of)) and "after it" in shares.drawn(of)[1]
    assert shares.shares(of | {"judged": None}) == [] == shares.lines(found("outage", {})) == shares.drawn(found("keep-up", {}))
