"""A study of a pair over time: of a trial of each cell, what its capture shows of the WAL that is made, replayed and not replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from leadline.book.experiments.cells import name_of
from leadline.book.experiments.studies import cell_names
from leadline.capture.manifest import MANIFEST
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.study.curves import LOW, Curve, curves
from leadline.study.knees import MADE
from leadline.study.loads import server_capture
from leadline.study.loopback import heading
from leadline.units import MB

PART_NS, MOST = 500_000_000, 8  # curves of a plot
READ = """
select max(ts) / 1e9 as at_s, arg_max(made_lsn, ts) as made, arg_max(replay_lsn, ts) as replayed
from replication_lag where is_standby and made_lsn is not null group by ts // ? order by at_s
"""
Part = tuple[float, float, float, float]  # at its end: seconds, MB/s made and replayed in it, MB not replayed


def parts(path: Path) -> list[Part]:
    """Of a capture; empty where it knows nothing of a standby."""
    with closing(open_capture(path)) as capture:
        if capture.unavailable("replication_lag") is not None:
            return []
        rows = capture.rows(READ, [PART_NS])
    out = []
    for before, row in pairwise(rows):
        seconds = row["at_s"] - before["at_s"]
        made, replayed = ((row[name] - before[name]) / seconds / MB for name in ("made", "replayed"))
        out.append((row["at_s"] - rows[0]["at_s"], made, replayed, max(row["made"] - row["replayed"], 0) / MB))
    return out


def drawn(found: Mapping[str, Any], directory: Path) -> list[str]:
    """For the report. directory: of the study. One plot for each level of all factors but the last, whose levels are the curves; where the
    study is of a rate, also of how fast is replayed."""
    design = found["design"]
    if not design["server"].get("standby") or "command" not in design["load"] or found["judged"] is None:
        return []
    names, of = [factor["name"] for factor in design["factors"]], dict[str, list[tuple[str, list[Part]]]]()
    for cell, named in zip(design["cells"], cell_names(design)):
        if seen := _first(found["legs"], named, directory):
            of.setdefault(name_of(names[:-1], tuple(cell[:-1])), []).append((cell[-1], seen))
    whats = [("MB of WAL not replayed", 3)]
    if MADE in {metric["name"] for metric in design["metrics"]}:
        whats.append(("MB/s replayed", 2))
    out = [heading("Over time, in the first trial of each", found)] if of else []
    for name, cells in of.items():
        for what, number in whats:
            shown = [Curve(level, over_time=[(part[0], part[number]) for part in seen]) for level, seen in cells[:MOST]]
            title = what + (f", {name}" if name else "")
            out.append(curves(title, f"seconds of the trial; a line for each {names[-1]}", shown, LOW))
    return out


def _first(trials: Sequence[Mapping[str, Any]], name: str, directory: Path) -> list[Part]:
    """Of the trials of a cell, the first that has a capture."""
    for trial in trials:
        path = server_capture(directory, trial["n"], trial["run"])
        if trial["part"] == "leg" and trial["side"] == name and not trial["problem"] and (path / MANIFEST).is_file():
            with suppress(LeadlineError):
                return parts(path)
    return []
