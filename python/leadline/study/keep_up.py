"""A trial of the studies `keep-up` and `overload`: WAL is made at a fixed rate, and a standby keeps up with it or not.

    leadline.study.keep_up DSN STANDBY_DSN --rate 200 --for 15s --script SQL

It goes on for up to four times as long while the verdict is not clear. When the load has ended, it waits until all is replayed. It also
reads how long the process that replays runs on a CPU. Prints one object of JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from leadline.engines.postgres.forecast import Reading, capacity
from leadline.study import trial
from leadline.study.backlog import FALLS_BEHIND, UNDECIDED, Backlog, backlog
from leadline.study.drain import cpu_of, startup_of
from leadline.study.load_beside import LoadBeside
from leadline.study.positions import NO_WAL, STARTS_S, Positions, connected, until, until_replayed
from leadline.units import MB

WARM_UP_S = 1.0
LONGER = (1, 2, 4)  # times the time asked for
TOO_LONG = "the servers do not answer for too long"


def main(argv: list[str]) -> int:
    parser = trial.of_pair("keep_up")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--script", required=True)
    trial.take_times(parser, for_s="15s", most_s="300s")
    return trial.run(parser, keep_up, argv)


def keep_up(given: argparse.Namespace) -> dict[str, Any]:
    """Raises LeadlineError."""
    with closing(connected(given.standby)) as standby:
        startup = startup_of(standby)
    with closing(Positions(given.primary, given.standby)) as positions:
        positions.start()
        until_replayed(positions, given.most_s)
        with LoadBeside(given.primary, given.script, given.rate, STARTS_S + LONGER[-1] * (given.for_s + STARTS_S)) as load:
            until(positions, load.has_begun, STARTS_S, NO_WAL)
            until(positions, reaches(time.monotonic() + WARM_UP_S), WARM_UP_S + STARTS_S, TOO_LONG)
            begun, before = time.monotonic(), cpu_of(startup)
            for times in LONGER:
                until(positions, reaches(begun + times * given.for_s), given.for_s * times + STARTS_S, TOO_LONG)
                under_load = positions.since(begun)
                found = backlog(under_load)
                if found.verdict != UNDECIDED:
                    break
            used = cpu_of(startup) - before, time.monotonic() - begun
        over, before = time.monotonic(), cpu_of(startup)
        until_replayed(positions, given.most_s, after_s=over)
        after, drain_cpu_s = positions.since(over), cpu_of(startup) - before
    return account(found, under_load, after, used[0] / used[1], drain_cpu_s)


def account(found: Backlog, under_load: Sequence[Reading], after: Sequence[Reading], cpu: float, drain_cpu_s: float) -> dict[str, Any]:
    """after: from the end of the load until all was replayed. at_most, drained: rates of replay while it always had work; empty where that
    was not for long enough. Under a load that it keeps up with, it never has. cpu: of replay under the load, as a share of one CPU."""
    at_most = capacity(under_load) if found.verdict == FALLS_BEHIND else None
    drained = capacity(after)
    drained_mb = (after[-1].replayed - after[0].replayed) / MB
    return {
        "verdict": found.verdict, "watched_s": round(under_load[-1].at_s - under_load[0].at_s, 3),
        "made_mb_s": round(found.made_per_s / MB, 6), "replayed_mb_s": round(found.replayed_per_s / MB, 6),
        "growth": round(found.growth, 6), "growth_low": round(found.low, 6), "growth_high": round(found.high, 6),
        "behind_s": round(found.behind_s, 4), "at_most_mb_s": None if at_most is None else round(at_most.rate / MB, 6),
        "drained_mb_s": None if drained is None else round(drained.rate / MB, 6),
        "drained_ratio": None if at_most is None or drained is None else round(drained.rate / at_most.rate, 6),
        "drain_s": round(after[-1].at_s - after[0].at_s, 3), "replay_cpu_percent": round(100 * cpu, 4),
        "replayed_mb_cpu_s": round(found.replayed_per_s / MB / cpu, 3) if cpu > 0 else None,
        "drained_mb_cpu_s": None if drained is None or drain_cpu_s <= 0 else round(drained_mb / drain_cpu_s, 3),
    }  # fmt: skip


def reaches(at_s: float) -> Callable[[Sequence[Reading]], bool]:
    return lambda readings: readings[-1].at_s >= at_s


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
