"""What outages come to: the account of a trial, the table, the plot; and what a forecast is compared with."""

from __future__ import annotations

from typing import Any

import pytest
from leadline.engines.postgres.forecast import Capacity, Forecast, Reading
from leadline.study import outages
from leadline.study.design import read
from leadline.study.outage import account, caught_up
from leadline.study.positions import rate_of

MB = 1 << 20


def outage() -> list[Reading]:
    """10 readings a second; 2 MB/s are made. Cut off from 4 s to 14 s, then 5 MB/s are replayed, until all is at 14 + 20 / 3 s."""
    out = []
    for n in range(300):
        at, made = n / 10, n * MB // 5
        replayed = made if at < 4 else 8 * MB if at < 14 else min(made, 8 * MB + (n - 140) * MB // 2)
        out.append(Reading(at, made, made if at < 4 or at >= 14 else 8 * MB, replayed))
    return out


def told(seconds: float | None) -> Forecast:
    return Forecast("s", 11 * MB, 2.0 * MB, Capacity(5.0 * MB, None, None, "backlog", 3.0), "catches up", 4.0, seconds)


def test_what_came_after_an_outage_and_what_was_forecast() -> None:
    readings = outage()
    found = account(readings, 4.0, 14.0, told(11 / 3), 17.0, 2.0 * MB).as_dict()
    assert (found["outage_s"], found["lag_bytes"], found["told_s"], found["can_replay_per_s"]) == (10.0, 20 * MB, 3.0, 5.0 * MB)
    assert found["reached_s"] == pytest.approx(4.0, abs=0.11), "28 MB were made by 14 s"
    assert found["caught_up_s"] == pytest.approx(20 / 3 - 0.4 / 3, abs=0.11), "20 MB at 3 MB/s, less what is made in 0.2 s"
    assert found["forecast_s"] == pytest.approx(3 + 11 / 3)
    assert found["forecast_ratio"] == pytest.approx((11 / 3) / (11 / 3 - 0.4 / 3), abs=0.05)


def test_what_never_came_and_what_was_never_told_have_no_ratio() -> None:
    short = [one for one in outage() if one.at_s < 18]
    for found in (account(short, 4.0, 14.0, told(3.0), 17.0, 2.0 * MB), account(outage(), 4.0, 14.0, told(None), 17.0, 2.0 * MB),
                  account(outage(), 4.0, 14.0, None, 17.0, 2.0 * MB)):  # fmt: skip
        assert found.as_dict()["forecast_ratio"] is None
    assert account(short, 4.0, 14.0, told(3.0), 17.0, 2.0 * MB).caught_up_s is None
    assert account(outage(), 4.0, 14.0, told(3.0), 25.0, 2.0 * MB).as_dict()["forecast_ratio"] is None, "it came before it was told"


def test_nothing_waits_when_all_is_replayed_that_was_made_a_moment_before() -> None:
    behind = [Reading(n / 8, n * MB, n * MB, max(n - 2, 0) * MB) for n in range(40)]
    assert caught_up(behind, 1.0) == 1.25
    assert caught_up([Reading(one.at_s, one.made, one.made, one.replayed - 1) for one in behind], 1.0) is None
    assert caught_up([], 0.0) is None and rate_of([]) == rate_of(behind[:1]) == 0.0


def found(name: str, values: dict[tuple[str, ...], dict[str, list[float]]]) -> dict[str, Any]:
    """As studies.study gives it."""
    study = read(name)
    cells = list(values)
    rows = []
    for metric in [metric.name for metric in study.metrics]:
        for block in range(3):
            of = {study.cell_name(cell): (per.get(metric) or [None] * 3)[block] for cell, per in values.items()}
            rows.append({"metric": metric, "block": block + 1, **of})
    factors = [{"name": one.name, "kind": one.kind, "levels": one.levels} for one in study.factors]
    metrics = [{"name": metric.name} for metric in study.metrics]
    return {"design": {"factors": factors, "cells": cells, "metrics": metrics, "server": study.server}, "judged": {}, "rows": rows}


def test_outages_beside_their_forecasts() -> None:
    values = {(length,): {"seconds to catch up": [s, s + 1, s + 2], "seconds forecast": [s, s, s], "forecast / what came": [0.9, 1.3, 1.0]}
              for length, s in (("10s", 5.0), ("20s", 10.0))}  # fmt: skip
    of = found("outage", values)
    assert [(one.length, one.caught_up_s, one.forecast_s, one.right) for one in outages.outages(of)] == [
        ("10s", 6.0, 5.0, 2), ("20s", 11.0, 10.0, 2),
    ]  # fmt: skip
    text = "\n".join(outages.lines(of))
    assert "4 of 6 forecasts within 20 % of what came" in text and "a loopback pair, replay held to 5% of a CPU" in text
    [heading, plot] = outages.drawn(of)
    assert "loopback pair" in plot and plot.count("<circle") == 2 and plot.count("dasharray") == 1 and "5% of a CPU" in heading
    assert outages.outages(of | {"judged": None}) == []
