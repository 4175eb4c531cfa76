"""A flame graph as one SVG file: no script from elsewhere, opens offline, zooms on a click and searches."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from xml.sax.saxutils import escape, quoteattr

from leadline.figures import percent, quantity, seconds
from leadline.views.flame import Folded

WIDTH, ROW, TOP, SIDE = 1200, 17, 62, 10
# Narrower than this, in parts of the whole, nothing is seen.
NARROWEST = 0.0003


@dataclass
class _Node:
    weight: int = 0
    below: dict[str, _Node] = field(default_factory=dict)


def flame_svg(paths: Folded, title: str, subtitle: str, unit: str) -> str:
    """The SVG text. Widths are shares of the sum of all weights; the root is at the bottom; unit: of the weights, ns or calls."""
    root = _Node()
    for path, weight in paths.items():
        node = root
        node.weight += weight
        for name in path:
            node = node.below.setdefault(name, _Node())
            node.weight += weight
    whole = root.weight
    boxes = list(_boxes(root, "all", 0, 0, whole))
    depth = max(level for level, *_ in boxes) + 1
    height = TOP + depth * ROW + 26
    style, code = (files("leadline.views").joinpath(name).read_text(encoding="utf-8") for name in ("flame.css", "flame.js"))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="100%" data-width="{WIDTH - 2 * SIDE}"'
        f' preserveAspectRatio="xMidYMin" role="img" aria-label={quoteattr(title)}>',
        f"<style>{style}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{SIDE}" y="26">{escape(title)}</text>',
        f'<text class="soft" x="{SIDE}" y="46">{escape(subtitle)}</text>',
        f'<text id="found" class="soft" x="{WIDTH - SIDE}" y="46" text-anchor="end"></text>',
        f'<text id="search" class="link" x="{WIDTH - SIDE}" y="26" text-anchor="end">search</text>',
        f'<text id="reset" class="link" x="{WIDTH - SIDE - 70}" y="26" text-anchor="end" visibility="hidden">show all</text>',
        '<g id="boxes">',
    ]
    for level, name, begin, weight in boxes:
        x, wide = SIDE + (WIDTH - 2 * SIDE) * begin / whole, (WIDTH - 2 * SIDE) * weight / whole
        y = TOP + (depth - 1 - level) * ROW
        told = f"{name}: {_amount(weight, unit)}, {percent(weight / whole)}"
        lines.append(
            f'<g data-x="{begin / whole:.6f}" data-w="{weight / whole:.6f}" data-l="{level}" data-n={quoteattr(name)}>'
            f'<title>{escape(told)}</title><rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{ROW - 1}" fill="{_colour(name)}"/>'
            f'<text x="{x + 3:.2f}" y="{y + 12}">{escape(_fit(name, wide))}</text></g>'
        )
    lines += ["</g>", f'<text id="told" class="soft" x="{SIDE}" y="{height - 9}"></text>', f"<script><![CDATA[{code}]]></script>", "</svg>"]
    return "\n".join(lines) + "\n"


def _boxes(node: _Node, name: str, level: int, begin: int, whole: int) -> Iterator[tuple[int, str, int, int]]:
    """(level, name, begin, weight); without recursion, since stacks may be deep."""
    stack = [(node, name, level, begin)]
    while stack:
        node, name, level, begin = stack.pop()
        if node.weight < NARROWEST * whole:
            continue
        yield level, name, begin, node.weight
        for below, child in sorted(node.below.items()):
            stack.append((child, below, level + 1, begin))
            begin += child.weight


def _amount(weight: int, unit: str) -> str:
    return f"{seconds(weight / 1e9)} s" if unit == "ns" else f"{quantity(weight)} {unit}"


def _fit(name: str, wide: float) -> str:
    room = int((wide - 5) / 6.6)
    return "" if room < 3 else name if len(name) <= room else name[: room - 1] + "…"


def _colour(name: str) -> str:
    """Warm for user code, blue for the kernel, green for what is no function; the same name always has the same shade."""
    shade = zlib.crc32(name.encode()) % 100 / 100
    if name.endswith("_[k]"):
        return f"hsl({205 + 15 * shade:.0f} 62% {72 + 8 * shade:.0f}%)"
    if " " in name or name.startswith("["):
        return f"hsl({130 + 20 * shade:.0f} 38% {74 + 6 * shade:.0f}%)"
    return f"hsl({18 + 30 * shade:.0f} 82% {70 + 8 * shade:.0f}%)"
