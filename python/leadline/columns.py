"""Columns of cells, for every table that leadline prints: what room each needs, which give way where there is little, and the lines.

`output.to_table`, the grids of the views and those of `top` decide which columns give way; all of them measure and lay out with this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from leadline.figures import fit, pad, width_of

GAP = 2  # between columns
NARROWEST = 8  # a column of text is not cut below this; the rows are then printed one value per line

Cell = TypeVar("Cell")
Fit = Callable[[str, int], str]


def as_it_is(text: str, width: int) -> str:
    """In place of `fit` where nothing is cut."""
    return text


def room(least: Sequence[int], rows: Sequence[Sequence[Cell]], size: Callable[[Cell], int]) -> list[int]:
    """What each column needs for all of its cells, and at least `least`."""
    return [max([width, *(size(row[i]) for row in rows)]) for i, width in enumerate(least)]


def room_of_texts(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """What each column needs for its head and all of its cells."""
    return room(list(map(width_of, heads)), rows, width_of)


def excess(widths: Sequence[int], width: int, gap: int = GAP) -> int:
    """By how much columns side by side are wider than `width`; what is left of it is negative."""
    return sum(widths) + gap * (len(widths) - 1) - width


def narrowed(widths: Sequence[int], least: Sequence[int], width: int) -> list[int] | None:
    """The same columns in `width`: the widest gives way, down to its `least`. None when they cannot all fit."""
    widths = list(widths)
    for _ in range(excess(widths, width)):
        wider = [i for i, least_of in enumerate(least) if widths[i] > least_of]
        if not wider:
            return None
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def line(cells: Sequence[str], widths: Sequence[int], at_right: Sequence[bool], fits: Sequence[Fit]) -> str:
    """Cells side by side, each cut by its own of `fits` and filled up to its width."""
    parts = (pad(cut(cell, w), w, right) for cell, w, right, cut in zip(cells, widths, at_right, fits))
    return (" " * GAP).join(parts).rstrip()


def records(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """One value per line."""
    label = max(map(width_of, names))
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(f"-- row {number} ".ljust(width, "-"))
        lines += [f"{pad(name, label)}  {fit(value, max(width - label - GAP, NARROWEST))}".rstrip() for name, value in zip(names, row)]
    return lines
