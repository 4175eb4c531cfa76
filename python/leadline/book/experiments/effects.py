"""What the figures of a study say: each factor over the levels of the others, cell by cell, and of which cells nothing can be said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from leadline.book.experiments.cells import Cell, all_cells, companions, forbidden, interactions, name_of
from leadline.lab.blocks import Compared, Family, Metric, against_baseline
from leadline.lab.verdict import EQUIVALENT

BASELINE = "the baseline"
WORDS: dict[str, Any] = {"block": "block", "more": "--repetitions", "sides": {}}
Figures = Mapping[tuple[int, int, str], float | None]  # (block, number of the cell, metric): figure of that trial


def judge(design: Mapping[str, Any], figures: Figures) -> dict[str, Any]:
    """design: of a study as it was sealed, or of an experiment as_study. Each family of comparisons is corrected by itself."""
    words = design.get("words", WORDS)
    factors, cells = [one["name"] for one in design["factors"]], [tuple(cell) for cell in design["cells"]]
    levels = [[label for label, _ in one["levels"]] for one in design["factors"]]
    baseline: Cell = tuple(one[0] for one in levels)
    blocks, metrics = design["repetitions"], _compared(design)
    measured = _measured(cells, figures, metrics[0]["name"], blocks)
    empty = _empty(design, factors, levels, baseline, measured)
    log = _logs(cells, figures)
    found: dict[str, Any] = {"empty": empty, "effects": [], "cells": [], "interactions": [], "error": "", "least_blocks": 0, "enough": []}
    found["no_effect"] = _no_effect(design, cells, figures)
    idle = {one["level"] for one in found["no_effect"]}
    asked = [
        (name, pairs) for at, factor in enumerate(factors) for level in levels[at][1:]
        if (pairs := companions(measured, at, level, levels[at][0])) and (name := name_of([factor], (level,))) not in idle
    ]  # fmt: skip
    effects = [{name: [_mean_ratio(log, b, pairs, metric["name"]) for b in range(blocks)] for name, pairs in asked} for metric in metrics]
    family = _family(metrics, effects, blocks, words)
    if family is not None:
        found |= {"error": family.error, "least_blocks": family.least_blocks, "effects": [_row(one) for one in family.comparisons]}
    found["enough"] = _enough(design, found["effects"], metrics[0]["name"])
    if sum(len({cell[at] for cell in measured}) > 1 for at in range(len(factors))) > 1 and baseline in measured:
        pairs_of = {name_of(factors, cell): [(baseline, cell)] for cell in measured if cell != baseline}
        each = [
            {name: [_mean_ratio(log, b, pairs, metric["name"]) for b in range(blocks)] for name, pairs in pairs_of.items()}
            for metric in metrics
        ]
        family = _family(metrics, each, blocks, words)
        found["cells"] = [_row(one) for one in family.comparisons] if family is not None else []
        together = []
        for metric in metrics:
            values = {}
            for name, (bare, one, other, both) in interactions(factors, levels):
                if {bare, one, other, both} <= set(measured):
                    values[name] = [_interaction(log, b, (bare, one, other, both), metric["name"]) for b in range(blocks)]
            together.append(values)
        family = _family(metrics, together, blocks, words)
        found["interactions"] = [_row(one) for one in family.comparisons] if family is not None else []
    return found


def all_pairs(design: Mapping[str, Any], figures: Figures) -> dict[str, Any]:
    """Each two levels of each factor, over the levels of the others: one family, whose error is stated."""
    factors, cells = [one["name"] for one in design["factors"]], [tuple(cell) for cell in design["cells"]]
    blocks, metrics, log = design["repetitions"], _compared(design), _logs(cells, figures)
    measured = _measured(cells, figures, metrics[0]["name"], blocks)
    asked: dict[tuple[str, str], list[tuple[Cell, Cell]]] = {}
    for at, factor in enumerate(design["factors"]):
        for one, other in combinations([label for label, _ in factor["levels"]], 2):
            if pairs := companions(measured, at, other, one):
                asked[(name_of([factors[at]], (one,)), name_of([factors[at]], (other,)))] = pairs
    each = [
        {f"{other} / {one}": [_mean_ratio(log, b, pairs, metric["name"]) for b in range(blocks)] for (one, other), pairs in asked.items()}
        for metric in metrics
    ]
    sides = {f"{other} / {one}": (other, one) for one, other in asked}
    family = _family(metrics, each, blocks, design.get("words", WORDS), sides)
    if family is None:
        return {"rows": [], "error": "", "least_blocks": 0}
    return {"rows": [_row(one) for one in family.comparisons], "error": family.error, "least_blocks": family.least_blocks}


def _compared(design: Mapping[str, Any]) -> list[Any]:
    return [one for one in design["metrics"] if not one.get("proves") and one.get("compared", True)]


def _measured(cells: Sequence[Cell], figures: Figures, metric: str, blocks: int) -> list[Cell]:
    """Cells with a figure of the metric in a block."""
    return [cell for at, cell in enumerate(cells) if any(_value(figures, block, at, metric) for block in range(blocks))]


def _logs(cells: Sequence[Cell], figures: Figures) -> Callable[[int, Cell, str], float | None]:
    number = {cell: at for at, cell in enumerate(cells)}

    def log(block: int, cell: Cell, metric: str) -> float | None:
        value = _value(figures, block, number[cell], metric)
        return None if value is None else math.log(value)

    return log


def _no_effect(design: Mapping[str, Any], cells: Sequence[Cell], figures: Figures) -> list[dict[str, Any]]:
    """Levels of which a metric that proves their factor says in each trial what it says in each trial of the baseline's level."""
    out = []
    for metric in design["metrics"]:
        at = next((at for at, one in enumerate(design["factors"]) if one["name"] == metric.get("proves")), None)
        if at is None:
            continue
        seen: dict[str, set[float]] = {}
        for (_, number, name), value in figures.items():
            if name == metric["name"] and value is not None:
                seen.setdefault(cells[number][at], set()).add(value)
        factor, (bare, *others) = design["factors"][at]["name"], [label for label, _ in design["factors"][at]["levels"]]
        for level in others:
            if len(seen.get(level, ())) == 1 and seen[level] == seen.get(bare):
                out.append({"level": f"{factor}={level}", "metric": metric["name"], "value": next(iter(seen[level]))})
    return out


def _enough(design: Mapping[str, Any], effects: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """Of each factor whose levels stand in order, the first that is as good as the baseline, or better."""
    out = []
    for factor in design["factors"]:
        rows = {row["level"]: row for row in effects if row["metric"] == metric}
        named = [f"{factor['name']}={label}" for label, _ in factor["levels"][1:]]
        good = [name for name in named if name in rows and (rows[name]["good"] or rows[name]["verdict"] == EQUIVALENT)]
        out += good[:1] if factor.get("enough") else []
    return out


def _value(figures: Figures, block: int, cell: int, metric: str) -> float | None:
    value = figures.get((block, cell, metric))
    return value if value is not None and 0 < value < math.inf else None


def _mean_ratio(log: Any, block: int, pairs: Sequence[tuple[Cell, Cell]], metric: str) -> float | None:
    """The ratio of one block: the geometric mean over the levels of the other factors; None unless all of them are there."""
    logs = [(log(block, bare, metric), log(block, cell, metric)) for bare, cell in pairs]
    if any(one is None or other is None for one, other in logs):
        return None
    return _ratio(sum(other - one for one, other in logs) / len(logs))


def _interaction(log: Any, block: int, cells: tuple[Cell, Cell, Cell, Cell], metric: str) -> float | None:
    """The ratio of the ratios: what both do together, to what they would do if each did what it does alone."""
    bare, one, other, both = (log(block, cell, metric) for cell in cells)
    return None if None in (bare, one, other, both) else _ratio(both - one - other + bare)


def _ratio(log: float) -> float | None:
    """None where it is no number that a ratio can be: what a record says may be anything."""
    return math.exp(log) if abs(log) < 700 else None


def _family(
    metrics: Sequence[Mapping[str, Any]], values: Sequence[Mapping[str, list[float | None]]], blocks: int, words: Mapping[str, Any],
    sides: Mapping[str, tuple[str, str]] | None = None,
) -> Family | None:  # fmt: skip
    """Ratios are compared with 1, the ratio of what they were taken to. sides: what these ratios are of, where not of the baseline."""
    if not values or not values[0]:
        return None
    ones: list[float | None] = [1.0] * blocks
    return against_baseline(
        [
            Metric(one["name"], {BASELINE: ones, **of}, better=one["better"], margin=one["margin"], is_time=one["is_time"])
            for one, of in zip(metrics, values)
        ],
        BASELINE, more=words["more"], block=words["block"], sides=sides or words["sides"],
    )  # fmt: skip


def _row(one: Compared) -> dict[str, Any]:
    ratio = one.ratio
    shown = ratio is not None and ratio.high < math.inf
    return {
        "metric": one.metric, "level": one.level, "ratio": ratio.estimate if ratio is not None else None,
        "low": ratio.low if ratio is not None and shown else None, "high": ratio.high if ratio is not None and shown else None,
        "blocks": ratio.pairs if ratio is not None else 0, "verdict": one.verdict.word, "good": one.verdict.good, "text": one.verdict.text,
        "p_differs": one.differs, "p_equivalent": one.equivalent,
    }  # fmt: skip


def _empty(
    design: Mapping[str, Any], factors: Sequence[str], levels: Sequence[Sequence[str]], baseline: Cell, measured: Sequence[Cell]
) -> list[dict[str, Any]]:
    reasons, dropped = {tuple(cell): reason for cell, reason in design["excluded"]}, {why for _, why in design["dropped"]}
    out = []
    for cell in all_cells(levels):
        if cell not in measured:
            reason, forbids = reasons.get(cell, "no trial of it has a figure"), forbidden(factors, baseline, cell)
            out.append({
                "cell": name_of(factors, cell), "reason": reason, "forbids": forbids, "excluded": cell in reasons,
                "dropped": reason in dropped,
            })  # fmt: skip
    return out


def headline(found: Mapping[str, Any], design: Mapping[str, Any]) -> dict[str, Any]:
    """What the summary of the run says: of the first metric, each level of each factor."""
    metric = design["metrics"][0]["name"]
    rows = [row for row in found["effects"] if row["metric"] == metric]
    if not rows:
        return {"verdict": "none", "good": None, "text": "no verdict: nothing could be compared", "pairs": 0, "ratio": None, "low": None,
                "high": None}  # fmt: skip
    first = rows[0]
    of_one = "words" in design  # of an experiment, which has but one
    text = "; ".join(row["text"] if of_one else f"{row['level']}: {row['text']}" for row in rows)[:1000]
    return {"verdict": first["verdict"], "good": first["good"], "text": text, "pairs": first["blocks"],
            **{name: first[name] for name in ("ratio", "low", "high")}}  # fmt: skip
