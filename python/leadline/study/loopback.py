"""What is said of each study of a private pair: where it ran, and what the trials of its cells gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.book.experiments.cells import Cell
from leadline.book.experiments.studies import figures_in
from leadline.study.curves import Curve, curves


def by_trial(found: Mapping[str, Any], needed: str) -> dict[Cell, list[dict[str, float]]]:
    """Of each cell that has the needed metric: what its trials gave, in the order of the blocks. found: of studies.study. Empty without a
    verdict, and for a study without that metric."""
    design, out = found["design"], dict[Cell, dict[int, dict[str, float]]]()
    if found["judged"] is None or needed not in {metric["name"] for metric in design["metrics"]}:
        return {}
    for (block, number, metric), value in figures_in(dict(found)).items():
        if value is not None:
            out.setdefault(tuple(design["cells"][number]), {}).setdefault(block, {})[metric] = value
    trials = {cell: [of[block] for block in sorted(of)] for cell in map(tuple, design["cells"]) if (of := out.get(cell))}
    return {cell: of for cell, of in trials.items() if any(needed in one for one in of)}


def by_cell(found: Mapping[str, Any], needed: str) -> dict[Cell, dict[str, list[float]]]:
    """The same, as what all trials of a cell gave of each metric."""
    out = {}
    for cell, trials in by_trial(found, needed).items():
        out[cell] = {name: [one[name] for one in trials if name in one] for name in dict.fromkeys(name for one in trials for name in one)}
    return out


def where(found: Mapping[str, Any]) -> str:
    design = found["design"]
    held = design["server"].get("replay_cpu")
    shares = [label for factor in design["factors"] if factor["kind"] == "replay_cpu" for label, _ in factor["levels"]]
    shares = [held] if isinstance(held, str) else shares
    return "a loopback pair" + (f", replay held to {' or '.join(shares)} of a CPU" if shares else "")


def heading(title: str, found: Mapping[str, Any]) -> str:
    """For the report."""
    return f'<h2>{title}</h2><p class="soft">On {where(found)}.</p>'


def plot(title: str, found: Mapping[str, Any], of_y: str, of_x: str, shown: list[Curve]) -> list[str]:
    """For the report."""
    return [heading(title, found), curves(of_y, of_x, shown)]
