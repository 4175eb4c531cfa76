"""A long load: ten parts of it, one after the other, and whether its rate or its latency went one way meanwhile.

A trend is Kendall's rank correlation of the parts with their order, exact. Parts are long, so that what disturbs a moment is in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Any

from leadline.lab.blocks import holm
from leadline.output import to_table

PARTS = 10
LEAST_S = 5  # seconds of a part: shorter ones say nothing of a trend
LEVEL = 0.05
FIGURES = {"per_second": ("rate", "/s"), "p99_ms": ("p99", " ms")}


@dataclass
class Soak:
    """Takes the seconds of a load as they come."""

    seconds: list[tuple[float, int, float | None]] = field(default_factory=list)

    def take(self, row: Mapping[str, Any]) -> None:
        if not row["warm_up"] and not row["after_the_end"] and row["duration_ns"]:
            p99 = row["latency"]["p99_ns"]
            self.seconds.append((row["duration_ns"] / 1e9, row["done"], None if p99 is None else p99 / 1e6))

    def found(self) -> dict[str, Any]:
        """The parts, and of each figure its trend; None where the load was too short for one. p99_ms: the median of its seconds."""
        size = len(self.seconds) // PARTS
        parts: list[dict[str, Any]] = []
        for at in range(PARTS if size else 0):
            of = self.seconds[at * size : (at + 1) * size if at < PARTS - 1 else None]
            length, times = sum(one[0] for one in of), [one[2] for one in of if one[2] is not None]
            parts.append({"part": at + 1, "seconds": length, "per_second": sum(one[1] for one in of) / length,
                          "p99_ms": median(times) if times else None})  # fmt: skip
        trends: dict[str, Any] = dict.fromkeys(FIGURES)
        known = [name for name in FIGURES if size >= LEAST_S and all(part[name] is not None for part in parts)]
        values = {name: [float(part[name]) for part in parts] for name in known}
        for name, p in zip(known, holm([kendall_p(values[name]) for name in known])):
            first, last = values[name][0], values[name][-1]
            word = "none shown" if p > LEVEL else "falls" if rises(values[name]) < 0 else "grows"
            trends[name] = {"trend": word, "p": p, "first": first, "last": last}
        return {"parts": parts, "trends": trends}


def rises(values: list[float]) -> int:
    """Pairs that rise, less pairs that fall."""
    return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))


def kendall_p(values: list[float]) -> float:
    """How often an order drawn by chance goes one way as much as this one, to either side."""
    ways = [1]  # orders of n values by how many pairs of them fall
    for n in range(2, len(values) + 1):
        ways = [sum(ways[max(0, at - n + 1) : at + 1]) for at in range(len(ways) + n - 1)]
    pairs = len(values) * (len(values) - 1) // 2
    fewest = (pairs - abs(rises(values))) // 2  # a tie is half of either, to the safe side
    return min(1.0, 2 * sum(ways[: fewest + (abs(rises(values)) + pairs) % 2 + 1]) / sum(ways))


def lines(found: Mapping[str, Any]) -> list[str]:
    rows = [[part["part"], round(part["seconds"]), round(part["per_second"], 1), part["p99_ms"]] for part in found["parts"]]
    out = ["Parts of the load, in order", to_table(["part", "seconds", "done/s", "p99 ms"], rows)]
    for name, (called, unit) in FIGURES.items():
        trend = found["trends"][name]
        if trend is None:
            out.append(f"{called}: too short to show a trend ({PARTS} parts of at least {LEAST_S} s are needed)")
        elif trend["trend"] == "none shown":
            out.append(f"{called}: no trend shown (p = {trend['p']:.2g})")
        else:
            ends = f"{trend['first']:.4g}{unit} in the first part, {trend['last']:.4g}{unit} in the last"
            out.append(f"{called}: {trend['trend']}: {ends} (Kendall, p = {trend['p']:.2g})")
    return out
