"""A recorder's directory over time: sums of its pieces, each read once by a thread, those of the window that is looked at first.

A picture of two weeks comes bit by bit: what is not read yet is told apart from what was not seen. The sums are of samples: which part of
them was time in the run queue takes several times as long to read, and a window that is opened has it.

Times are seconds of the wall clock from the begin of the first piece, each piece in steps of `base_ns`. Pieces that have come meanwhile are
there when the page is loaded again; where time is counted from stays.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from leadline.capture.gaps import CAUSES
from leadline.capture.manifest import MANIFEST
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.explore.address import read_state, wrong
from leadline.explore.answers import palette
from leadline.explore.happened import Kind, happened
from leadline.explore.marks import MOST
from leadline.explore.queries import MOST_STEPS, Asked
from leadline.recorder.pieces import Piece, Pieces, gaps
from leadline.views.where import time_step

MOST_BASE_STEPS = 20_000  # of all pieces: sums of a fine window come from the window as a capture
BY_STEP = "select (ts - {begin} + {offset}) // {base} as step, {columns} from {table} where {where} and ts < {end} group by all"
OF_SAMPLES = (
    "the pieces that were there when the page was loaded, by samples of active sessions; a window that is opened has the time in the "
    "run queue, too"
)


@dataclass
class Sums:
    """Of one piece. spent: step, wait class, seconds. passes: step, seconds. away: from, to (ns) and why."""

    spent: list[tuple[int, str, float]] = field(default_factory=list)
    passes: list[tuple[int, float]] = field(default_factory=list)
    away: list[tuple[int, int, str]] = field(default_factory=list)
    cpu_count: int | None = None
    error: str = ""


class Overview:
    """origin: where time is counted from, in ns since 1970; without it the begin of the first piece. Raises LeadlineError for a directory
    without a piece.
    """

    def __init__(self, directory: Path, origin: int | None = None) -> None:
        self.directory = directory
        self.sums: dict[str, Sums] = {}
        self.pieces: list[Piece] = []
        self._look()
        self.wall_from = min(p.wall_from for p in self.pieces) if origin is None else origin
        length_s = max(self.wall_to - self.wall_from, 10**9) / 1e9
        self.base_ns = 10 ** math.floor(math.log10(time_step(length_s, 0, MOST_BASE_STEPS) * 1e9))
        self._wanted = (self.wall_from, self.wall_to)
        self._stopping = threading.Event()
        self._looking = threading.Lock()
        self._begin()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    # -- reading -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Which pieces there are. Of what is read, what has grown or gone since is read again or forgotten."""
        found = Pieces(self.directory).read()
        pieces = [p for p in found if p.ts_from is not None and p.ts_to is not None and p.wall_to > p.wall_from]
        if not pieces:
            raise LeadlineError("not_found", "the recorder has no piece to explore", where=str(self.directory))
        known = set(self.pieces)
        self.sums = {p.name: self.sums[p.name] for p in pieces if p.name in self.sums and p in known}
        self.pieces, self.damaged, self.gaps = pieces, [p for p in found if p.status == "damaged"], gaps(found)
        self.wall_to: int = max(p.wall_to for p in pieces)

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._read_all, daemon=True)
        self._thread.start()

    def look_again(self) -> None:
        """Takes in what has come since. The thread that reads must have ended for that; else the picture is not whole yet anyway."""
        with self._looking:
            if not self._thread.is_alive() and not self._stopping.is_set():
                self._look()
                self._begin()

    def _read_all(self) -> None:
        while not self._stopping.is_set() and (piece := self._next()) is not None:
            self.sums[piece.name] = self._read(piece)

    def _next(self) -> Piece | None:
        """The last one of the window that is looked at; then the last one of all."""
        left = [p for p in self.pieces if p.name not in self.sums]
        low, high = self._wanted
        return max(left, key=lambda p: (p.wall_from < high and p.wall_to > low, p.wall_from), default=None)

    def _read(self, piece: Piece) -> Sums:
        place = {"begin": piece.ts_from, "end": piece.ts_to, "offset": piece.wall_from - self.wall_from, "base": self.base_ns}
        try:
            with closing(open_capture(piece.path)) as capture:
                if why := capture.unavailable("session_sample"):
                    return Sums(error=why)
                spent, seen = "wait_class, sum(weight_s) as seconds", "sum(period_ns) / 1e9 as seconds"
                out = Sums(cpu_count=capture.manifest.target.cpu_count)
                for row in capture.rows(BY_STEP.format(columns=spent, table="session_sample", where="in_db_time", **place)):
                    out.spent.append((row["step"], row["wait_class"], row["seconds"]))
                for row in capture.rows(BY_STEP.format(columns=seen, table="tick", where="true", **place)):
                    out.passes.append((row["step"], row["seconds"]))
                shift = piece.wall_from - (piece.ts_from or 0)
                if capture.unavailable("server_gap") is None:
                    for row in capture.rows("select ts_from, ts_to, cause from server_gap"):
                        to = piece.wall_to if row["ts_to"] is None else row["ts_to"] + shift
                        out.away.append((row["ts_from"] + shift, to, CAUSES.get(row["cause"], row["cause"])))
                return out
        except LeadlineError as e:  # damaged, or removed meanwhile by the recorder
            return Sums(error=e.message)

    # -- answers -------------------------------------------------------------------------------------------------------

    def state(self, query: str) -> Asked:
        """The window in whole base steps, and a filter by class: the sums have nothing else."""
        asked = read_state(query, 0, self.wall_to - self.wall_from).asked
        if other := [name for name, _ in asked.filters if name != "class"]:
            raise wrong(f"the overview of a recorder has no {other[0]}: open a window of it")
        base, last = self.base_ns, self.wall_to - self.wall_from
        return Asked(asked.ts_from // base * base, min(-(-asked.ts_to // base) * base, last), asked.filters)

    def about(self, _query: str) -> dict[str, Any]:
        """Asked once when the page is loaded."""
        self.look_again()
        notes = [OF_SAMPLES] + [f"{p.name} cannot be read: {p.error}" for p in self.damaged]
        notes += [f"{name} cannot be read: {sums.error}" for name, sums in sorted(self.sums.items()) if sums.error]
        counts = [sums.cpu_count for sums in self.sums.values() if sums.cpu_count]
        return palette() | {
            "recorder": True, "name": self.directory.name, "path": str(self.directory), "window_s": (self.wall_to - self.wall_from) / 1e9,
            "epoch_s": self.wall_from / 1e9, "pieces": len(self.pieces), "cpu_count": max(counts, default=None), "notes": notes,
            "other": None, "earlier": [],
        }  # fmt: skip

    def over_time(self, query: str) -> dict[str, Any]:
        asked = self.state(query)
        low, high = self.wall_from + asked.ts_from, self.wall_from + asked.ts_to
        self._wanted = (low, high)
        step_ns = max(round(time_step((asked.ts_to - asked.ts_from) / 1e9, 0, MOST_STEPS) * 1e9), self.base_ns)
        last = max((asked.ts_to - asked.ts_from + step_ns // 2) // step_ns, 1) - 1
        wanted = dict(asked.filters).get("class")
        spent: dict[tuple[int, str], float] = defaultdict(float)
        passes: dict[int, float] = defaultdict(float)

        def step_of(base_step: int) -> int | None:
            at = base_step * self.base_ns - asked.ts_from
            return min(at // step_ns, last) if 0 <= at < asked.ts_to - asked.ts_from else None

        there = [p for p in self.pieces if p.wall_from < high and p.wall_to > low]
        for sums in [self.sums[p.name] for p in there if p.name in self.sums]:
            for at, wait_class, seconds in sums.spent:
                if (step := step_of(at)) is not None and wanted in (None, wait_class):
                    spent[step, wait_class] += seconds
            for at, seconds in sums.passes:
                if (step := step_of(at)) is not None:
                    passes[step] += seconds
        unread = [p for p in there if p.name not in self.sums]
        return {
            "from_s": asked.ts_from / 1e9, "to_s": asked.ts_to / 1e9, "step_s": step_ns / 1e9, "last": last,
            "passes": [{"step": step, "observed_s": seconds} for step, seconds in sorted(passes.items())],
            "rows": [{"step": step, "wait_class": name, "seconds": of, "queue_s": 0} for (step, name), of in sorted(spent.items())],
            "filters": [{"by": name, "key": str(value), "label": str(value)} for name, value in asked.filters],
            "unread": [[self._seconds(p.wall_from), self._seconds(p.wall_to)] for p in unread],
            "pieces": len(there), "bytes": sum(p.bytes for p in there), "sql": [],
        }  # fmt: skip

    def marks(self, _query: str) -> dict[str, Any]:
        """What happened while it recorded: gaps, events, detail captures, runs with labels."""
        return {"kinds": [self._shown(kind) for kind in (self._away(), *happened(self.directory, self.wall_from, self.wall_to))]}

    def _away(self) -> Kind:
        """Gaps of the recorder, and those of the server in the pieces that were read. Without changes of a piece that no picture shows."""
        gaps = [(gap.wall_from, gap.wall_from + round(gap.seconds * 1e9), gap.why, gap.switch) for gap in self.gaps]
        away = [(low, high, why) for low, high, why, switch in gaps if not switch or high - low >= self.base_ns]
        away += [one for sums in list(self.sums.values()) for one in sums.away]
        return Kind("away", "not recorded", "away", "a time in which no recorder ran, or in which the server was away or not seen", away)

    def _shown(self, kind: Kind) -> dict[str, Any]:
        """As the page has it: of many, the longest."""
        there = [mark for mark in kind.marks if mark[1] >= self.wall_from and mark[0] <= self.wall_to]
        longest = sorted(there, key=lambda mark: mark[0] - mark[1])[:MOST]
        listed = [{"from_s": self._seconds(low), "to_s": self._seconds(high), "text": text} for low, high, text in sorted(longest)]
        return asdict(kind) | {"sql": [], "there": len(there), "marks": listed}

    def _seconds(self, wall_ns: int) -> float:
        return (wall_ns - self.wall_from) / 1e9


OF_RECORDER: Mapping[str, Callable[[Overview, str], Any]] = {
    "about": Overview.about, "marks": Overview.marks, "time": Overview.over_time,
}  # fmt: skip


def is_recorder(path: Path) -> bool:
    """A directory with pieces, which is no capture itself."""
    return path.is_dir() and not (path / MANIFEST).exists() and bool(Pieces(path).names())
