"""What the study `conflict` says besides effects: what replay, the reader and the primary paid in each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from leadline.book.experiments.cells import name_of
from leadline.figures import figure
from leadline.output import to_table
from leadline.study.curves import Bar, bars
from leadline.study.loopback import by_cell, heading, where

BEHIND, STALLED, XIDS, DEAD = "seconds behind, most", "seconds without replay, longest", "transactions held back", "dead rows kept"
FINISHED, CANCELLED = "snapshots kept", "snapshots cancelled"


@dataclass(frozen=True)
class Conflict:
    """Of one cell: medians of its trials; finished and cancelled: sums of them."""

    name: str
    behind_s: float
    stalled_s: float
    least_stalled_s: float
    most_stalled_s: float
    finished: int
    cancelled: int
    held_xids: float
    dead_rows: float


def conflicts(found: Mapping[str, Any]) -> list[Conflict]:
    """found: of studies.study. Empty without a verdict, and for another study."""
    names, out = [factor["name"] for factor in found["design"]["factors"]], []
    for cell, of in by_cell(found, CANCELLED).items():
        behind, stalled, held, dead = (median(of[name]) for name in (BEHIND, STALLED, XIDS, DEAD))
        finished, cancelled = (round(sum(of[name])) for name in (FINISHED, CANCELLED))
        ends = min(of[STALLED]), max(of[STALLED])
        out.append(Conflict(name_of(names, cell), behind, stalled, *ends, finished, cancelled, held, dead))
    return out


def lines(found: Mapping[str, Any]) -> list[str]:
    """For a terminal."""
    if not (of := conflicts(found)):
        return []
    rows = [
        [one.name, figure(one.behind_s), figure(one.stalled_s), one.finished, one.cancelled, figure(one.held_xids), figure(one.dead_rows)]
        for one in of
    ]  # fmt: skip
    head = ["settings of the standby", "behind s", "no replay s", "kept", "cancelled", "transactions held", "dead rows kept"]
    return ["", f"Who pays for the snapshots of the standby's reader ({where(found)})", to_table(head, rows)]


def drawn(found: Mapping[str, Any]) -> list[str]:
    """For the report: what replay paid, and the others."""
    if not (of := conflicts(found)):
        return []
    factors = ", ".join(factor["name"] for factor in found["design"]["factors"])
    names = [", ".join(part.rpartition("=")[2] for part in one.name.split(", ")) for one in of]
    replay = [Bar(name, one.stalled_s, one.least_stalled_s, one.most_stalled_s) for name, one in zip(names, of)]
    reader = [Bar(name, one.cancelled) for name, one in zip(names, of)]
    primary = [Bar(name, one.dead_rows) for name, one in zip(names, of)]
    shown = {
        f"{factors}: longest stop of replay, s": replay,
        "snapshots of the reader cancelled, in all trials": reader,
        "dead rows kept on the primary, median of the trials": primary,
    }
    return [heading("Who pays for the snapshots", found), *(bars(title, rows) for title, rows in shown.items())]


def as_dicts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(one) for one in conflicts(found)]
