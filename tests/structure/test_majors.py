"""Which majors a run tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from majors import ONE_IN, drawn, split
from servers import MAJORS


class Item:
    """As much of pytest's as a choice needs."""

    def __init__(self, test: str, **params: Any) -> None:
        self.nodeid = f"{test}[{params}]" if params else test
        if params:
            self.callspec = SimpleNamespace(params=params)


@pytest.mark.parametrize(("majors", "most"), [(MAJORS, 3), ((17, 18), 2), ((16, 17, 18), 3), ((14,), 1)])
def test_the_ends_are_drawn_and_of_one_test_in_three_one_between(majors: tuple[int, ...], most: int) -> None:
    draws = [drawn(majors, "test_x", str(seed)) for seed in range(3000)]
    assert all(len(draw) <= most and {min(majors), max(majors)} <= draw <= set(majors) for draw in draws)
    assert set().union(*draws) == set(majors)  # none is never drawn
    with_one_between, wanted = sum(len(draw) == 3 for draw in draws), 3000 / ONE_IN if most == 3 else 0
    assert abs(with_one_between - wanted) < 120
    assert drawn(majors, "test_x", "7") == drawn(reversed(majors), "test_x", "7")


def test_all_cases_of_a_major_are_run_or_none_and_what_has_no_major_is() -> None:
    cases: Any = [Item("test_x", major=major, way=way) for major in MAJORS for way in ("a", "b")]
    others: Any = [Item("test_x_too"), Item("test_y", seed=14), Item("test_y", seed=15), Item("test_z", pg=16)]
    run, left_out = split([*cases, *others])
    assert run[-4:] == others and run[:-4] == [case for case in cases if case not in left_out]
    chosen = {case.callspec.params["major"] for case in run[:-4]}
    assert len(run[:-4]) == 2 * len(chosen) and {MAJORS[0], MAJORS[-1]} <= chosen
