"""What is new, worse or over: each once, however a value goes to and fro around its threshold."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import open_capture
from leadline.findings import evaluate
from leadline.recorder import still
from leadline.recorder.incidents import BEGINS, MOST, OVER, SEVERITIES, Incident, changes
from leadline.recorder.moments import Moment
from leadline.recorder.pieces import Pieces
from leadline.recorder.watch import AGAIN_WINDOW_S, WINDOW_S, Costs, Watch
from leadline.recorder.window import take_window
from recorded_pieces import WALL_0, as_piece, small_piece


def finding(severity: str = "medium", cost_s: float | None = 10.0, subject: str = "table t", rule: str = "A-RULE") -> dict[str, Any]:
    return {"id": rule, "subject": subject, "severity": severity, "cost_s": cost_s, "statement": f"{cost_s} s were lost"}


def told(*minutes: list[dict[str, Any]], window_s: float = 180) -> list[list[Incident]]:
    """The events of each evaluation, one a minute."""
    known: dict[str, dict[str, Any]] = {}
    found = []
    for minute, findings in enumerate(minutes):
        known, events, _ = changes(known, findings, minute, window_s)
        found.append(events)
    return found


def kinds(*minutes: list[dict[str, Any]]) -> list[str]:
    return [f"{event.at} {event.change}" for events in told(*minutes) for event in events]


def test_it_is_new_once_and_over_once() -> None:
    assert kinds([], [finding()], [finding()], *[[]] * (OVER + 3)) == ["1 new", f"{2 + OVER} over"]


def test_a_value_around_its_threshold_is_one_event() -> None:
    """netdata#945, grafana#6202: an event each time it was crossed."""
    assert kinds(*[[finding()], []] * 50) == ["0 new"]
    assert kinds(*[[finding("medium")], [finding("low")]] * 50) == ["0 new"]
    assert kinds(*[[finding("high")], [finding("medium")]] * 50) == ["0 new"]
    assert kinds(*[[finding(cost_s=10)], [finding(cost_s=19)]] * 50) == ["0 new"]


def test_it_stays_the_same_one_until_the_last_of_so_many_evaluations() -> None:
    assert kinds([finding()], *[[]] * (OVER - 1), [finding()]) == ["0 new"]
    assert kinds([finding()], *[[]] * OVER, [finding()]) == ["0 new", f"{OVER} over", f"{OVER + 1} new"]


def test_worse_is_a_higher_severity_or_twice_the_cost_above_all_that_was_said() -> None:
    assert kinds([finding("medium")], [finding("high")], [finding("medium")], [finding("high")], [finding("critical")]) == [
        "0 new", "1 worse", "4 worse",
    ]  # fmt: skip
    assert kinds([finding(cost_s=10)], [finding(cost_s=20)], [finding(cost_s=39)], [finding(cost_s=40)]) == ["0 new", "1 worse", "3 worse"]
    assert kinds([finding(cost_s=None)], [finding(cost_s=None)]) == ["0 new"]


def test_a_longer_window_is_not_worse() -> None:
    known, first, _ = changes({}, [finding(cost_s=10)], 0, 60)
    assert [event.change for event in first] == ["new"] and changes(known, [finding(cost_s=29)], 1, 180)[1] == []


def test_what_is_less_than_medium_does_not_begin() -> None:
    assert kinds([finding("low")], [finding("info")]) == []
    assert kinds([finding("low")], [finding("medium")]) == ["1 new"]


def test_an_event_says_what_it_is_about() -> None:
    ((event,),) = told([finding("high", 12.3456)])
    assert event == Incident("new", 0, 0, "A-RULE", "table t", "high", 12.346, 180, "12.3456 s were lost")
    *_, (over,) = told([finding("high", 12.3456)], *[[]] * OVER)
    assert (over.change, over.since, over.at, over.severity, over.subject) == ("over", 0, OVER, "high", "table t")


@pytest.mark.parametrize("many", [MOST, MOST + 7])
def test_a_storm_is_cut_and_counted(many: int) -> None:
    known, events, untold = changes({}, [finding(subject=f"pid {n}") for n in range(many)], 0, 180)
    assert (len(events), untold, len(known)) == (MOST, many - MOST, MOST)


class Slow:
    """A process of the recorder that ends when the test says so."""

    def __init__(self, _module: str, arguments: Sequence[str]) -> None:
        self.arguments, self.answer, self.killed = list(arguments), None, False
        ALL.append(self)

    def result(self) -> dict[str, Any] | None:
        return self.answer

    def end(self) -> None:
        self.killed = True


ALL: list[Any] = []


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    monkeypatch.setenv("LEADLINE_BOOK", "off")
    ALL.clear()
    return Watch(tmp_path, 60, Slow)  # type: ignore[arg-type]


def at(second: float) -> Moment:
    return Moment(round(1e18 + second * 1e9), round((1000 + second) * 1e9), "boot")


def test_a_late_evaluation_is_skipped_and_counted_and_one_that_hangs_is_ended(watch: Watch) -> None:
    state: dict[str, Any] = {}
    for second in range(0, 260, 10):
        watch.look(state, at(second), [], "running")
    assert [child.killed for child in ALL] == [True] and state == {"skipped": 3, "failed": 1}
    watch.look(state, at(301), [], "running")
    assert len(ALL) == 2 and ALL[1].arguments[1:] == ["180.0", "running"]
    watch.end()
    assert ALL[1].killed


def test_one_that_is_asked_for_begins_with_the_next_look_and_once_more_soon(watch: Watch) -> None:
    state: dict[str, Any] = {}
    begun = []
    for second in range(0, 240, 10):
        if second == 90:
            watch.soon()
        before = len(ALL)
        watch.look(state, at(second), [], "running")
        if len(ALL) > before:
            begun.append(second)
            ALL[-1].answer = {"window_s": 180.0, "findings": []}
    assert begun == [60, 90, 120, 180]
    assert [child.arguments[1] for child in ALL] == ["180.0", "180.0", "60.0", "180.0"], "what comes soon after is of the last minute"


def test_a_second_look_that_comes_too_early_is_skipped_and_the_next_is_of_three_minutes(watch: Watch) -> None:
    state: dict[str, Any] = {}
    watch.look(state, at(0), [], "running")
    watch.soon()
    watch.look(state, at(10), [], "running")
    for second in (40, 99):
        watch.look(state, at(second), [], "running")
    ALL[-1].answer = {"window_s": 180.0, "findings": []}
    watch.look(state, at(100), [], "running")
    assert [child.arguments[1] for child in ALL] == ["180.0", "180.0"] and state["skipped"] == 1


def test_what_a_second_look_costs_is_not_compared_with_what_is_usual(watch: Watch) -> None:
    """What is usual was learned of windows of three minutes: in one minute the same trouble costs three times as much a second."""
    watch.look({}, at(0), [], "running")
    watch.soon()
    costs = []
    for second in (10, 20, 40, 50):
        watch.look({}, at(second), [], "running")
        ALL[-1].answer = {"window_s": 60.0, "findings": [finding(cost_s=30.0)]}
        costs.append(watch.costs())
    assert costs == [None, Costs(60.0, {"A-RULE": 0.5}), None, None] and len(ALL) == 2


def load_of_three_minutes(folder: Path, number: int, *, incidents: bool) -> Path:
    """A directory with one piece: four sessions that work, and one that waits for its client for some seconds now and then. incidents:
    eight wait for a lock in the first minute, and two for their clients in the last.
    """
    cap, rng = SyntheticCapture(folder, seconds=180, rate_hz=20), random.Random(number)
    for _ in range(4):
        cap.sample(cap.add_session(), "active", None, 0, 180)
    export, begin = cap.add_session(application_name="export"), rng.uniform(0, 30)
    while begin < 180:
        cap.sample(export, "active", "Client:ClientWrite", begin, min(begin + rng.uniform(0.5, 5), 180))
        begin += rng.uniform(20, 60)
    if incidents:
        for _ in range(8):
            cap.sample(cap.add_session(), "active", "Lock:relation", 20, 40)
        for pid in (7001, 7002):
            cap.sample(cap.add_session(pid=pid, application_name="csv"), "active", "Client:ClientWrite", 140, 160)
    as_piece(cap, folder / "rec", 1, 0)
    return folder / "rec"


def begins(directory: Path, seconds: float, out: Path) -> set[tuple[str, str]]:
    """Rules and subjects of what would be new after an evaluation of the last seconds."""
    end = datetime.fromtimestamp(WALL_0 / 1e9, UTC) + timedelta(seconds=180)
    with closing(open_capture(take_window(directory, end - timedelta(seconds=seconds), end, out), hold=True)) as capture:
        return {(found.id, found.subject) for found in evaluate(capture).findings if found.severity in SEVERITIES[BEGINS:]}


def test_an_incident_some_minutes_before_does_not_hide_another_one_from_the_second_look(tmp_path: Path) -> None:
    directory = load_of_three_minutes(tmp_path, 0, incidents=True)
    slow = ("SLOW-CLIENT", "application csv from local")
    assert slow not in begins(directory, WINDOW_S, tmp_path / "first")
    assert slow in begins(directory, AGAIN_WINDOW_S, tmp_path / "second")


@pytest.mark.parametrize("number", range(40) if LONG else range(3))
def test_a_second_look_tells_no_more_of_a_quiet_load_than_the_first(tmp_path: Path, number: int) -> None:
    directory = load_of_three_minutes(tmp_path, number, incidents=False)
    assert begins(directory, AGAIN_WINDOW_S, tmp_path / "second") <= begins(directory, WINDOW_S, tmp_path / "first")


def test_what_each_rule_has_cost_is_given_once(watch: Watch) -> None:
    for second, costs in ((0, None), (60, None), (70, Costs(180.0, {"A-RULE": 0.25, "B-RULE": 0.0}))):
        watch.look({}, at(second), [], "running")
        assert watch.costs() == costs
        if ALL:
            found = [finding("low", 30.0), finding(cost_s=15.0, subject="u"), finding("info", None, rule="B-RULE")]
            ALL[-1].answer = {"window_s": 180.0, "findings": found}
    assert watch.costs() is None


def test_only_pieces_that_may_have_the_window_are_read(watch: Watch, tmp_path: Path) -> None:
    wall = at(0).wall_ns
    for number, ended in enumerate((-1000, -200, -100)):
        small_piece(tmp_path, number + 1, wall + (ended - 100) * 10**9, 100)
    known = Pieces(tmp_path).read()
    watch.look({}, at(0), known, "running")
    watch.look({}, at(60), known, "running")
    assert ALL[0].arguments == [str(tmp_path), "180.0", known[2].name, "running"]


def test_what_an_evaluation_found_is_written_once(watch: Watch, tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    for minute in range(4):
        watch.look(state, at(60 * minute), [], "running")
        if ALL:
            ALL[-1].answer = {"window_s": 180.0, "findings": [finding("high", 30.0)], "cpu_s": 1.5, "lasted_s": 2.5}
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(line["change"], line["id"], line["subject"], line["cost_s"]) for line in lines] == [("new", "A-RULE", "table t", 30.0)]
    assert (state["evaluated"], state["cpu_s"], state["longest_s"]) == (2, 3.0, 2.5) and state["events"] == lines
    ALL[-1].answer = {"error": {"message": "no room"}, "cpu_s": 1.0, "lasted_s": 1.0}
    watch.look(state, at(241), [], "running")
    assert (state["failed"], state["last_error"]) == (1, "no room") and len(state["open"]) == 1, "what is not known is not over"


def test_nothing_is_evaluated_while_nothing_is_recorded(watch: Watch) -> None:
    state: dict[str, Any] = {}
    for minute in range(5):
        watch.look(state, at(60 * minute), [], "")
    assert ALL == [] and state == {}


def test_a_segment_that_is_written_anew_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = tmp_path / "000001.parquet"
    segment.write_bytes(b"old")
    stats: list[Any] = []
    real = os.fstat

    def fstat(fd: int) -> os.stat_result:
        stats.append(real(fd))
        if len(stats) == 1:  # between the look before and the read
            segment.write_bytes(b"newer")
        return real(fd) if len(stats) > 1 else stats[0]

    monkeypatch.setattr(still.os, "fstat", fstat)
    assert still._read(segment) == b"newer" and len(stats) == 4
