"""What the study `keep-up` says besides effects: which rates a standby keeps up with, the knee between them, and a plot of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from leadline.book.experiments.cells import name_of
from leadline.figures import figure
from leadline.output import to_table
from leadline.study.backlog import FALLS_BEHIND, KEEPS_UP, UNDECIDED, verdict
from leadline.study.curves import Curve
from leadline.study.loopback import by_trial, plot, where

RATE = "rate"  # the factor
MADE, REPLAYED, BEHIND = "MB/s made", "MB/s replayed", "seconds behind"
LOW, HIGH = "growth of the backlog, low", "growth of the backlog, high"


@dataclass(frozen=True)
class Rate:
    """made, behind_s: medians of its trials. replayed, verdicts: of each of them."""

    level: str
    made: float
    replayed: tuple[float, ...]
    behind_s: float
    verdicts: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """What all of its trials say, of those that say something."""
        said = set(self.verdicts) - {UNDECIDED}
        return said.pop() if len(said) == 1 else UNDECIDED


@dataclass(frozen=True)
class Knee:
    """Of one CPU share of replay. rates: in order. keeps_up: the highest rate (MB/s made) up to which all keep up. falls_behind: the lowest
    one that falls behind. at_most: what was replayed in trials that fell behind, at the median, with the least and the most."""

    name: str
    rates: tuple[Rate, ...]
    keeps_up: float | None
    falls_behind: float | None
    at_most: float | None
    at_most_least: float | None
    at_most_most: float | None

    @property
    def text(self) -> str:
        up = "keeps up with none of these rates" if self.keeps_up is None else f"keeps up with {figure(self.keeps_up)} MB/s"
        behind = "falls behind at none" if self.falls_behind is None else f"falls behind at {figure(self.falls_behind)} MB/s"
        ends = f" ({figure(self.at_most_least)} to {figure(self.at_most_most)})"
        most = "" if self.at_most is None else f"; behind, it replayed {figure(self.at_most)} MB/s{ends}"
        return f"{self.name}: {up}, {behind}{most}"


def knees(found: Mapping[str, Any]) -> list[Knee]:
    """found: of studies.study. Empty without a verdict, and for another study."""
    names = [factor["name"] for factor in found["design"]["factors"]]
    cells = by_trial(found, HIGH)
    if RATE not in names or not cells:
        return []
    at, of = names.index(RATE), dict[tuple[str, ...], list[Rate]]()
    for cell, trials in cells.items():
        whole = [one for one in trials if {MADE, REPLAYED, BEHIND, LOW, HIGH} <= one.keys()]
        if whole:
            made, behind = (median(one[name] for one in whole) for name in (MADE, BEHIND))
            verdicts = tuple(verdict(one[LOW], one[HIGH], one[BEHIND]) for one in whole)
            rate = Rate(cell[at], made, tuple(one[REPLAYED] for one in whole), behind, verdicts)
            of.setdefault((*cell[:at], *cell[at + 1 :]), []).append(rate)
    return [knee(name_of([*names[:at], *names[at + 1 :]], other), rates) for other, rates in of.items()]


def knee(name: str, rates: list[Rate]) -> Knee:
    rates = sorted(rates, key=lambda rate: rate.made)
    keeps_up: float | None = None
    for rate in rates:
        if rate.verdict != KEEPS_UP:
            break
        keeps_up = rate.made
    behind = next((rate.made for rate in rates if rate.verdict == FALLS_BEHIND), None)
    replayed = [value for rate in rates for value, said in zip(rate.replayed, rate.verdicts) if said == FALLS_BEHIND]
    if not replayed:
        return Knee(name, tuple(rates), keeps_up, behind, None, None, None)
    return Knee(name, tuple(rates), keeps_up, behind, median(replayed), min(replayed), max(replayed))


def lines(found: Mapping[str, Any]) -> list[str]:
    """For a terminal."""
    out: list[str] = []
    if of := knees(found):
        out += ["", f"What is made and what is replayed, MB/s ({where(found)})"]
        words = (KEEPS_UP, UNDECIDED, FALLS_BEHIND)
        rows = [
            [one.name, rate.level, figure(rate.made), figure(median(rate.replayed)), figure(rate.behind_s),
             *(rate.verdicts.count(word) for word in words)]
            for one in of for rate in one.rates
        ]  # fmt: skip
        out.append(to_table(["replay", "rate", "made", "replayed", "behind s", *(f"{word}, trials" for word in words)], rows))
        out += [one.text for one in of]
    return out


def drawn(found: Mapping[str, Any]) -> list[str]:
    """For the report. The model: what is made is replayed, up to what was replayed in trials that fell behind."""
    shown, of = [], knees(found)
    for one in of:
        points = [(rate.made, median(rate.replayed), min(rate.replayed), max(rate.replayed)) for rate in one.rates]
        end, most = one.rates[-1].made, one.at_most
        model = [(0.0, 0.0), (end, end)] if most is None or most > end else [(0.0, 0.0), (most, most), (end, most)]
        shown.append(Curve(one.name.rpartition("=")[2], points, model))
    of_x = "MB/s made; dashed: kept up with"
    return plot("What a standby keeps up with", found, "MB/s replayed, loopback pair", of_x, shown) if of else []


def as_dicts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For JSON."""
    return [
        asdict(one) | {"text": one.text, "rates": [asdict(rate) | {"verdict": rate.verdict} for rate in one.rates]} for one in knees(found)
    ]
