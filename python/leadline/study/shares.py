"""What the studies `limit` and `overload` say besides effects: rates of WAL by the share of a CPU that replay has, and a plot of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from leadline.book.experiments.cells import name_of
from leadline.book.experiments.design import margin_of
from leadline.figures import count, figure
from leadline.output import to_table
from leadline.study.curves import Curve
from leadline.study.loopback import by_trial, plot, where

SHARE = "replay_cpu"  # the factor
LIMIT, BACKLOG, LOW, HIGH = "MB/s at the limit", "MB/s of a backlog", "MB/s kept up with", "MB/s not kept up with"
LOW_CPU, HIGH_CPU = "% of a CPU, kept up", "% of a CPU, not kept up"
UNDER_LOAD, AFTER = "MB/s replayed under load", "MB/s replayed after it"
UNDER_LOAD_CPU, AFTER_CPU = "MB for each CPU s under load", "MB for each CPU s after it"
WITHIN = 0.1  # of what was measured otherwise: a limit that is as near is right


@dataclass(frozen=True)
class Figure:
    """The median of its trials, the least and the most."""

    value: float
    least: float
    most: float


@dataclass(frozen=True)
class Share:
    """A cell. percent: of a CPU, that replay may use at most. figures: by metric. ratios: of each trial, the limit by what was replayed of
    a backlog, or what was replayed after the load by what was replayed under it; cpu_ratios: the CPU at the limit by the share, or what was
    replayed after and under the load for each CPU second."""

    name: str
    percent: float
    figures: Mapping[str, Figure]
    ratios: tuple[float, ...]
    cpu_ratios: tuple[float, ...]

    @property
    def right(self) -> int:
        return sum(abs(ratio - 1) <= WITHIN for ratio in self.ratios)


def shares(found: Mapping[str, Any]) -> list[Share]:
    """found: of studies.study. Empty without a verdict, and for another study."""
    design, out = found["design"], []
    names = [factor["name"] for factor in design["factors"]]
    needed = next((name for name in (LIMIT, UNDER_LOAD) if name in {metric["name"] for metric in design["metrics"]}), None)
    if needed is None or SHARE not in names:
        return []
    for cell, trials in by_trial(found, needed).items():
        percent, of = 100 * margin_of(cell[names.index(SHARE)]), dict[str, Figure]()
        for name in dict.fromkeys(name for one in trials for name in one):
            values = [one[name] for one in trials if name in one]
            of[name] = Figure(median(values), min(values), max(values))
        if needed == LIMIT:
            ratios, cpu = _ratios(trials, LIMIT, BACKLOG), tuple((one[LOW_CPU] * one[HIGH_CPU]) ** 0.5 / percent for one in trials
                                                                 if {LOW_CPU, HIGH_CPU} <= one.keys())  # fmt: skip
        else:
            ratios, cpu = _ratios(trials, AFTER, UNDER_LOAD), _ratios(trials, AFTER_CPU, UNDER_LOAD_CPU)
        out.append(Share(name_of(names, cell), percent, of, ratios, cpu))
    return sorted(out, key=lambda one: one.percent)


def _ratios(trials: Sequence[Mapping[str, float]], one: str, other: str) -> tuple[float, ...]:
    return tuple(of[one] / of[other] for of in trials if one in of and of.get(other))


def lines(found: Mapping[str, Any]) -> list[str]:
    """For a terminal."""
    if not (of := shares(found)):
        return []
    if LIMIT not in of[0].figures:
        head = ["replay", "under load", "after it", "after it / under load, each trial", "for each CPU s, each trial"]
        rows = [[one.name, _shown(one, UNDER_LOAD), _shown(one, AFTER), _each(one.ratios), _each(one.cpu_ratios)] for one in of]
        return ["", f"MB/s replayed under a load that is too much, and after it ({where(found)})", to_table(head, rows)]
    head = ["replay", "keeps up with", "not with", "of a backlog", "limit / backlog, each trial", "CPU at the limit / share"]
    rows = [[one.name, *(_shown(one, name) for name in (LOW, HIGH, BACKLOG)), _each(one.ratios), _each(one.cpu_ratios)] for one in of]
    right, told = sum(one.right for one in of), sum(len(one.ratios) for one in of)
    said = f"{right} of {count(told, 'limit')} within {100 * WITHIN:.0f} % of how fast a backlog was replayed"
    return ["", f"MB/s that a standby keeps up with, and how fast it replays a backlog ({where(found)})", to_table(head, rows), said]


def _shown(one: Share, name: str) -> str:
    return figure(one.figures[name].value) if name in one.figures else ""


def _each(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def drawn(found: Mapping[str, Any]) -> list[str]:
    """For the report. The model: of the least share, as much more as the share is more."""
    if not (of := shares(found)):
        return []
    title, *named = (
        ("What a standby keeps up with", ("limit", LIMIT), ("backlog", BACKLOG)) if LIMIT in of[0].figures
        else ("Replay under a load that is too much, and after it", ("under load", UNDER_LOAD), ("after it", AFTER))
    )  # fmt: skip
    least, most = of[0], of[-1].percent
    shown = []
    for name, metric in named:
        points = [(one.percent, value.value, value.least, value.most) for one in of if (value := one.figures.get(metric))]
        model = [(0.0, 0.0), (most, least.figures[metric].value * most / least.percent)] if metric in least.figures else []
        shown.append(Curve(name, points, model))
    return plot(title, found, "MB/s, loopback pair", "CPU that replay may use, %; dashed: in proportion", shown)


def as_dicts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(one) | {"right": one.right} for one in shares(found)]
