"""What a study of a pair says of the round trip between its servers: how the latency of each mode follows it, and a model that predicts it.

The model: a commit that waits for the standby takes what it takes at the least round trip, and so much more as the round trip is longer.
One that does not wait for the standby takes the same at each. Its parts are measured at the least round trip alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from random import Random
from statistics import fmean, median, quantiles
from typing import Any

from leadline.book.experiments.cells import name_of
from leadline.book.experiments.studies import figures_in
from leadline.figures import figure
from leadline.output import to_table
from leadline.study.curves import Curve, curves
from leadline.units import seconds_of

DRAWS, SEED = 400, 33
ONCE = FLAT = 0.1  # a slope within so much of 1 or of 0
LOCAL = ("off", "local")  # levels of synchronous_commit that do not wait for the standby
# The part that a commit has more than in the mode before it, in the order of the modes.
PARTS = (
    ("off", "without any wait"), ("local", "flush on the primary"), ("remote_write", "the way to the standby and back, and its write"),
    ("on", "flush on the standby"), ("remote_apply", "replay"),
)  # fmt: skip
LOOPBACK = "a loopback pair: both servers share the CPUs, the disk and the page cache of this host"


@dataclass(frozen=True)
class Point:
    """A cell. asked: the level of the round trip. added_ms: what was added at the median of its trials, or what was asked. predicted:
    empty at the least round trip, from which the model comes."""

    asked: str
    added_ms: float
    value: float
    low: float
    high: float
    predicted: float | None = None

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.value - 1


@dataclass(frozen=True)
class Mode:
    """Levels of the other factors. slope: ms more for each ms of round trip, with its 95 % interval over the blocks."""

    name: str
    metric: str
    points: tuple[Point, ...]
    slope: float | None
    low: float | None
    high: float | None
    waits: bool

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return "not known"
        if self.low >= 1 - ONCE and self.high <= 1 + ONCE:
            return "one round trip"
        if self.low >= -FLAT and self.high <= FLAT:
            return "none"
        return "unclear"

    def as_dict(self) -> dict[str, Any]:
        points = [asdict(point) | {"error": point.error} for point in self.points]
        return asdict(self) | {"verdict": self.verdict, "points": points}


def modes(found: Mapping[str, Any]) -> list[Mode]:
    """found: of studies.study. Of each metric in ms; empty without a verdict, and for a study without a factor that is a round trip."""
    design = found["design"]
    factors = design["factors"]
    at = next((n for n, factor in enumerate(factors) if factor["kind"] == "round_trip"), None)
    if at is None or found["judged"] is None:
        return []
    values, cells = figures_in(dict(found)), {tuple(cell): number for number, cell in enumerate(design["cells"])}
    blocks = range(design["repetitions"])
    link = next((metric["name"] for metric in design["metrics"] if metric["source"] == "link"), None)
    labels = [[label for label, _ in factor["levels"]] for factor in factors]
    waiting = next((n for n, factor in enumerate(factors) if factor["target"].lower() == "synchronous_commit"), None)
    out = []
    for metric in design["metrics"]:
        if metric["source"] != "load" or not metric["text"].endswith("_ms"):
            continue
        for other in product(*([""] if n == at else of for n, of in enumerate(labels))):
            of_trips = []
            for label, text in factors[at]["levels"]:
                number = cells.get((*other[:at], label, *other[at + 1 :]))
                of_blocks = {block: values.get((block, number, metric["name"])) for block in blocks} if number is not None else {}
                there = {block: value for block, value in of_blocks.items() if value is not None}
                known = [x for block in there if link and number is not None and (x := values.get((block, number, link))) is not None]
                if there:
                    of_trips.append(OfTrip(label, median(known) if known else 1e3 * seconds_of(text), there))
            if of_trips:
                waits = waiting is None or other[waiting] not in LOCAL
                name = name_of([factor["name"] for n, factor in enumerate(factors) if n != at], (*other[:at], *other[at + 1 :]))
                out.append(mode_of(name, metric["name"], of_trips, waits))
    return out


@dataclass(frozen=True)
class OfTrip:
    """What was measured at one round trip: by block."""

    asked: str
    added_ms: float
    values: Mapping[int, float]


def mode_of(name: str, metric: str, trips: Sequence[OfTrip], waits: bool) -> Mode:
    trips = sorted(trips, key=lambda trip: trip.added_ms)
    least, draw, slopes = trips[0], Random(SEED), list[float]()
    blocks = sorted(set.intersection(*(set(trip.values) for trip in trips)))
    for _ in range(DRAWS if len(blocks) > 1 and len(trips) > 1 else 0):
        chosen = draw.choices(blocks, k=len(blocks))
        slopes.append(_slope([(trip.added_ms, median(trip.values[block] for block in chosen)) for trip in trips]))
    cuts = quantiles(slopes, n=40) if slopes else []
    middle = [(trip.added_ms, median(trip.values.values())) for trip in trips]
    points = []
    for trip, (added, value) in zip(trips, middle):
        predicted = middle[0][1] + (added - least.added_ms if waits else 0.0)
        ends = min(trip.values.values()), max(trip.values.values())
        points.append(Point(trip.asked, added, value, *ends, None if trip is least else predicted))
    slope = _slope(middle) if len(middle) > 1 else None
    return Mode(name, metric, tuple(points), slope, cuts[0] if cuts else None, cuts[-1] if cuts else None, waits)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares. The round trips differ."""
    x, y = fmean(point[0] for point in points), fmean(point[1] for point in points)
    spread = sum((point[0] - x) ** 2 for point in points)
    return sum((point[0] - x) * (point[1] - y) for point in points) / spread if spread else 0.0


def parts(of: Sequence[Mode]) -> list[tuple[str, float]]:
    """What each mode takes more than the one before it, at the least round trip, by the first metric; all five modes must be there."""
    named = {mode.name.rpartition("=")[2]: mode.points[0].value for mode in of if of and mode.metric == of[0].metric}
    if not all(level in named for level, _ in PARTS):
        return []
    before, out = 0.0, []
    for level, what in PARTS:
        out.append((what, named[level] - before))
        before = named[level]
    return out


def lines(of: Sequence[Mode]) -> list[str]:
    """For a terminal."""
    if not of:
        return []
    out = ["", f"Latency against the round trip, on {LOOPBACK}"]
    head = ["mode", "metric", *(point.asked for point in max(of, key=lambda mode: len(mode.points)).points)]
    rows = [[mode.name, mode.metric, *(figure(point.value) for point in mode.points), _said(mode), mode.verdict] for mode in of]
    out.append(to_table([*head, "ms for each ms (95 %)", "round trips"], [row for row in rows if len(row) == len(head) + 2]))
    predicted = [[mode.name, mode.metric, point.asked, figure(point.predicted), figure(point.value), f"{100 * point.error:+.1f} %"]
                 for mode in of for point in mode.points if point.error is not None and mode.metric == of[0].metric]  # fmt: skip
    if predicted:
        out += ["", "Predicted from the least round trip, and measured (ms)"]
        out.append(to_table(["mode", "metric", "round trip", "predicted", "measured", "error"], predicted))
    if found := parts(of):
        out += ["", f"Parts of a commit at a round trip of {of[0].points[0].asked} ({of[0].metric})"]
        out.append(to_table(["part", "ms"], [[what, figure(ms)] for what, ms in found]))
    return out


def _said(mode: Mode) -> str:
    interval = f" ({mode.low:.3f} to {mode.high:.3f})" if mode.low is not None and mode.high is not None else ""
    return "" if mode.slope is None else f"{mode.slope:.3f}{interval}"


def drawn(of: Sequence[Mode]) -> list[str]:
    """For the report: a heading, and a plot of each metric."""
    said = f"On {LOOPBACK}. Points are medians; their lines reach from the least to the most of all blocks. Dashed: predicted."
    out = [f'<h2>Latency against the round trip</h2><p class="soft">{said}</p>'] if of else []
    for metric in dict.fromkeys(mode.metric for mode in of):
        shown = []
        for mode in of:
            if mode.metric == metric:
                measured = tuple((point.added_ms, point.value, point.low, point.high) for point in mode.points)
                model = tuple((p.added_ms, p.value if p.predicted is None else p.predicted) for p in mode.points)
                shown.append(Curve(mode.name.rpartition("=")[2], measured, model))
        out.append(curves(f"{metric}, loopback pair", "round trip added, ms", shown))
    return out
