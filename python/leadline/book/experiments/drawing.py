"""Ratios and their intervals as SVG without styles or scripts: how it looks is for the page that holds it, by its classes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 520, 58, 14, 17, 8, 26
WIDE, WIDE_LEFT, WIDE_ROW = 460, 190, 24  # no wider, so that its letters can be read on a phone
LINE, LONGEST_LINE, MOST_LINES = 14, 28, 4  # of a name: two cells may differ in its last words only
MOST_ROWS = 200
LARGEST, SMALLEST = 1e9, 1e-9
APART = 40  # between two ticks


@dataclass(frozen=True)
class Mark:
    """A row. low, high: the ends of its interval. is_part: one pair, and not what all of them say."""

    name: str
    ratio: float
    low: float | None = None
    high: float | None = None
    is_part: bool = False


def drawing(found: Mapping[str, Any]) -> str:
    """Of an experiment (of query.experiment): a row for each pair, the ratio of all with its interval below; empty without ratios."""
    parts = [Mark(str(pair["pair"]), pair["ratio"], is_part=True) for pair in found["pairs"] if pair["ratio"] is not None][:MOST_ROWS]
    if not parts or found["ratio"] is None:
        return ""
    least, most = min(part.ratio for part in parts), max(part.ratio for part in parts)
    said = f"ratios of {len(parts)} pairs from {least:.4g} to {most:.4g}"
    return _svg([*parts, Mark("ratio", found["ratio"], found["low"], found["high"])], found["design"]["margin"], said, "", WIDTH, LEFT, ROW)


def drawings(rows: Sequence[Mapping[str, Any]], design: Mapping[str, Any]) -> list[str]:
    """Of a study: the rows of effects.judge, those of each metric on one axis: what is better for one may be worse for another."""
    out = []
    for metric in design["metrics"]:
        name = metric["name"]
        marks = [Mark(row["level"], row["ratio"], row["low"], row["high"]) for row in rows if row["metric"] == name]
        shown = [mark for mark in marks if mark.ratio is not None and mark.low is not None][:MOST_ROWS]
        if shown:
            out.append(_svg(shown, metric["margin"], f"{name}: ratios to the baseline", name, WIDE, WIDE_LEFT, WIDE_ROW))
    return out


def _svg(marks: Sequence[Mark], margin: float, said: str, title: str, width: int, left: int, row_height: int) -> str:
    """The margin around a line at 1, and the marks on an axis of logarithms, where half as much is as far away as twice as much."""
    ends = [end for mark in marks for end in (mark.low, mark.high) if end is not None]
    values = [*ends, *(mark.ratio for mark in marks), 1 - margin, 1 + margin]
    if min(values) < SMALLEST or max(values) > LARGEST:
        return ""  # no scale has ticks for these
    low, high = math.log(min(values)), math.log(max(values))
    room = 0.06 * (high - low) or 0.01
    low, high, top = low - room, high + room, TOP + 14 * bool(title)
    names = [textwrap.wrap(mark.name, LONGEST_LINE, max_lines=MOST_LINES, placeholder=" …") for mark in marks]
    row_height += LINE * (max(map(len, names)) - 1)
    height = top + row_height * len(marks) + BOTTOM
    bottom = height - BOTTOM

    def at(value: float) -> float:
        return left + (width - left - RIGHT) * (math.log(value) - low) / (high - low)

    def x(value: float) -> str:
        return f"{at(value):.1f}"

    out = [f'<svg viewBox="0 0 {width} {height}" class="ratios" role="img" aria-label="{escape(said)}">']
    out += [f'<text class="tick" x="0" y="12">{escape(title)}</text>'] * bool(title)
    wide = at(1 + margin) - at(1 - margin)
    out.append(f'<rect class="margin" x="{x(1 - margin)}" y="{top}" width="{wide:.1f}" height="{bottom - top}"/>')
    out.append(f'<line class="one" x1="{x(1)}" x2="{x(1)}" y1="{top}" y2="{bottom}"/>')
    for value in _ticks(math.exp(low), math.exp(high), at):
        out.append(f'<text class="tick" x="{x(value)}" y="{height - 8}" text-anchor="middle">{value:.6g}</text>')
    for row, mark in enumerate(marks):
        middle = top + row_height * (row + 0.5)
        y = f"{middle:.1f}"
        for line, name in enumerate(names[row]):
            at_y = f"{middle + LINE * (line - (len(names[row]) - 1) / 2):.1f}"
            out.append(f'<text class="tick" x="{left - 8}" y="{at_y}" text-anchor="end" dominant-baseline="middle">{escape(name)}</text>')
        if mark.low is not None and mark.high is not None:
            out.append(f'<line class="interval" x1="{x(mark.low)}" x2="{x(mark.high)}" y1="{y}" y2="{y}"/>')
        kind, size, of = ("dot", 4, f"pair {mark.name}:") if mark.is_part else ("ratio", 5, "ratio")
        out.append(f'<circle class="{kind}" cx="{x(mark.ratio)}" cy="{y}" r="{size}"><title>{of} {mark.ratio:.4g}</title></circle>')
    return "".join([*out, "</svg>"])


def _ticks(low: float, high: float, at: Any) -> list[float]:
    """1, and on both sides values that have room beside each other."""
    found = [1.0]
    for end, turn in ((low, -1), (high, 1)):
        for value in _steps(end, turn):
            if low <= value <= high and abs(at(value) - at(found[-1])) > APART and abs(at(value) - at(1.0)) > APART:
                found.append(value)
        found.sort(reverse=turn < 0)
    return sorted(found)


def _steps(end: float, turn: int) -> list[float]:
    """From 1 to the end, in steps of 1, 2 or 5 times a power of ten; to an end beyond 10 or a tenth, powers of ten."""
    decades = abs(math.log10(end))
    if decades > 1:
        return [10.0 ** (turn * n) for n in range(1, int(decades) + 1)]
    step = 10.0 ** math.floor(math.log10(max(abs(end - 1), SMALLEST)))
    while abs(end - 1) / step < 2:
        step /= 2.5 if f"{step:e}"[0] == "5" else 2
    return [n * step if turn > 0 and step >= 1 else 1 + turn * n * step for n in range(1, int(abs(end - 1) / step) + 2)]
