"""A figure over time as a drawing: SVG without styles or scripts of its own, which the policy of the pages would refuse."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from leadline.server.web.address import link

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 860, 240, 74, 22, 10, 14


def of_points(points: list[dict[str, Any]], is_ratio: bool = False) -> Markup:
    """Points with value, uid, status, in their order; each a link to its run. The scale begins at 0 where values are not negative.

    is_ratio: of experiments, with low and high: drawn with their intervals, around 1.
    """
    if not points:
        return Markup("")
    values = [float(p["value"]) for p in points]
    low, high = min(0.0, *values) if len(values) > 1 else min(0.0, values[0]), max(0.0, max(values))
    if is_ratio:
        ends = [float(p[end]) for p in points for end in ("low", "high") if p.get(end) is not None]
        low, high = min([1.0, *values, *ends]), max([1.0, *values, *ends])
        low, high = max(0.0, low - 0.05 * (high - low)), high + 0.05 * (high - low)
    high = high if high > low else low + 1
    step = (WIDTH - LEFT - RIGHT) / max(len(points) - 1, 1)

    def x(at: int) -> str:
        return f"{LEFT + at * step:.1f}" if len(points) > 1 else f"{(LEFT + WIDTH - RIGHT) / 2:.1f}"

    def y(value: float) -> str:
        return f"{TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low):.1f}"

    out = [
        Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{} values, oldest left, from {} to {}">').format(
            WIDTH, HEIGHT, len(points), _text(min(values)), _text(max(values))
        )
    ]
    if is_ratio:
        out.append(Markup('<line class="one" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y(1), y(1)))
        for at, point in enumerate(points):
            if point.get("low") is not None and point.get("high") is not None:
                low_end, high_end = y(float(point["low"])), y(float(point["high"]))
                out.append(Markup('<line class="interval" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(x(at), x(at), low_end, high_end))
    for value in (low, (low + high) / 2, high):
        out.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y(value), y(value)))
        out.append(
            Markup('<text class="tick" x="{}" y="{}" text-anchor="end" dominant-baseline="middle">{}</text>').format(
                LEFT - 8, y(value), _text(value)
            )
        )
    path = " ".join(f"{'L' if at else 'M'}{x(at)} {y(value)}" for at, value in enumerate(values))
    out.append(Markup('<path class="line" d="{}" fill="none"/>').format(path))
    for at, (point, value) in enumerate(zip(points, values)):
        out.append(
            Markup('<a href="{}/runs/{}"><circle class="dot {}" cx="{}" cy="{}" r="{}"><title>{}: {} ({})</title></circle></a>').format(
                link(),
                point["uid"],
                point["status"],
                x(at),
                y(value),
                4 if len(points) < 120 else 2,
                point["uid"][:5],
                _text(value),
                point.get("verdict") or point["status"],
            )
        )
    return Markup("").join([*out, Markup("</svg>")])


def _text(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.3e}"
