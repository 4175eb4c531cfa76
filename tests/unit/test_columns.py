"""Columns: measured by what people see, narrowed where they must be, and laid side by side."""

from __future__ import annotations

import pytest
from leadline.columns import as_it_is, excess, line, narrowed, room, room_of_texts
from leadline.figures import fit


def test_a_column_needs_room_for_its_head_and_for_all_cells() -> None:
    assert room_of_texts(["id", "name"], [["1", "日本"], ["1000", ""]]) == [4, 4]
    assert room_of_texts(["id"], []) == [2]
    assert room([3, 0], [["ab", "c"]], len) == [3, 1]


@pytest.mark.parametrize(("width", "over"), [(12, 0), (10, 2), (20, -8)])
def test_gaps_count(width: int, over: int) -> None:
    assert excess([4, 6], width) == over


def test_the_widest_gives_way_first_and_none_below_its_least() -> None:
    assert narrowed([10, 20, 5], [8, 8, 5], 39) == [10, 20, 5]
    assert narrowed([10, 20, 5], [8, 8, 5], 29) == [10, 10, 5]
    assert narrowed([10, 20, 5], [8, 8, 5], 25) == [8, 8, 5]
    assert narrowed([10, 20, 5], [8, 8, 5], 24) is None


def test_each_cell_is_cut_in_its_own_way_and_a_line_ends_without_blanks() -> None:
    assert line(["abcdef", "12", "x"], [4, 4, 3], [False, True, False], [fit, as_it_is, fit]) == "abc…    12  x"
