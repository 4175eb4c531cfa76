"""Where the time moved between the levels of a study: sums of the captures of its trials, compared as two captures are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from leadline.book.experiments.cells import name_of
from leadline.book.experiments.studies import cell_names
from leadline.capture.manifest import MANIFEST
from leadline.capture.reader import open_capture
from leadline.compare.environment import of_capture
from leadline.compare.moved import Moved, Sums, between, sums_of
from leadline.errors import LeadlineError
from leadline.replacing import write_durably
from leadline.study.loads import load_capture, server_capture

FORMAT = 4  # of that file: as the fields of Sums are
SUMS = "sums.json"  # of captures, by trial: they take a while to read
BUSY = 0.9  # of the time: more requests would only wait longer, on a device that serves one after another
MOST = 5  # rows of a table on a terminal


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


def moved(found: Mapping[str, Any], sums: Mapping[str, Sums]) -> list[OfLevel]:
    """found: of studies.study, with a verdict. sums: of captured(). Each level against the baseline of its factor, over all others."""
    design = found["design"]
    cells = {name: tuple(cell) for name, cell in zip(cell_names(design), design["cells"])}
    out = []
    for at, factor in enumerate(design["factors"]):
        labels = [label for label, _ in factor["levels"]]
        of: dict[str, list[Sums]] = {label: [] for label in labels}
        for trial in found["legs"]:
            if trial["run"] in sums:
                of[cells[trial["side"]][at]].append(sums[trial["run"]])
        for label in labels[1:]:
            if of[label] and of[labels[0]]:
                one, other = (sum(of[each], Sums()) for each in (labels[0], label))
                trials = (len(of[labels[0]]), len(of[label]))
                names = [name_of([factor["name"]], (each,)) for each in (labels[0], label)]
                out.append(OfLevel(names[0], names[1], trials, tuple(between(one, other))))
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


def limits(found: Mapping[str, Any], sums: Mapping[str, Sums]) -> list[Limit]:
    """Of each cell with captures that have devices."""
    out = []
    for cell in cell_names(found["design"]):
        of = sum((sums[trial["run"]] for trial in found["legs"] if trial["side"] == cell and trial["run"] in sums), Sums())
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
            grid, left = replace(table.grid, rows=table.grid.rows[:MOST]), len(table.grid.rows) - MOST
            out += ["", table.title, *(grid.lines() if grid.rows else [f"  {grid.empty}"])]
            out += [f"{left} more, which moved less: leadline study show --json"] if left > 0 else []
    return out


def _with_load(sums: Sums, path: Path) -> Sums:
    """With the transactions of the load itself, where they are known: the server counts also what looks at it."""
    if not (path / MANIFEST).is_file():
        return sums
    capture = open_capture(path, hold=True)
    try:
        (row,) = capture.rows(
            "select coalesce(sum(done), 0) as done, coalesce(sum(duration_ns) filter (not after_the_end), 0) / 1e9 as s from load_second"
        )
    finally:
        capture.close()
    return replace(sums, transactions=float(row["done"]), counted_s=float(row["s"]), of_load=True) if row["done"] and row["s"] else sums


def captured(found: Mapping[str, Any], directory: Path) -> dict[str, Sums]:
    """directory: of the study. By run of the trial; of those that ended well and whose capture of the server is there."""
    kept: dict[str, Any] = {}
    with suppress(OSError, ValueError, AttributeError):
        said = json.loads((directory / SUMS).read_text(encoding="utf-8"))
        kept = said["trials"] if said.get("format") == FORMAT else {}
    out, more = dict[str, Sums](), False
    for trial in found["legs"]:
        uid, path = trial["run"], server_capture(directory, trial["n"], trial["run"])
        if trial["part"] != "leg" or trial["problem"] or not (path / MANIFEST).is_file():
            continue
        if uid in kept:
            out[uid] = Sums(**kept[uid])
            continue
        with suppress(LeadlineError):
            side = of_capture(path)
            assert side.capture is not None
            try:
                out[uid] = _with_load(sums_of(side), load_capture(directory, trial["n"], uid))
            finally:
                side.capture.close()
            kept[uid], more = asdict(out[uid]), True
    if more:
        with suppress(OSError):
            write_durably(directory / SUMS, json.dumps({"format": FORMAT, "trials": kept}).encode())
    return out
