"""Database time as coloured cells: one bar of the window, and a stacked chart of it over time. Rich texts, for any terminal.

A cell of the chart is two half cells high, so a chart of 6 rows tells 12 levels; a cell of the bar tells eighths.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import groupby

from rich.style import Style
from rich.text import Text

from leadline.figures import EIGHTHS, seconds
from leadline.top.model import Load, Timeline
from leadline.views.wait_classes import rank, wait_class

UPPER, LOWER, FULL = "▀", "▄", "█"
CPU_LINE = "╌"
FAR_BELOW = 4  # the CPU line is left out of a chart whose peak is this many times lower: the chart would be empty
SCALE = 6
Cell = tuple[str, Style | str]  # what is shown, and how
MUTED = "#8b97a4"
LINE = "#dfe5ec"


def load_bar(of: Load, cpu_count: int | None, width: int, *, colours: bool = True) -> Text:
    """Sessions active on average, one colour a class, in a bar whose `|` is the number of CPUs. colours: else one part only."""
    if width < 4:
        return Text("")
    marked = cpu_count is not None and cpu_count > 0
    most = max(of.aas, float(cpu_count or 0), 1e-9) * (1.04 if marked else 1)
    ends: list[tuple[float, str]] = []
    at = 0.0
    for c in sorted(of.classes, key=lambda c: rank(c.wait_class)):
        at += c.seconds / of.observed_s if of.observed_s else 0.0
        ends.append((at / most * width, wait_class(c.wait_class).dark))
    ends = ends if colours else ends[-1:]
    mark = min(width - 1, round(cpu_count / most * width)) if marked and cpu_count is not None else -1
    cells = [_cell(ends, cell) for cell in range(width)]
    if mark >= 0:
        cells[mark] = "│", Style(color=LINE, bgcolor=_at(ends, mark + 0.5)[1])
    return _joined(Text(), cells)


def _joined(text: Text, cells: Iterable[Cell]) -> Text:
    """Adds cells, those of one style at once: each style that begins costs more than many cells."""
    for style, same in groupby(cells, key=lambda cell: cell[1]):
        text.append("".join(shown for shown, _ in same), style or None)
    return text


def _at(ends: list[tuple[float, str]], place: float) -> tuple[float, str | None]:
    """Where the part at this place ends, and its colour."""
    return next((part for part in ends if place < part[0]), (place, None))


def _cell(ends: list[tuple[float, str]], cell: int) -> Cell:
    """One cell: its left colour up to where that ends, in eighths, then what follows."""
    end, left = _at(ends, cell + 1e-9)
    if left is None:
        return " ", ""
    if end >= cell + 1:
        return FULL, _style(left)
    part = max(1, round((end - cell) * 8))
    return EIGHTHS[part], _style(left, _at(ends, cell + 0.999)[1] if part < 8 else None)


@functools.cache
def _style(colour: str, behind: str | None = None) -> Style:
    return Style(color=colour, bgcolor=behind)


def legend(of: Load, width: int) -> Text:
    """The classes in the order of their seconds, as many as fit."""
    text = Text()
    for number, c in enumerate(of.classes):
        aas = c.seconds / of.observed_s if of.observed_s else 0.0
        share = c.seconds / of.db_time_s if of.db_time_s else 0.0
        part = Text.assemble(("■ ", wait_class(c.wait_class).dark), f"{c.wait_class} {figure(aas)}", (f" {share:.0%}", MUTED))
        rest = len(of.classes) - number
        room = width - len(text) - 2 - (len(f"+{rest - 1}") + 2 if rest > 1 else 0)
        if len(part) > room:
            text.append(f"  +{rest}" if len(text) else f"+{rest}", MUTED)
            break
        text.append("  " if number else "")
        text.append_text(part)
    if not of.classes:
        text.append("no session is active" if of.ticks else "waiting for the first samples", MUTED)
    return text


def figure(value: float) -> str:
    """Sessions active on average in at most four characters."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def stacked(timeline: Timeline, cpu_count: int | None, width: int, height: int, *, colours: bool = True) -> list[Text]:
    """The chart, top row first, with a scale at its left. A step that was not seen is empty, with a dot on the ground."""
    plot = max(width - SCALE, 1)
    top, with_line = _top(timeline.peak, cpu_count)
    count = max(len(timeline.steps), 1)
    each = max(plot // count, 1)
    shown = timeline.steps[-(plot // each) :]
    if not colours:
        shown = [{"CPU": sum(step.values())} if step else step for step in shown]
    levels = [_halves(step, top, height * 2) for step in shown]
    unseen = [step is None for step in shown]
    halves = list(zip(*levels)) or [()] * (height * 2)  # of all steps, top first
    line = height * 2 - 1 - min(round(cpu_count / top * height * 2), height * 2 - 1) if with_line and cpu_count else None
    rows = []
    for row in range(height):
        label = ""
        if row == 0:
            label = figure(top)
        if line is not None and row == line // 2:
            label = f"{cpu_count} CPU"
        text = Text(f"{label:>{SCALE - 1}} ", MUTED)
        text.append(" " * max(plot - each * len(shown), 0))
        dashed, lowest = line is not None and row == line // 2, row == height - 1
        for (upper, lower, gap), same in groupby(zip(halves[row * 2], halves[row * 2 + 1], unseen)):
            shown_as, style = _chart_cell(upper, lower, dashed, gap and lowest, each * sum(1 for _ in same))
            text.append(shown_as, style or None)
        rows.append(text)
    return rows


def _top(peak: float, cpu_count: int | None) -> tuple[float, bool]:
    """The value at the top of the scale, and whether the CPU line is inside."""
    if cpu_count and peak * FAR_BELOW >= cpu_count:
        return max(peak, cpu_count * 1.1, 1e-9), True
    return max(peak, 0.05), False


def _halves(step: dict[str, float] | None, top: float, levels: int) -> list[str | None]:
    """The colour of each half cell of one step, top first. A class that is there at all and would vanish gets none: sums count."""
    if not step:
        return [None] * levels
    colours: list[str | None] = []
    at = 0.0
    for name, aas in sorted(step.items(), key=lambda item: rank(item[0])):
        before = round(at / top * levels)
        at += aas
        colours += [wait_class(name).dark] * (round(at / top * levels) - before)
    if not colours and at > 0:
        colours = [wait_class(max(step, key=lambda name: step[name])).dark]  # little, but not nothing
    colours = colours[:levels]
    return [None] * (levels - len(colours)) + colours[::-1]


def _chart_cell(upper: str | None, lower: str | None, dashed: bool, unseen: bool, width: int) -> Cell:
    if unseen:
        return "·" * width, MUTED
    if dashed and upper is None and lower is None:
        return CPU_LINE * width, LINE
    if dashed and upper is not None and upper == lower:
        return CPU_LINE * width, _style(LINE, upper)
    if upper is None:
        return (" " * width, "") if lower is None else (LOWER * width, _style(lower))
    if lower is None or upper == lower:
        return (UPPER if lower is None else FULL) * width, _style(upper)
    return UPPER * width, _style(upper, lower)


def time_axis(timeline: Timeline, width: int) -> Text:
    """How far back the chart goes."""
    span = f"-{seconds(len(timeline.steps) * timeline.step_s)} s"
    return Text(f"{'':{SCALE}}{span}{'now':>{max(width - SCALE - len(span), 4)}}", MUTED)
