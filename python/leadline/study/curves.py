"""Curves as SVG for the report of a study: measured points with their ranges, and a model beside them. How it looks is in its STYLE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 300, 56, 110, 26, 40
LOW = 200  # the height of a plot over time
ROW, NAMES = 24, 130  # of bars: their height, and the width of what they are called
TICKS = 6
COLOURS = ("#2563a8", "#c2410c", "#1a7f37", "#9333ea", "#b42318", "#0e7490", "#a16207", "#64748b")


@dataclass(frozen=True)
class Curve:
    """points: x, y, and the ends of its range. model: x and y, dashed. over_time: x and y, as a line."""

    name: str
    points: Sequence[tuple[float, float, float, float]] = ()
    model: Sequence[tuple[float, float]] = ()
    over_time: Sequence[tuple[float, float]] = ()


def curves(title: str, of_x: str, shown: Sequence[Curve], height: int = HEIGHT) -> str:
    """Both axes begin at 0. Empty without points."""
    every = [point for curve in shown for point in (*curve.points, *curve.model, *curve.over_time)]
    xs = [point[0] for point in every]
    ys = [*(point[1] for point in every), *(point[3] for curve in shown for point in curve.points)]
    if not xs or not all(math.isfinite(value) for value in (*xs, *ys)):
        return ""
    most_x, most_y = max(max(xs), 1e-9), 1.05 * max(max(ys), 1e-9)
    bottom, right = height - BOTTOM, WIDTH - RIGHT

    def x(value: float) -> str:
        return f"{LEFT + (right - LEFT) * value / most_x:.1f}"

    def y(value: float) -> str:
        return f"{bottom - (bottom - TOP) * max(value, 0) / most_y:.1f}"

    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">', f'<text x="0" y="14">{escape(title)}</text>']
    out.append(f'<path class="one" fill="none" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    for value in ticks(most_x):
        out.append(f'<text x="{x(value)}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>')
    for value in ticks(most_y):
        out.append(f'<text x="{LEFT - 6}" y="{y(value)}" text-anchor="end" dominant-baseline="middle">{value:g}</text>')
    out.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{height - 6}" text-anchor="middle">{escape(of_x)}</text>')
    for number, curve in enumerate(shown):
        colour, name = COLOURS[number % len(COLOURS)], escape(curve.name)
        for line, dashes in ((curve.model, ' stroke-dasharray="5 4"'), (curve.over_time, "")):
            if len(line) > 1:
                path = " ".join(f"{x(a)},{y(b)}" for a, b in line)
                out.append(f'<polyline points="{path}" fill="none" stroke="{colour}"{dashes}/>')
        for a, b, low, high in curve.points:
            out.append(f'<line x1="{x(a)}" x2="{x(a)}" y1="{y(low)}" y2="{y(high)}" stroke="{colour}" stroke-width="2"/>')
            out.append(f'<circle cx="{x(a)}" cy="{y(b)}" r="4" style="fill:{colour}"><title>{name}: {b:.4g} at {a:.4g}</title></circle>')
        out.append(f'<text x="{right + 10}" y="{TOP + 18 * number + 10}" style="fill:{colour}">{name}</text>')
    return "".join([*out, "</svg>"])


@dataclass(frozen=True)
class Bar:
    """low, high: the ends of its range, where it has one."""

    name: str
    value: float
    low: float = 0.0
    high: float = 0.0


def bars(title: str, shown: Sequence[Bar]) -> str:
    """One below the other, from 0 on. Empty without any."""
    ends = [end for bar in shown for end in (bar.value, bar.high)]
    if not shown or not all(math.isfinite(end) for end in ends):
        return ""
    most, height, right = max(*ends, 1e-9), TOP + ROW * len(shown) + BOTTOM // 2, WIDTH - 20

    def x(value: float) -> str:
        return f"{NAMES + (right - NAMES) * max(value, 0) / most:.1f}"

    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">', f'<text x="0" y="14">{escape(title)}</text>']
    for value in ticks(most):
        out.append(f'<text x="{x(value)}" y="{height - 4}" text-anchor="middle">{value:g}</text>')
    for number, bar in enumerate(shown):
        top, middle = TOP + ROW * number + 4, f"{TOP + ROW * (number + 0.5):.0f}"
        out.append(f'<text x="{NAMES - 8}" y="{middle}" text-anchor="end" dominant-baseline="middle">{escape(bar.name)}</text>')
        bar_of = f'<rect x="{NAMES}" y="{top}" width="{float(x(bar.value)) - NAMES:.1f}" height="{ROW - 8}" fill="{COLOURS[0]}">'
        out.append(f"{bar_of}<title>{bar.value:.4g}</title></rect>")
        if bar.high > bar.low:
            out.append(f'<line class="one" x1="{x(bar.low)}" x2="{x(bar.high)}" y1="{middle}" y2="{middle}" stroke-width="2"/>')
    return "".join([*out, "</svg>"])


def ticks(most: float) -> list[float]:
    """Round numbers from 0 on."""
    step = 10 ** math.floor(math.log10(most / TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (step * factor) <= TICKS)
    return [n * step for n in range(int(most / step) + 1)]
