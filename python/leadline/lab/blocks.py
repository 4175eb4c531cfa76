"""More than two levels, or more than one metric: each level against the baseline, or all pairs of levels, in randomised blocks.

A block measures each level once, in an order drawn anew for it. Of two levels, the ratio within a block is then as likely the one way round
as the other if they are alike, whatever disturbs the host: so each comparison is that of pairs (signed_rank.py). Several comparisons have
several chances to show what is not there. Holm's correction holds the chance that any of them does at 5 %, whether they depend on each
other or not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from leadline.lab.paired import LEVEL, Ratio
from leadline.lab.signed_rank import MOST_PAIRS, p_differs, p_outside, signed_rank_ratio
from leadline.lab.verdict import OneOf, Verdict, enough, verdict

T = TypeVar("T")


@dataclass(frozen=True)
class Metric:
    """values: for each level its value in each block, as many for each; None where it was not measured. better: less or more. margin: a
    share such as 0.02: differences within it do not matter. is_time: whether less of it is called faster."""

    name: str
    values: Mapping[str, Sequence[float | None]]
    better: str = "less"
    margin: float = 0.02
    is_time: bool = False


@dataclass(frozen=True)
class Compared:
    """level / against of one metric. ratio: with its own 95 % interval, over the blocks that have both; None where none has. differs,
    equivalent: p of either, corrected for all comparisons; the verdict follows from these."""

    metric: str
    level: str
    against: str
    ratio: Ratio | None
    differs: float
    equivalent: float
    verdict: Verdict


@dataclass(frozen=True)
class Family:
    """Everything that was compared at once. blocks: how many there are; empty: (metric, level) without any value, of which
    nothing can be said. incomplete: the numbers, from 0, of blocks that lack a value of what is not empty. least_blocks: fewer allow no
    verdict. error: a sentence on how often a family like this shows something that is not there."""

    comparisons: tuple[Compared, ...]
    blocks: int
    incomplete: tuple[int, ...]
    empty: tuple[tuple[str, str], ...]
    least_blocks: int
    error: str


def block_orders(levels: Sequence[T], blocks: int, rng: random.Random) -> list[list[T]]:
    """All levels once in each block, each order as likely as any other."""
    return [rng.sample(levels, len(levels)) for _ in range(blocks)]


def against_baseline(
    metrics: Sequence[Metric], baseline: str, *, all_pairs: bool = False, more: str = "--blocks", block: str = "block",
    sides: Mapping[str, tuple[str, str]] | None = None,
) -> Family:  # fmt: skip
    """Each other level against the baseline, for each metric; with all_pairs also each of them against those before it.

    A block counts for a comparison if it has a value of both levels. What was planned counts as a comparison even where nothing was
    measured. more, block: the option that asks for more blocks, and what these are called. sides:
    of a level, what it is called and what it is compared with, where that is not by their names.

    Raises ValueError: no metric, two metrics of one name, metrics with other levels, a baseline that is no level, no second level, levels
    with unequal numbers of blocks, none or more than 1,000 blocks, a value that is not above 0 or not finite, a margin not between 0 and 1.
    """
    blocks, names = _checked(metrics, baseline), sides or {}
    levels = [baseline, *(level for level in metrics[0].values if level != baseline)]
    asked = list(combinations(levels, 2)) if all_pairs else [(baseline, level) for level in levels[1:]]
    planned = [(metric, one, other) for metric in metrics for one, other in asked]
    both = [_both(metric.values[one], metric.values[other]) for metric, one, other in planned]
    differs = holm([p_differs(found) if found else 1.0 for found in both])
    equivalent = holm([p_outside(found, metric.margin) if found else 1.0 for (metric, _, _), found in zip(planned, both)])
    comparisons = []
    for (metric, one, other), found, p, q in zip(planned, both, differs, equivalent):
        ratio = signed_rank_ratio(found) if found else None
        said = verdict(
            ratio, quantity=metric.name, margin=metric.margin, better=metric.better, is_time=metric.is_time,
            one_of=OneOf(len(planned), p, q), sides=names.get(other, (other, one)), pair=block, more=more,
        )  # fmt: skip
        comparisons.append(Compared(metric.name, other, one, ratio, p, q, said))
    columns = {(metric.name, level): metric.values[level] for metric in metrics for level in levels}
    empty = [name for name, values in columns.items() if all(value is None for value in values)]
    measured = [values for name, values in columns.items() if name not in empty]
    return Family(
        tuple(comparisons), blocks,
        tuple(at for at in range(blocks) if any(values[at] is None for values in measured)), tuple(empty),
        enough(len(planned)), family_error(len(planned)),
    )  # fmt: skip


def holm(ps: Sequence[float]) -> list[float]:
    """Each p as it is beside the others, in the order given: at most 5 % of families of which none is true have one at or below 0.05."""
    out, most = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        most = max(most, min(1.0, (len(ps) - rank) * ps[at]))
        out[at] = most
    return out


def family_error(comparisons: int, level: float = LEVEL) -> str:
    """What the reader of several verdicts must know."""
    chance = f"{100 * (1 - level):.0f} %"
    if comparisons == 1:
        return f"1 comparison: if the levels are alike, it shows a difference in at most {chance} of studies"
    return (
        f"{comparisons} comparisons, corrected together (Holm): if all levels are alike, any of them shows a difference in at most {chance}"
        f" of studies. Each interval is of its own ratio alone: of {comparisons} such intervals, some may miss"
    )


def _both(one: Sequence[float | None], other: Sequence[float | None]) -> list[tuple[float, float]]:
    return [(a, b) for a, b in zip(one, other) if a is not None and b is not None]


def _checked(metrics: Sequence[Metric], baseline: str) -> int:
    """How many blocks there are."""
    if not metrics or len({metric.name for metric in metrics}) < len(metrics):
        raise ValueError("one metric or more is needed, each with a name of its own")
    levels = list(metrics[0].values)
    if baseline not in levels or len(levels) < 2:
        raise ValueError(f"the levels {', '.join(levels)} have no baseline {baseline}, or nothing beside it")
    if any(set(metric.values) != set(levels) for metric in metrics):
        raise ValueError("each metric needs the same levels")
    lengths = {len(values) for metric in metrics for values in metric.values.values()}
    if len(lengths) > 1 or not 1 <= max(lengths) <= MOST_PAIRS:
        raise ValueError(f"each level needs as many values as the others, one for each of 1 to {MOST_PAIRS:,} blocks")
    for metric in metrics:
        if not 0 < metric.margin < 1:
            raise ValueError(f"the margin of {metric.name} is not between 0 and 1")
        for level, values in metric.values.items():
            if not all(value is None or 0 < value < math.inf for value in values):
                raise ValueError(f"{metric.name} of {level} has a value that is not above 0: there is no ratio of it")
    return max(lengths)
