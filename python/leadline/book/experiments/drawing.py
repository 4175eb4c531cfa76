"""The ratios of the pairs as SVG without styles or scripts: how it looks is for the page that holds it, by its classes."""

from __future__ import annotations

from typing import Any

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 520, 58, 14, 17, 8, 26
MOST_ROWS = 200
LARGEST, SMALLEST = 1e9, 1e-9


def drawing(found: dict[str, Any]) -> str:
    """A row for each pair with its ratio, the interval below them, a line at 1 and the margin around it; empty without ratios."""
    pairs = [pair for pair in found["pairs"] if pair["ratio"] is not None][:MOST_ROWS]
    if not pairs or found["ratio"] is None:
        return ""
    margin, ends = found["design"]["margin"], [end for end in (found["low"], found["high"]) if end is not None]
    values = [pair["ratio"] for pair in pairs] + ends + [found["ratio"], 1 - margin, 1 + margin]
    room = 0.06 * (max(values) - min(values)) or 0.01
    low, high = min(values) - room, max(values) + room
    if max(map(abs, values)) > LARGEST or room < SMALLEST:
        return ""  # no scale has ticks for these
    height = TOP + ROW * (len(pairs) + 1) + BOTTOM

    def x(value: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low):.1f}"

    def y(row: int) -> str:
        return f"{TOP + ROW * (row + 0.5):.1f}"

    bottom = height - BOTTOM
    said = f"ratios of {len(pairs)} pairs from {min(p['ratio'] for p in pairs):.4g} to {max(p['ratio'] for p in pairs):.4g}"
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{said}">']
    wide = float(x(1 + margin)) - float(x(1 - margin))
    out.append(f'<rect class="margin" x="{x(1 - margin)}" y="{TOP}" width="{wide:.1f}" height="{bottom - TOP}"/>')
    out.append(f'<line class="one" x1="{x(1)}" x2="{x(1)}" y1="{TOP}" y2="{bottom}"/>')
    for value, text in _ticks(low, high):
        out.append(f'<text class="tick" x="{x(value)}" y="{height - 8}" text-anchor="middle">{text}</text>')
    for row, pair in enumerate(pairs):
        out.append(f'<text class="tick" x="{LEFT - 8}" y="{y(row)}" text-anchor="end" dominant-baseline="middle">{pair["pair"]}</text>')
        title = f"pair {pair['pair']}: {pair['ratio']:.4g}"
        out.append(f'<circle class="dot" cx="{x(pair["ratio"])}" cy="{y(row)}" r="4"><title>{title}</title></circle>')
    row = len(pairs)
    out.append(f'<text class="tick" x="{LEFT - 8}" y="{y(row)}" text-anchor="end" dominant-baseline="middle">ratio</text>')
    if found["low"] is not None and found["high"] is not None:
        out.append(f'<line class="interval" x1="{x(found["low"])}" x2="{x(found["high"])}" y1="{y(row)}" y2="{y(row)}"/>')
    out.append(f'<circle class="ratio" cx="{x(found["ratio"])}" cy="{y(row)}" r="5"><title>ratio {found["ratio"]:.4g}</title></circle>')
    return "".join([*out, "</svg>"])


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """About five values in steps of 1, 2 or 5 times a power of ten."""
    step = 10.0 ** len(f"{int(high - low)}") if high - low >= 1 else 1.0
    while (high - low) / step < 4:
        step /= 2.5 if f"{step:e}"[0] == "5" else 2
    first = int(low / step) + (low > 0)
    return [(at * step, f"{at * step:.6g}") for at in range(first, int(high / step) + 1)]
