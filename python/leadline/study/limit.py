"""A trial of the study `limit`: between which two rates of WAL a standby ceases to keep up.

    leadline.study.limit DSN STANDBY_DSN --from 200 --width 5% --for 10s --script SQL --clear SQL

Rates are tried, as in the trials of `keep-up`, until the highest with which the standby keeps up and the lowest with which it does not are
as near to each other as asked; each of these is tried twice, and a third time where the two differ. A trial in which the load did not reach
its rate does not count. Then replay is paused while about as
much WAL is made as it replays in the time of a trial, and it is timed how long it takes to replay that: what it can replay, known from no
verdict. Prints one object of JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import psycopg

from leadline.book.experiments.design import margin_of
from leadline.errors import LeadlineError
from leadline.load.limit import bounds, find
from leadline.study import trial
from leadline.study.backlog import KEEPS_UP
from leadline.study.drain import Replayed, of_backlog
from leadline.study.keep_up import keep_up
from leadline.study.positions import Positions, connected
from leadline.units import MB

REACHED, TRIES = 0.95, 4  # of the rate that was asked for; how often a rate is tried that is not reached


def main(argv: list[str]) -> int:
    parser = trial.of_pair("limit")
    parser.add_argument("--from", dest="start", type=float, required=True)
    parser.add_argument("--width", type=margin_of, default=0.05)
    parser.add_argument("--script", required=True)
    parser.add_argument("--clear", required=True)
    trial.take_times(parser, for_s="10s", most_s="300s")
    return trial.run(parser, limit, argv)


@dataclass(frozen=True)
class Tried:
    """A trial of a rate. rate: transactions a second that were asked for."""

    rate: float
    verdict: str
    made_mb_s: float
    replayed_mb_s: float
    replay_cpu_percent: float
    watched_s: float

    @property
    def kept(self) -> bool:
        """What is undecided after four times the time is not kept up with."""
        return self.verdict == KEEPS_UP


def limit(given: argparse.Namespace) -> dict[str, Any]:
    """Raises LeadlineError."""
    with closing(connected(given.primary)) as primary, closing(connected(given.standby)) as standby:

        def attempt(rate: float) -> Tried:
            clear(primary, standby, given.clear)
            found = keep_up(argparse.Namespace(**vars(given) | {"rate": rate}))
            return Tried(rate, *(found[name] for name in list(Tried.__dataclass_fields__)[1:]))

        tried = find(given.start, given.width, Whole(attempt).attempt)
        low, high = bounds_of(tried)
        clear(primary, standby, given.clear)
        statement, times = given.script.encode(), max(round(low * given.for_s), 1)

        def make() -> None:
            for _ in range(times):
                primary.execute(statement)

        with closing(Positions(given.primary, given.standby)) as positions:
            positions.start()
            backlog = of_backlog(positions, standby, make, given.most_s)
    return account(tried, low, high, backlog)


class Whole:
    """Trials in which the load made what the rate asks for, by what a transaction made before: a busy host does not always let it."""

    def __init__(self, attempt: Callable[[float], Tried]) -> None:
        self._attempt = attempt
        self._each = 0.0  # MB of a transaction

    def attempt(self, rate: float) -> Tried:
        """Raises LeadlineError where the load does not reach the rate, as often as it is tried."""
        for _ in range(TRIES):
            found = self._attempt(rate)
            self._each = max(self._each, found.made_mb_s / rate)
            if found.made_mb_s >= REACHED * self._each * rate:
                return found
        detail = f"{found.made_mb_s:.3g} of {self._each * rate:.3g} MB/s"
        hint = "a host with less other work, or less CPU for replay"
        raise LeadlineError("gone", "the load does not reach its rate", detail=detail, hint=hint)


def bounds_of(tried: Sequence[Tried]) -> tuple[float, float]:
    """The rates next to the limit. Raises LeadlineError where all that were tried lie on one side of it."""
    low, high = bounds(tried)
    if low is None or high is None:
        detail = ", ".join(f"{one.made_mb_s:.3g}" for one in sorted(tried, key=lambda one: one.rate)) + " MB/s"
        said = "none" if low is None else "all"
        raise LeadlineError("gone", f"the standby keeps up with {said} of these rates", detail=detail, hint="another share of a CPU")
    return low, high


def clear(primary: psycopg.Connection[Any], standby: psycopg.Connection[Any], statement: str) -> None:
    """Each trial begins with the same, and the WAL of the one before is not kept."""
    primary.execute(statement.encode())
    for server in (primary, standby):
        server.execute("checkpoint")


def account(tried: Sequence[Tried], low: float, high: float, backlog: Replayed) -> dict[str, Any]:
    """low, high: the rates next to the limit. Their MB/s and CPU are medians of the trials of that rate; the limit is their middle."""
    at_low, at_high = ([one for one in tried if one.rate == rate] for rate in (low, high))
    low_mb_s, high_mb_s = (median(one.made_mb_s for one in of) for of in (at_low, at_high))
    middle, replayed = (low_mb_s * high_mb_s) ** 0.5, backlog.replayed / backlog.seconds / MB
    return {
        "low_mb_s": round(low_mb_s, 6), "high_mb_s": round(high_mb_s, 6), "limit_mb_s": round(middle, 6),
        "backlog_mb_s": round(replayed, 6), "limit_by_backlog": round(middle / replayed, 6),
        "low_cpu_percent": round(median(one.replay_cpu_percent for one in at_low), 4),
        "high_cpu_percent": round(median(one.replay_cpu_percent for one in at_high), 4),
        "backlog_cpu_percent": round(100 * backlog.cpu_s / backlog.seconds, 4), "backlog_s": round(backlog.seconds, 3),
        "tried": [asdict(one) for one in tried],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
