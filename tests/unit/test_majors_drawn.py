"""Which majors of PostgreSQL a run tests."""

from __future__ import annotations

from majors import ONE_IN, drawn
from servers import MAJORS


def test_the_oldest_and_the_newest_always_and_others_now_and_then() -> None:
    found = [drawn(MAJORS, f"test_{n}", "a seed") for n in range(3000)]
    assert all({MAJORS[0], MAJORS[-1]} <= majors and len(majors) <= 3 for majors in found)
    assert abs(sum(len(majors) == 3 for majors in found) - 3000 / ONE_IN) < 120
    assert set().union(*found) == set(MAJORS)
    assert found == [drawn(MAJORS, f"test_{n}", "a seed") for n in range(3000)]
    assert found != [drawn(MAJORS, f"test_{n}", "another") for n in range(3000)]


def test_few_majors_are_all_there_is() -> None:
    assert drawn([18], "x") == {18} and drawn([13, 18], "x") == {13, 18}
