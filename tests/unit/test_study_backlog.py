"""Whether a standby keeps up: ages and stalls, the growth of a backlog, and how often the verdict is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from leadline.engines.postgres.forecast import Reading
from leadline.errors import LeadlineError
from leadline.study.backlog import FALLS_BEHIND, KEEPS_UP, UNDECIDED, ages, backlog, stall, theil_sen, verdict
from leadline.study.keep_up import LONGER, account
from leadline.study.positions import has_all

MB = 1 << 20


def line(made_mb: float, replayed_mb: float, seconds: float = 15.0) -> list[Reading]:
    """20 readings a second of two even rates."""
    return [Reading(n / 20, round(n * made_mb * MB / 20), round(n * made_mb * MB / 20), round(n * replayed_mb * MB / 20))
            for n in range(round(20 * seconds) + 1)]  # fmt: skip


def test_the_growth_of_a_backlog_is_a_share_of_what_is_made() -> None:
    found = backlog(line(2.0, 1.5))
    assert (found.made_per_s, found.replayed_per_s) == (2.0 * MB, 1.5 * MB)
    assert (found.growth, found.low, found.high) == (pytest.approx(0.25), pytest.approx(0.25), pytest.approx(0.25))
    assert found.verdict == FALLS_BEHIND and found.behind_s == pytest.approx(0.95 * 15 / 4, abs=0.1)
    even = backlog(line(2.0, 2.0))
    assert (even.growth, even.behind_s, even.verdict) == (0.0, 0.05, KEEPS_UP)


def test_a_verdict_needs_the_whole_interval_and_little_lag() -> None:
    assert verdict(0.011, 0.5, 0.1) == FALLS_BEHIND and verdict(-0.5, 0.009, 0.9) == KEEPS_UP
    assert verdict(-0.5, 0.5, 0.1) == verdict(0.01, 0.02, 0.1) == verdict(-0.5, 0.009, 1.0) == UNDECIDED


def test_too_little_is_no_backlog() -> None:
    for readings in ([], line(1.0, 1.0, 0.5), [Reading(n / 20, 7, 7, 7) for n in range(300)]):
        with pytest.raises(LeadlineError, match="too few readings, or no WAL was made"):
            backlog(readings)


def test_a_burst_moves_the_slope_little() -> None:
    points = [(float(n), 3.0 * n + (1000.0 if n == 4 else 0.0)) for n in range(10)]
    assert theil_sen(points) == 3.0


def test_the_age_of_what_waits_and_the_longest_stall() -> None:
    def reading(n: int, made: int, replayed: int, on_disk: int = 100) -> Reading:
        return Reading(n / 10, made, min(made, on_disk), replayed)

    held = [reading(0, 10, 10), reading(1, 20, 10), reading(2, 30, 10), reading(3, 30, 20), reading(4, 30, 30), reading(9, 30, 30)]
    assert ages(held) == pytest.approx([0.0, 0.1, 0.2, 0.2, 0.0, 0.0])
    assert stall(held) == pytest.approx(0.1), "from the second reading on WAL lay on the disk"
    assert stall([reading(n, 10 * n, 10, 10) for n in range(9)]) == 0.0, "what has not come cannot be replayed"
    assert stall([]) == 0.0 and ages([]) == []


def test_rates_of_replay_under_load_and_after_it() -> None:
    under_load = line(4.0, 1.0)
    last = under_load[-1]
    after = [Reading(last.at_s + n / 20, last.made, last.made, min(last.replayed + n * MB // 10, last.made)) for n in range(600)]
    found = account(backlog(under_load), under_load, after, 0.05, 2.0)
    assert found["verdict"] == FALLS_BEHIND and found["watched_s"] == 15.0 and (found["made_mb_s"], found["replayed_mb_s"]) == (4.0, 1.0)
    assert (found["at_most_mb_s"], found["drained_mb_s"]) == (pytest.approx(1.0, rel=1e-3), pytest.approx(2.0, rel=1e-3))
    assert found["drained_ratio"] == pytest.approx(2.0, rel=1e-3)
    assert (found["replay_cpu_percent"], found["replayed_mb_cpu_s"], found["drained_mb_cpu_s"]) == (5.0, 20.0, 22.5), "45 MB were left"
    assert [has_all(after[:n]) for n in (0, 1, 600)] == [False, False, True]
    late = [Reading(one.at_s, one.made + MB, one.on_disk + MB, one.replayed) for one in line(2.0, 2.0)]
    kept_up = account(backlog(late), late, after[-1:], 0.0, 0.0)
    assert (kept_up["at_most_mb_s"], kept_up["drained_mb_s"], kept_up["drained_ratio"]) == (None, None, None)
    assert kept_up["replayed_mb_cpu_s"] is None is kept_up["drained_mb_cpu_s"]


KINDS = ("even", "bursts", "checkpoints", "drift")
PARTS_OF_CAPACITY = (0.4, 0.7, 0.9, 1.1, 1.3, 2.0)


def simulated(kind: str, of_capacity: float, draw: Random) -> Iterator[Reading]:
    """A standby that can replay 10 MB/s on average: bursts of what is made, a second in ten without replay, or a rate of replay that
    drifts. Each reading is 50 ms after the one before."""
    made = replayed = 0.0
    speed, n = 1.0, 0
    while True:
        yield Reading(n / 20, round(made), round(made), round(replayed))
        n += 1
        burst = 3.0 if kind == "bursts" and n % 60 < 6 else 1.0 if kind != "bursts" else (60 - 18) / 54
        made += of_capacity * 10 * MB / 20 * burst * draw.gammavariate(20, 1 / 20)
        if kind == "drift":
            speed = 1.0 + 0.98 * (speed - 1.0) + draw.gauss(0, 0.01)
        stands_still = kind == "checkpoints" and (n // 20) % 10 == 7
        can = 0.0 if stands_still else 10 * MB / 20 * speed * (10 / 9 if kind == "checkpoints" else 1.0) * draw.gammavariate(50, 1 / 50)
        replayed = min(replayed + can, made)


def judged(source: Iterator[Reading], for_s: float) -> str:
    """As a trial does it."""
    readings: list[Reading] = []
    for times in LONGER:
        readings += [next(source) for _ in range(round(20 * for_s * times) - len(readings))]
        if (found := backlog(readings).verdict) != UNDECIDED:
            return found
    return UNDECIDED


def test_of_500_simulated_backlogs_at_most_one_in_twenty_verdicts_is_false() -> None:
    draw, false, undecided = Random(33), 0, 0
    for n in range(500):
        kind, of_capacity = KINDS[n % len(KINDS)], PARTS_OF_CAPACITY[n // len(KINDS) % len(PARTS_OF_CAPACITY)]
        said = judged(simulated(kind, of_capacity, draw), 15.0)
        undecided += said == UNDECIDED
        false += said == (FALLS_BEHIND if of_capacity < 1 else KEEPS_UP)
    assert false <= 25, f"{false} false, {undecided} undecided"
    assert undecided <= 100, f"{false} false, {undecided} undecided"
