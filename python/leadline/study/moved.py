"""Where the time moved between the levels of a study: sums of the captures of its trials, compared as two captures are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from leadline.book.experiments.cells import name_of
from leadline.book.experiments.studies import cell_names
from leadline.capture.manifest import MANIFEST
from leadline.capture.reader import Capture, open_capture
from leadline.compare.environment import of_capture
from leadline.compare.moved import Moved, Sums, between, sums_of
from leadline.errors import LeadlineError
from leadline.replacing import write_durably
from leadline.study import phases
from leadline.study.loads import load_capture, server_capture
from leadline.study.phases import Phase

FORMAT = 5  # of that file: as the fields of Sums and Trial are
SUMS = "sums.json"  # of captures, by trial: they take a while to read
BUSY = 0.9  # of the time: more requests would only wait longer, on a device that serves one after another
MOST = 5  # rows of a table on a terminal
IN_ORDER = ("totals", "host", "phases")  # tables whose rows do not stand by how much they moved: shown whole


@dataclass(frozen=True)
class Trial:
    """What the captures of a trial hold: sums of the server's, and latencies of the load by phase of the checkpointer."""

    sums: Sums
    phases: Mapping[str, Phase] = field(default_factory=dict)


@dataclass(frozen=True)
class OfLevel:
    """other: the level, one: the baseline of its factor. trials: how many captures of each."""

    one: str
    other: str
    trials: tuple[int, int]
    tables: tuple[Moved, ...]

    def as_dict(self) -> dict[str, Any]:
        tables = {table.key: {"title": table.title, "rows": table.grid.as_dicts()} for table in self.tables}
        return {"one": self.one, "other": self.other, "legs": list(self.trials), "tables": tables}


def moved(found: Mapping[str, Any], trials: Mapping[str, Trial]) -> list[OfLevel]:
    """found: of studies.study, with a verdict. trials: of captured(). Each level against the baseline of its factor, over all others."""
    design = found["design"]
    cells = {name: tuple(cell) for name, cell in zip(cell_names(design), design["cells"])}
    out = []
    for at, factor in enumerate(design["factors"]):
        labels = [label for label, _ in factor["levels"]]
        of: dict[str, list[Trial]] = {label: [] for label in labels}
        for trial in found["legs"]:
            if trial["run"] in trials:
                of[cells[trial["side"]][at]].append(trials[trial["run"]])
        for label in labels[1:]:
            if of[label] and of[labels[0]]:
                pair = (of[labels[0]], of[label])
                tables = [*between(*map(_summed, pair)), *phases.table(*(phases.summed(each.phases for each in of_one) for of_one in pair))]
                names = [name_of([factor["name"]], (each,)) for each in (labels[0], label)]
                out.append(OfLevel(names[0], names[1], (len(pair[0]), len(pair[1])), tuple(tables)))
    return out


@dataclass(frozen=True)
class Limit:
    """The busiest device of a cell. busy: share of the time with a request under way. is_limit: it had hardly a moment without one."""

    cell: str
    device: str
    busy: float
    queue: float
    is_limit: bool

    @property
    def text(self) -> str:
        said = f"{self.device} was busy {100 * self.busy:.0f} % of the time, with {self.queue:.3g} requests under way on average"
        return f"{self.cell}: {said}: {'it was the limit' if self.is_limit else 'no device was the limit'}"


def _summed(trials: Sequence[Trial]) -> Sums:
    return sum((trial.sums for trial in trials), Sums())


def limits(found: Mapping[str, Any], trials: Mapping[str, Trial]) -> list[Limit]:
    """Of each cell with captures that have devices."""
    out = []
    for cell in cell_names(found["design"]):
        of = _summed([trials[trial["run"]] for trial in found["legs"] if trial["side"] == cell and trial["run"] in trials])
        if of.devices and of.seconds:
            name, busiest = max(of.devices.items(), key=lambda one: one[1]["busy_s"])
            busy = busiest["busy_s"] / of.seconds
            out.append(Limit(cell, name, busy, busiest["queue_s"] / of.seconds, busy >= BUSY))
    return out


def lines(levels: Sequence[OfLevel], of_cells: Sequence[Limit] = ()) -> list[str]:
    """For a terminal: the busiest devices, and the rows that moved most."""
    out = ["", "Busiest devices", *(limit.text for limit in of_cells)] if of_cells else []
    for level in levels:
        out += ["", f"Where the time moved: {level.other} (B, {level.trials[1]} trials) against {level.one} (A, {level.trials[0]} trials)"]
        for table in level.tables:
            most = len(table.grid.rows) if table.key in IN_ORDER else MOST
            grid, left = replace(table.grid, rows=table.grid.rows[:most]), len(table.grid.rows) - most
            out += ["", table.title, *(grid.lines() if grid.rows else [f"  {grid.empty}"])]
            out += [f"{left} more, which moved less: leadline study show --json"] if left > 0 else []
    return out


def _trial(sums: Sums, server: Capture, path: Path) -> Trial:
    """With the transactions of the load itself, where they are known: the server counts also what looks at it. path: of its capture."""
    if not (path / MANIFEST).is_file():
        return Trial(sums)
    load = open_capture(path, hold=True)
    try:
        (row,) = load.rows(
            "select coalesce(sum(done), 0) as done, coalesce(sum(duration_ns) filter (not after_the_end), 0) / 1e9 as s from load_second"
        )
        by_phase = phases.by_phase(server, load)
    finally:
        load.close()
    if row["done"] and row["s"]:
        sums = replace(sums, transactions=float(row["done"]), counted_s=float(row["s"]), of_load=True)
    return Trial(sums, by_phase)


def captured(found: Mapping[str, Any], directory: Path) -> dict[str, Trial]:
    """directory: of the study. By run of the trial; of those that ended well and whose capture of the server is there."""
    kept: dict[str, Any] = {}
    with suppress(OSError, ValueError, AttributeError):
        said = json.loads((directory / SUMS).read_text(encoding="utf-8"))
        kept = said["trials"] if said.get("format") == FORMAT else {}
    out, more = dict[str, Trial](), False
    for trial in found["legs"]:
        uid, path = trial["run"], server_capture(directory, trial["n"], trial["run"])
        if trial["part"] != "leg" or trial["problem"] or not (path / MANIFEST).is_file():
            continue
        if uid in kept:
            out[uid] = Trial(Sums(**kept[uid]["sums"]), {name: Phase(**phase) for name, phase in kept[uid]["phases"].items()})
            continue
        with suppress(LeadlineError):
            side = of_capture(path)
            assert side.capture is not None
            try:
                out[uid] = _trial(sums_of(side), side.capture, load_capture(directory, trial["n"], uid))
            finally:
                side.capture.close()
            kept[uid], more = asdict(out[uid]), True
    if more:
        with suppress(OSError):
            write_durably(directory / SUMS, json.dumps({"format": FORMAT, "trials": kept}).encode())
    return out
