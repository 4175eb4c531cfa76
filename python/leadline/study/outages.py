"""What the study `outage` says besides effects: of each outage how long catching up took and what was forecast, and a plot of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from leadline.figures import count, figure
from leadline.output import to_table
from leadline.study.curves import Curve
from leadline.study.loopback import by_cell, plot, where
from leadline.units import seconds_of

WITHIN = 0.2  # of what came: a forecast that is as near is right
CAUGHT_UP, FORECAST, RATIO = "seconds to catch up", "seconds forecast", "forecast / what came"


@dataclass(frozen=True)
class Outage:
    """Of one length: medians of its trials. right: forecasts within WITHIN of what came, of so many."""

    length: str
    caught_up_s: float
    least_s: float
    most_s: float
    forecast_s: float | None
    ratios: tuple[float, ...]

    @property
    def ratios_text(self) -> str:
        return ", ".join(f"{ratio:.2f}" for ratio in self.ratios)

    @property
    def right(self) -> int:
        return sum(abs(ratio - 1) <= WITHIN for ratio in self.ratios)


def outages(found: Mapping[str, Any]) -> list[Outage]:
    """found: of studies.study. Empty without a verdict, and for another study."""
    out = []
    for cell, of in by_cell(found, CAUGHT_UP).items():
        came = of[CAUGHT_UP]
        forecast = median(of[FORECAST]) if of.get(FORECAST) else None
        out.append(Outage(cell[0], median(came), min(came), max(came), forecast, tuple(of.get(RATIO, ()))))
    return out


def lines(found: Mapping[str, Any]) -> list[str]:
    """For a terminal."""
    out: list[str] = []
    if of := outages(found):
        out += ["", f"Outages, and what was forecast when the standby was back ({where(found)})"]
        rows = [[one.length, figure(one.caught_up_s), figure(one.forecast_s), one.ratios_text] for one in of]
        out.append(to_table(["outage", "caught up after s", "forecast s", "forecast / what came, each trial"], rows))
        right, told = sum(one.right for one in of), sum(len(one.ratios) for one in of)
        out.append(f"{right} of {count(told, 'forecast')} within {100 * WITHIN:.0f} % of what came")
    return out


def drawn(found: Mapping[str, Any]) -> list[str]:
    """For the report."""
    out: list[str] = []
    if of := outages(found):
        points = [(seconds_of(one.length), one.caught_up_s, one.least_s, one.most_s) for one in of]
        model = [(seconds_of(one.length), one.forecast_s) for one in of if one.forecast_s is not None]
        out += plot("Catching up after an outage", found, "seconds to catch up, loopback pair", "outage, s; dashed: forecast",
                     [Curve("caught up", points, model)])  # fmt: skip
    return out


def as_dicts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(one) | {"right": one.right} for one in outages(found)]
