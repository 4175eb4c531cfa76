"""What is unusual for the hour: how often a quiet day is called so, how soon an incident is, and that an incident teaches nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG
from leadline.errors import LeadlineError
from leadline.recorder.incidents import Incident
from leadline.recorder.unusual import BASELINE, FINDINGS, LOGINS, SESSIONS, STEP_S, Unusual, read_baseline, write_baseline
from leadline.recorder.usual import DAYS, FURTHER, HIGH, Usual, class_of, judgement, quantile, value_of

STEPS = 17_280  # of a day
SOME = 6  # of so many steps one is looked at, where days pass: an hour has enough of them
MIDNIGHT = datetime(2026, 3, 2)  # a Monday, by the zone of this host, without a change of its clocks in the days after
TOTAL = SESSIONS.total


def at_ns(step: int) -> int:
    day, of_day = divmod(step, STEPS)
    return round((MIDNIGHT + timedelta(days=day, seconds=of_day * STEP_S)).timestamp() * 1e9)


class Server:
    """Sessions of a made-up server: a rhythm of the day and the week, noise that lasts minutes, single bursts, and sampling."""

    def __init__(self, seed: int, sessions: float, *, noise: float = 0.35, office: bool = False) -> None:
        self.random, self.sessions, self.noise, self.office = random.Random(seed), sessions, noise, office
        self._slow = self._day = 0.0

    def values(self, steps: range) -> Iterator[tuple[int, dict[str, float]]]:
        draw, keeps = self.random.gauss, 0.95  # from one step to the next: a time of 100 s
        for step in steps:
            day, of_day = divmod(step, STEPS)
            if of_day == 0 or not self._day:
                self._day = math.exp(draw(0, 0.15)) * (0.35 if day % 7 >= 5 else 1)
            hour = of_day / 720
            level = self.sessions * self._day * (1 + 0.9 * math.sin((hour - 9) / 12 * math.pi))
            level *= 3 if self.office and 8 <= hour < 18 else 1
            self._slow = keeps * self._slow + math.sqrt(1 - keeps * keeps) * draw(0, 1)
            true = level * math.exp(self.noise * self._slow - self.noise**2 / 2)
            seen = max(0.0, draw(true, math.sqrt(true / STEP_S)))
            seen += 4 * self.sessions + 4 if self.random.random() < 0.0005 else 0  # nine times a day, for five seconds
            yield step, {TOTAL: seen, "waits: IO": seen * 0.3, "on a CPU or queued": seen * 0.7}


def look(unusual: Unusual, state: dict[str, Any], step: int, values: dict[str, float]) -> list[Incident]:
    return unusual.look(state, values, at_ns(step), STEP_S)


LOADS = [(0.5, 0.5, False), (3, 0.35, True), (20, 0.2, False), (3, 0.5, True)]


@pytest.mark.parametrize("seed", range(2) if LONG else range(1))
@pytest.mark.parametrize(("sessions", "noise", "office"), LOADS if LONG else LOADS[1:3])
def test_quiet_days_are_hardly_ever_called_unusual(sessions: float, noise: float, office: bool, seed: int) -> None:
    """At most two false events in thirty days; with LEADLINE_LONG_TESTS=1 in 240 days in all. In the first three, before an hour is
    judged by itself, one a day: a load that triples within seconds, as that of an office at eight, is not known yet.
    """
    days = 30 if LONG else 4
    false = []
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    for step, values in Server(seed, sessions, noise=noise, office=office).values(range(days * STEPS)):
        false += [(step, event) for event in look(unusual, state, step, values) if event.change == "new"]
    later = [event for step, event in false if step >= DAYS * STEPS]
    print(f"{len(false) - len(later)} false events in the first {DAYS} days, {len(later)} in {days - DAYS} later ones")
    assert len(later) <= days // 15, later
    assert len(false) - len(later) <= DAYS, false
    assert len(unusual.known) == 3, "it looked"


def test_the_first_hours_after_each_start_are_quiet_too() -> None:
    """netdata#1175: false alarms at each restart. It begins to judge after a quarter of an hour."""
    false = []
    starts = 200 if LONG else 20
    for start in range(starts):
        unusual, state = Unusual(SESSIONS), dict[str, Any]()
        begin = start * 863
        for step, values in Server(start, 3).values(range(begin, begin + 2160)):
            false += [event for event in look(unusual, state, step, values) if event.change == "new"]
    print(f"{len(false)} false events in the first three hours after {starts} starts")
    assert len(false) <= starts / 20, false


@pytest.mark.parametrize(("sessions", "more"), [(0.3, 4), (3, 12), (20, 60)])
def test_incidents_of_20_s_are_told_within_90_s(sessions: float, more: float) -> None:
    server = Server(3, sessions, noise=0.2)
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    when = [STEPS // 8 + n * STEPS // 20 for n in range(20)]  # 3:00 and 20 times more, each an hour and a quarter later
    during = {begin + n for begin in when for n in range(4)}
    told: dict[int, float] = {}
    for step, values in server.values(range(2 * STEPS)):
        if step in during:
            values |= {"waits: Lock": more, TOTAL: values[TOTAL] + more}
        for event in look(unusual, state, step, values):
            if event.change == "new":
                begin = max(begin for begin in when if begin <= step)
                told[begin] = (step + 1 - begin) * STEP_S
                assert event.subject == "waits: Lock" and event.measured is not None
                assert event.measured["value"] == pytest.approx(more) and event.measured["usual"] == 0
    assert sorted(told) == when and max(told.values()) <= 90
    assert set(told.values()) == {10.0}


def flat(unusual: Unusual, state: dict[str, Any], steps: range, lock: float = 0.0) -> list[Incident]:
    values = {TOTAL: 1.0 + lock, "on a CPU or queued": 1.0} | ({"waits: Lock": lock} if lock else {})
    return [event for step in steps for event in look(unusual, state, step, values)]


def test_it_is_silent_until_a_quarter_of_an_hour_was_seen() -> None:
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    assert flat(unusual, state, range(170)) + flat(unusual, state, range(170, 179), lock=50) == []
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    flat(unusual, state, range(181))
    assert [event.change for event in flat(unusual, state, range(181, 190), lock=50)] == ["new"]


def test_an_incident_of_hours_is_one_event_and_teaches_nothing() -> None:
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    flat(unusual, state, range(0, 4 * STEPS, SOME))
    before = unusual.known["on a CPU or queued"].judge(10, 10), unusual.known[TOTAL].judge(10, 10)
    for day in (4, 5):  # also when it comes again the next day
        begin = day * STEPS + 9 * 720
        events = flat(unusual, state, range(begin, begin + 5 * 720), lock=9)
        assert [event.change for event in events] == ["new"] and state["subject"] == "waits: Lock"
        after = flat(unusual, state, range(begin + 5 * 720, begin + 6 * 720))
        assert [(event.change, event.since) for event in after] == [("over", events[0].since)]
        assert after[0].at == at_ns(begin + 5 * 720 + SESSIONS.quiet - 1)
        flat(unusual, state, range(begin + 6 * 720, begin + STEPS, SOME))
    assert (unusual.known["on a CPU or queued"].judge(10, 10), unusual.known[TOTAL].judge(10, 10)) == before
    assert unusual.known["waits: Lock"].judge(10, 10).limit == SESSIONS.least


def test_an_incident_in_the_first_hour_does_not_become_usual() -> None:
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    flat(unusual, state, range(360))
    assert [event.change for event in flat(unusual, state, range(360, 360 + 6 * 720), lock=9)] == ["new"]


def test_an_incident_before_it_judges_does_not_blind_it() -> None:
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    assert flat(unusual, state, range(100)) + flat(unusual, state, range(100, 104), lock=8) + flat(unusual, state, range(104, 200)) == []
    assert [event.change for event in flat(unusual, state, range(200, 204), lock=8)] == ["new"]


def test_what_stays_for_days_is_the_new_usual() -> None:
    """netdata#12967: a value that stays is not called an anomaly for ever."""
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    flat(unusual, state, range(0, 4 * STEPS, SOME))
    days = [range(day * STEPS, (day + 1) * STEPS, SOME) for day in range(4, 4 + DAYS + 2)]
    changes = [[event.change for event in flat(unusual, state, day, lock=9)] for day in days]
    assert changes == [["new"], [], [], ["over"], []]
    hours = unusual.known["waits: Lock"].hours
    assert all(abs(judgement(hour.counts, 2.0, HIGH, FURTHER).usual - 9) < 1 for hour in hours)


def test_it_is_worse_when_it_is_twice_what_was_said() -> None:
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    flat(unusual, state, range(720))
    changes = [[event.change for event in flat(unusual, state, range(720 + n, 724 + n), lock)] for n, lock in ((0, 5), (4, 9), (8, 11))]
    assert changes == [["new"], [], ["worse"]]


def test_another_part_that_joins_is_told_once() -> None:
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    flat(unusual, state, range(720))
    assert [event.subject for event in flat(unusual, state, range(720, 730), lock=9)] == ["waits: Lock"]
    values = {TOTAL: 15.0, "on a CPU or queued": 1.0, "waits: Lock": 9.0, "waits: Client": 5.0}
    events = [event for step in range(730, 750) for event in look(unusual, state, step, values)]
    assert [(event.change, event.subject) for event in events] == [("worse", "waits: Client")]


def test_one_value_above_the_limit_is_nothing() -> None:
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    flat(unusual, state, range(720))
    for n in range(720, 1400, 4):
        assert flat(unusual, state, range(n, n + 1), lock=50) + flat(unusual, state, range(n + 1, n + 4)) == []


def test_the_total_is_named_where_no_part_is_unusual() -> None:
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    parts = [f"waits: {n}" for n in range(10)]
    for step in range(720):
        look(unusual, state, step, dict.fromkeys(parts, 0.1) | {TOTAL: 1.0})
    events = [event for step in (720, 721) for event in look(unusual, state, step, dict.fromkeys(parts, 1.5) | {TOTAL: 15.0})]
    assert [(event.change, event.subject, event.cost_s) for event in events] == [("new", TOTAL, pytest.approx(140, rel=0.1))]


def test_hours_that_are_close_count_too() -> None:
    """A load that begins at nine may begin ten minutes earlier."""
    unusual, state = Unusual(SESSIONS), dict[str, Any]()
    for day in range(4):
        flat(unusual, state, range(day * STEPS, day * STEPS + 9 * 720, SOME))
        found = flat(unusual, state, range(day * STEPS + 9 * 720, day * STEPS + 10 * 720, SOME), lock=9)
        assert [event.change for event in found] == ["new"] * (day < 3)
        flat(unusual, state, range(day * STEPS + 10 * 720, (day + 1) * STEPS, SOME))
    begin = 4 * STEPS + 9 * 720
    flat(unusual, state, range(4 * STEPS, begin - 240, SOME))
    assert flat(unusual, state, range(begin - 120, begin), lock=9) == []  # ten minutes before
    assert [event.change for event in flat(unusual, state, range(begin - 240, begin - 230), lock=9)] == ["new"]  # twenty


def test_a_rule_that_finds_nothing_most_of_the_time_is_judged_by_its_cost() -> None:
    unusual, state = Unusual(FINDINGS), dict[str, Any]()
    for minute in range(20):
        assert unusual.look(state, {FINDINGS.total: 0.0}, at_ns(minute * 12), 180.0) == []
    values = {FINDINGS.total: 0.9, "cost of BLOCK-CHAIN": 0.9}
    [event] = unusual.look(state, values, at_ns(20 * 12), 180.0)
    assert (event.subject, event.cost_s, event.window_s) == ("cost of BLOCK-CHAIN", pytest.approx(162), 180.0)
    assert event.measured is not None and event.measured["limit"] == 0.2


def test_new_sessions_are_counted_and_cost_no_time() -> None:
    unusual, state = Unusual(LOGINS), dict[str, Any]()
    for step in range(200):
        assert look(unusual, state, step, {LOGINS.total: 0.5}) == []
    events = [event for step in range(200, 203) for event in look(unusual, state, step, {LOGINS.total: 40.0})]
    assert [(event.subject, event.cost_s) for event in events] == [("new sessions", None)]
    assert events[0].statement.startswith("40.0 new sessions a second in the last 10 s; usual at this hour: 0.5")
    over = [event for step in range(203, 220) for event in look(unusual, state, step, {LOGINS.total: 0.5})]
    assert [(event.change, event.cost_s) for event in over] == [("over", None)]


def test_what_was_learned_is_there_after_a_restart(tmp_path: Path) -> None:
    unusual, findings, state = Unusual(SESSIONS), Unusual(FINDINGS), dict[str, Any]()
    for step, values in Server(1, 5).values(range(0, 4 * STEPS, 3)):
        look(unusual, state, step, values)
    write_baseline(tmp_path, [unusual, findings])
    again = [Unusual(SESSIONS), Unusual(FINDINGS)]
    read_baseline(tmp_path, again)
    assert set(again[0].known) == set(unusual.known) == {TOTAL, "waits: IO", "on a CPU or queued"}
    for name, usual in unusual.known.items():
        for hour in range(23):
            expected = usual.judge(hour, hour)
            assert expected.limit is not None
            assert again[0].known[name].judge(hour, hour) == expected
    assert (tmp_path / BASELINE).stat().st_size < 100_000


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format_version": 1, "sessions": {"x": [{"days": 1}]}, "findings": {}}', "\x00"])
def test_a_damaged_baseline_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / BASELINE).write_text(content)
    with pytest.raises(LeadlineError, match="is damaged"):
        read_baseline(tmp_path, [Unusual(SESSIONS), Unusual(FINDINGS)])


def test_classes_and_quantiles() -> None:
    for value in (0.0, 0.05, 0.3, 1.0, 7.0, 500.0):
        assert abs(value_of(class_of(value)) - value) <= 0.05 * value + 0.01
    assert [quantile([(1.0, 1), (2.0, 2), (3.0, 1)], share) for share in (0.1, 0.5, 0.75, 0.99)] == [1.0, 2.0, 2.0, 3.0]
    judged = judgement({0: 98.0, class_of(10.0): 2.0}, 2.0, 0.99, 2.0)
    assert judged.usual == 0 and judged.high == pytest.approx(10, rel=0.05) and judged.limit == pytest.approx((judged.high + 1) ** 2 - 1)
    assert Usual(2.0, 720).judge(3, 3).limit is None
