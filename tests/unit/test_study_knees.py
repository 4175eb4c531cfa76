"""What the study `keep-up` says: the verdict of a rate from its trials, the knee, and the plot."""

from __future__ import annotations

from typing import Any

from leadline.study import knees, outages
from leadline.study.knees import Rate, knee
from test_study_outages import found

UP, BEHIND, UNSURE = (-0.001, 0.001, 0.1), (0.4, 0.6, 5.0), (-0.5, 0.5, 0.1)  # low, high, seconds


def trials(made: float, replayed: float, *said: tuple[float, float, float]) -> dict[str, list[float]]:
    low, high, late = zip(*said)
    values = {"MB/s made": [made] * 3, "MB/s replayed": [replayed, 1.1 * replayed, 0.9 * replayed], "seconds behind": list(late)}
    return values | {"growth of the backlog, low": list(low), "growth of the backlog, high": list(high)}


def of_two_shares() -> dict[str, Any]:
    return found("keep-up", {
        ("10%", "60"): trials(2.0, 2.0, UP, UP, UNSURE), ("10%", "120"): trials(4.0, 4.0, UP, UP, UP),
        ("10%", "290"): trials(9.0, 8.0, UP, BEHIND, UP), ("10%", "500"): trials(20.0, 8.0, BEHIND, BEHIND, BEHIND),
        ("5%", "60"): trials(2.0, 2.0, UP, UP, UP), ("5%", "120"): trials(5.0, 4.0, BEHIND, BEHIND, UNSURE),
    })  # fmt: skip


def test_the_knee_lies_between_the_last_rate_that_keeps_up_and_the_first_that_does_not() -> None:
    ten, five = knees.knees(of_two_shares())
    assert [rate.verdict for rate in ten.rates] == ["keeps up", "keeps up", "undecided", "falls behind"]
    assert (ten.name, ten.keeps_up, ten.falls_behind) == ("replay_cpu=10%", 4.0, 20.0)
    assert (ten.at_most, ten.at_most_least, ten.at_most_most) == (8.4, 7.2, 8.8), "of all trials that fell behind, of any rate"
    assert (five.keeps_up, five.falls_behind) == (2.0, 5.0)
    assert ten.text == "replay_cpu=10%: keeps up with 4 MB/s, falls behind at 20 MB/s; behind, it replayed 8.4 MB/s (7.2 to 8.8)"


def test_a_rate_above_one_that_does_not_keep_up_is_not_kept_up_with() -> None:
    odd = knee("x", [Rate("c", 9.0, (9.0,), 0.1, ("keeps up",)), Rate("b", 5.0, (4.0,), 2.0, ("undecided",)),
                     Rate("a", 2.0, (2.0,), 0.1, ("keeps up",))])  # fmt: skip
    assert (odd.keeps_up, odd.falls_behind, odd.at_most) == (2.0, None, None)
    assert odd.text == "x: keeps up with 2 MB/s, falls behind at none"
    none = knee("x", [Rate("a", 2.0, (1.0,), 9.0, ("falls behind",))])
    assert none.text == "x: keeps up with none of these rates, falls behind at 2 MB/s; behind, it replayed 1 MB/s (1 to 1)"


def test_what_is_said_of_keeping_up_names_the_pair_and_its_throttling() -> None:
    of = of_two_shares()
    text = "\n".join(knees.lines(of))
    assert "(a loopback pair, replay held to 10% or 5% of a CPU)" in text and "keeps up with 4 MB/s" in text
    [heading, plot] = knees.drawn(of)
    assert "10% or 5% of a CPU" in heading and "loopback pair" in plot and plot.count("<circle") == 6 and plot.count("dasharray") == 2
    assert knees.as_dicts(of)[0]["rates"][2]["verdict"] == "undecided"
    assert knees.knees(of | {"judged": None}) == [] and knees.lines(found("outage", {})) == knees.drawn(found("outage", {})) == []
    assert outages.outages(of) == []
