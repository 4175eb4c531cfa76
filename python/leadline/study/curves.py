"""Curves as SVG for the report of a study: measured points with their ranges, and a model beside them. How it looks is in its STYLE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 340, 62, 120, 26, 40
TICKS = 6
COLOURS = ("#2563a8", "#c2410c", "#1a7f37", "#9333ea", "#b42318", "#0e7490", "#a16207", "#64748b")


@dataclass(frozen=True)
class Curve:
    """points: x, y, and the ends of its range. model: x and y."""

    name: str
    points: Sequence[tuple[float, float, float, float]]
    model: Sequence[tuple[float, float]] = ()


def curves(title: str, of_x: str, shown: Sequence[Curve]) -> str:
    """Both axes begin at 0. Empty without points."""
    xs = [point[0] for curve in shown for point in (*curve.points, *curve.model)]
    ys = [y for curve in shown for y in (*(point[3] for point in curve.points), *(point[1] for point in (*curve.points, *curve.model)))]
    if not xs or not all(math.isfinite(value) for value in (*xs, *ys)):
        return ""
    most_x, most_y = max(max(xs), 1e-9), 1.05 * max(max(ys), 1e-9)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT

    def x(value: float) -> str:
        return f"{LEFT + (right - LEFT) * value / most_x:.1f}"

    def y(value: float) -> str:
        return f"{bottom - (bottom - TOP) * max(value, 0) / most_y:.1f}"

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">', f'<text x="0" y="14">{escape(title)}</text>']
    out.append(f'<path class="one" fill="none" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    for value in ticks(most_x):
        out.append(f'<text x="{x(value)}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>')
    for value in ticks(most_y):
        out.append(f'<text x="{LEFT - 6}" y="{y(value)}" text-anchor="end" dominant-baseline="middle">{value:g}</text>')
    out.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(of_x)}</text>')
    for number, curve in enumerate(shown):
        colour, name = COLOURS[number % len(COLOURS)], escape(curve.name)
        if len(curve.model) > 1:
            path = " ".join(f"{x(a)},{y(b)}" for a, b in curve.model)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-dasharray="5 4"/>')
        for a, b, low, high in curve.points:
            out.append(f'<line x1="{x(a)}" x2="{x(a)}" y1="{y(low)}" y2="{y(high)}" stroke="{colour}" stroke-width="2"/>')
            out.append(f'<circle cx="{x(a)}" cy="{y(b)}" r="4" style="fill:{colour}"><title>{name}: {b:.4g} at {a:.4g}</title></circle>')
        out.append(f'<text x="{right + 10}" y="{TOP + 18 * number + 10}" style="fill:{colour}">{name}</text>')
    return "".join([*out, "</svg>"])


def ticks(most: float) -> list[float]:
    """Round numbers from 0 on."""
    step = 10 ** math.floor(math.log10(most / TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (step * factor) <= TICKS)
    return [n * step for n in range(int(most / step) + 1)]
