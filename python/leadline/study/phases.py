"""Latencies of a load by what the checkpointer did meanwhile: the tail of a study is often made there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from leadline.capture.reader import Capture
from leadline.compare.moved import Moved
from leadline.views.grid import Column, Grid

PHASES = {"none": "no checkpoint", "write": "a checkpoint writes", "sync": "a checkpoint syncs"}
WEIGHT = {phase: at for at, phase in enumerate(PHASES)}
STEP = 1.01  # times are counted in classes of 1 %
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True)
class Phase:
    """Of the seconds of a load in which the checkpointer was in this phase, or in a part of them: how long they are; times by class.

    counts: transactions, by the exponent of STEP of the upper end of their class in ns.
    """

    seconds: float = 0.0
    counts: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Phase) -> Phase:
        counts = dict(self.counts)
        for key, count in other.counts.items():
            counts[key] = counts.get(key, 0.0) + count
        return Phase(self.seconds + other.seconds, counts)

    @property
    def transactions(self) -> float:
        return sum(self.counts.values())

    def quantile_ms(self, share: float) -> float | None:
        """Not longer than this were so many; None without transactions, or where this share leaves none above."""
        if self.transactions * (1 - share) < 1:
            return None
        below, wanted = 0.0, share * self.transactions
        for key in sorted(self.counts, key=int):
            below += self.counts[key]
            if below >= wanted:
                return STEP ** int(key) / 1e6
        return None


def by_phase(server: Capture, load: Capture) -> dict[str, Phase]:
    """Of two captures of one host. Nothing where the server's has no checkpointer."""
    if server.unavailable("checkpoint_phase") or load.unavailable("load_second"):
        return {}
    intervals = [(row["ts_from"], row["ts"], row["phase"]) for row in server.rows("select ts_from, ts, phase from checkpoint_phase")]
    seconds = load.rows("select ts, phase, duration_ns, after_the_end from load_second where not warm_up")
    of = {(row["ts"], row["phase"]): _phase(intervals, row["ts"] - row["duration_ns"], row["ts"]) for row in seconds}
    out, counted = dict[str, Phase](), {name: dict[str, float]() for name in PHASES}
    for row in seconds:
        if (phase := of[row["ts"], row["phase"]]) and not row["after_the_end"]:
            out[phase] = out.get(phase, Phase()) + Phase(row["duration_ns"] / 1e9)
    for row in load.rows("select ts, phase, high_ns, count from load_bucket where kind = 'latency' and count > 0"):
        if in_phase := of.get((row["ts"], row["phase"])):
            key = str(math.ceil(math.log(max(row["high_ns"], 1), STEP)))
            counted[in_phase][key] = counted[in_phase].get(key, 0.0) + row["count"]
    return {name: out.get(name, Phase()) + Phase(0.0, counts) for name, counts in counted.items() if name in out or counts}


def _phase(intervals: Sequence[tuple[int, int, str]], begin: int, end: int) -> str:
    """The heaviest of those that overlap; empty where nothing was seen."""
    found = [phase for ts_from, ts, phase in intervals if ts_from < end and ts > begin]
    return max(found, key=WEIGHT.__getitem__, default="")


def summed(trials: Iterable[Mapping[str, Phase]]) -> dict[str, Phase]:
    out = dict[str, Phase]()
    for trial in trials:
        for name, phase in trial.items():
            out[name] = out.get(name, Phase()) + phase
    return out


def table(one: Mapping[str, Phase], other: Mapping[str, Phase]) -> Iterator[Moved]:
    """A row for each phase of either, if there was a checkpoint at all."""
    if not any(name != "none" for name in (*one, *other)):
        return
    rows = []
    for name, title in PHASES.items():
        pair = [of.get(name, Phase()) for of in (one, other)]
        if any(phase.seconds or phase.counts for phase in pair):
            values = [value for share in SHARES.values() for value in (phase.quantile_ms(share) for phase in pair)]
            rows.append((title, *(phase.seconds for phase in pair), *values))
    columns = [Column("phase", "", "text"), Column("one_s", "s A", "figure"), Column("other_s", "s B", "figure")]
    for name in SHARES:
        key, minor = name.replace(".", "_"), name == "p50"
        columns += [Column(f"{of}_{key}_ms", f"{name} {letter}", "figure", minor) for of, letter in (("one", "A"), ("other", "B"))]
    note = "A second counts where the checkpointer was in this phase in a part of it; of two, the later line."
    yield Moved("phases", "Latency by what the checkpointer did, ms", Grid(tuple(columns), rows, note=note))
