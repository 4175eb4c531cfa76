"""Latency against the round trip: slopes, what the model predicts, the parts of a commit, and the plot."""

from __future__ import annotations

import re

import pytest
from leadline.study.curves import Curve, curves, ticks
from leadline.study.round_trips import Mode, OfTrip, drawn, lines, mode_of, parts

TRIPS = {"0": 0.02, "5ms": 5.0, "20ms": 20.0}


def mode(name: str, base: float, per_ms: float, noise: float = 0.0) -> Mode:
    trips = [OfTrip(asked, x, {block: base + per_ms * x + noise * (block - 2) for block in range(5)}) for asked, x in TRIPS.items()]
    return mode_of(f"synchronous_commit={name}", "p50 ms", trips[::-1], name not in ("off", "local"))


MODES = [mode(name, base, per_ms) for name, base, per_ms in (
    ("local", 1.0, 0.0), ("off", 0.25, 0.0), ("remote_write", 1.5, 1.0), ("on", 2.5, 1.0), ("remote_apply", 2.75, 1.0)
)]  # fmt: skip


def test_modes_that_wait_have_the_round_trip_once_and_others_never() -> None:
    assert [round(one.slope or 0, 9) for one in MODES] == [0, 0, 1, 1, 1]
    assert [one.verdict for one in MODES] == ["none", "none", "one round trip", "one round trip", "one round trip"]
    assert mode("on", 1.0, 2.0).verdict == mode("on", 1.0, 0.5).verdict == "unclear"
    assert [point.asked for point in MODES[2].points] == ["0", "5ms", "20ms"], "in order, however they came"


def test_the_model_comes_from_the_least_round_trip_alone() -> None:
    assert [point.predicted for point in MODES[0].points] == [None, 1.0, 1.0]
    assert MODES[3].points[0].predicted is None and MODES[3].points[2].predicted == pytest.approx(22.5)
    half = mode("on", 2.0, 0.5).points[2]
    assert half.predicted == pytest.approx(2.01 + 19.98) and half.error == pytest.approx(21.99 / 12.0 - 1)


def test_the_interval_is_over_blocks_and_one_block_has_none() -> None:
    tilted = [OfTrip(asked, x, {block: x * (0.9 + block / 20) for block in range(5)}) for asked, x in TRIPS.items()]
    found = mode_of("m", "p50 ms", tilted, True)
    assert found.slope == pytest.approx(1.0) and found.low is not None and found.high is not None
    assert found.low == pytest.approx(0.9, abs=0.03) and found.high == pytest.approx(1.1, abs=0.03)
    once = mode_of("m", "p50 ms", [OfTrip("0", 0.0, {0: 1.0}), OfTrip("5ms", 5.0, {0: 6.0})], True)
    assert (once.slope, once.low, once.verdict) == (1.0, None, "not known")
    alone = mode_of("m", "p50 ms", [OfTrip("0", 0.0, {0: 1.0, 1: 2.0})], True)
    assert alone.slope is None and alone.verdict == "not known"


def test_parts_of_a_commit_are_what_each_mode_takes_more() -> None:
    assert [(what, round(ms, 6)) for what, ms in parts(MODES)] == [
        ("without any wait", 0.25), ("flush on the primary", 0.75), ("the way to the standby and back, and its write", 0.52),
        ("flush on the standby", 1.0), ("replay", 0.25),
    ]  # fmt: skip
    assert parts(MODES[1:]) == [] and parts([]) == []


def test_what_is_said_names_the_pair_for_what_it_is() -> None:
    text = "\n".join(lines(MODES))
    assert "a loopback pair: both servers share the CPUs, the disk and the page cache of this host" in text
    assert re.search(r"synchronous_commit=on +p50 ms +2.52 +7.5 +22.5 +1.000 \(1.000 to 1.000\) +one round trip", text)
    assert re.search(r"synchronous_commit=local +p50 ms +20ms +1 +1 +\+0.0 %", text)
    assert lines([]) == drawn([]) == []
    heading, plot = drawn(MODES)
    assert "On a loopback pair" in heading and "loopback pair" in plot and plot.count("<circle") == 15 and plot.count("dasharray") == 5


def test_curves_lie_within_their_axes() -> None:
    text = curves("<p50>", "ms", [Curve("a&b", [(0.0, 1.0, 0.5, 2.0), (20.0, 21.0, 20.0, 25.0)], [(0.0, 1.0), (20.0, 21.0)])])
    assert "<p50>" not in text and "a&amp;b" in text
    for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text):
        assert 56 <= float(x) <= 410 and 26 <= float(y) <= 260
    assert curves("", "", []) == curves("", "", [Curve("a", [(0.0, float("nan"), 0.0, 0.0)])]) == ""
    assert ticks(20.0) == [0, 5, 10, 15, 20] and ticks(1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0]) and len(ticks(0.03)) <= 7
