"""Which majors a run tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from majors import drawn, split
from servers import MAJORS


class Item:
    """As much of pytest's as a choice needs."""

    def __init__(self, test: str, **params: Any) -> None:
        self.nodeid = f"{test}[{params}]" if params else test
        if params:
            self.callspec = SimpleNamespace(params=params)


@pytest.mark.parametrize(("majors", "least"), [(MAJORS, 3), ((17, 18), 2), ((16, 17, 18), 3), ((14,), 1)])
def test_the_ends_and_one_between_are_drawn(majors: tuple[int, ...], least: int) -> None:
    draws = [drawn(majors, "test_x", str(seed)) for seed in range(100)]
    assert all(len(draw) == least and {min(majors), max(majors)} <= draw <= set(majors) for draw in draws)
    assert set().union(*draws) == set(majors)  # none is never drawn
    assert drawn(majors, "test_x", "7") == drawn(reversed(majors), "test_x", "7")


def test_all_cases_of_a_major_are_run_or_none_and_what_has_no_major_is() -> None:
    cases: Any = [Item("test_x", major=major, way=way) for major in MAJORS for way in ("a", "b")]
    others: Any = [Item("test_x_too"), Item("test_y", seed=14), Item("test_y", seed=15), Item("test_z", pg=16)]
    run, left_out = split([*cases, *others])
    assert run[-4:] == others and run[:-4] == [case for case in cases if case not in left_out]
    assert len(run[:-4]) == 6 and len({case.callspec.params["major"] for case in run[:-4]}) == 3
