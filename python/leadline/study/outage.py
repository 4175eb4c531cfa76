"""A trial of the study `outage`: cuts a standby off from its primary under load, and measures how it catches up.

    leadline.study.outage DSN STANDBY_DSN --cut 10s --rate 50 --script SQL

The connection of the standby is pointed to nowhere, and back after the outage. From the first seconds in which it streams again the same
forecast is made as by `leadline replication forecast`, and compared with what came. Prints one object of JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg

from leadline.engines.postgres.forecast import Forecast, Reading, forecast
from leadline.errors import LeadlineError
from leadline.study import trial
from leadline.study.load_beside import LoadBeside
from leadline.study.positions import NO_WAL, STARTS_S, Positions, connected, rate_of, until

NOWHERE = "host=127.0.0.1 port=1 connect_timeout=1"
TOO_LONG = "it takes too long"
MOMENT_S = 0.2  # a few readings: what is made meanwhile is on its way
WATCHED_S = 3.0  # of which the forecast is made
GONE = "select count(*) from pg_stat_replication"
STREAMS = "select count(*) from pg_stat_replication where state in ('streaming', 'catchup')"


def main(argv: list[str]) -> int:
    parser = trial.of_pair("outage")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--script", required=True)
    trial.take_times(parser, cut="10s", before="4s", most="120s")
    return trial.run(parser, outage, argv)


def outage(given: argparse.Namespace) -> dict[str, Any]:
    """Raises LeadlineError."""
    longest = STARTS_S * 3 + given.before + given.cut + given.most
    with (
        closing(Positions(given.primary, given.standby)) as positions,
        LoadBeside(given.primary, given.script, given.rate, longest) as load,
        closing(connected(given.primary)) as primary,
        closing(connected(given.standby)) as standby,
    ):
        positions.start()
        until(positions, load.has_begun, STARTS_S, NO_WAL)
        begun = time.monotonic()
        until(positions, lambda _: time.monotonic() >= begun + given.before, given.before + STARTS_S, TOO_LONG)
        was = _one(standby, "show primary_conninfo")
        made_per_s = rate_of(positions.since(begun))
        try:
            _point(standby, NOWHERE)
            _asked_until(positions, primary, GONE, 0, "the standby does not let go of its primary")
            cut = time.monotonic()
            until(positions, lambda _: time.monotonic() >= cut + given.cut, given.cut + STARTS_S, TOO_LONG)
        finally:
            _point(standby, was)
        _asked_until(positions, primary, STREAMS, 1, "the standby does not come back")
        back = time.monotonic()
        until(positions, lambda readings: readings[-1].at_s >= back + WATCHED_S, WATCHED_S + STARTS_S, TOO_LONG)
        seen = positions.since(back)
        told, told_at = forecast("standby", seen), seen[-1].at_s
        try:
            until(positions, lambda readings: caught_up(readings, back) is not None, given.most, TOO_LONG)
        except LeadlineError:
            if positions.problem:
                raise
        return account(positions.since(begun), cut, back, told, told_at, made_per_s).as_dict()


@dataclass(frozen=True)
class Account:
    """Seconds count from the moment at which the standby streamed again. lag_bytes: the most that it was behind. reached_s: it had
    replayed what was made by then. caught_up_s: nothing waited any more. forecast_s: what was told for that, at told_s; empty where
    nothing was."""

    outage_s: float
    lag_bytes: int
    made_per_s: float
    can_replay_per_s: float | None
    verdict: str
    told_s: float
    forecast_s: float | None
    reached_s: float | None
    caught_up_s: float | None

    def as_dict(self) -> dict[str, Any]:
        """With the ratio of what was forecast to what came, of the time that was still to come when it was told."""
        left = None if self.caught_up_s is None else self.caught_up_s - self.told_s
        told = None if self.forecast_s is None else self.forecast_s - self.told_s
        return vars(self) | {"forecast_ratio": told / left if told is not None and left is not None and left > 0 else None}


def account(readings: list[Reading], cut: float, back: float, told: Forecast | None, told_at: float, made_per_s: float) -> Account:
    """readings: from before the outage on. told_at: of the last reading of which the forecast was made."""
    at_back = next((one for one in readings if one.at_s >= back), readings[-1])
    reached = next((one.at_s for one in readings if one.at_s >= back and one.replayed >= at_back.made), None)
    caught = caught_up(readings, back)
    seconds = None if told is None else told.catch_up_s
    can_replay = told.capacity.rate if told is not None and told.capacity else None
    return Account(
        back - cut, max(one.made - one.replayed for one in readings), made_per_s, can_replay,
        "unknown" if told is None else told.verdict, told_at - back, None if seconds is None else told_at - back + seconds,
        None if reached is None else reached - back, None if caught is None else caught - back,
    )  # fmt: skip


def caught_up(readings: Sequence[Reading], back: float) -> float | None:
    """When nothing waits any more: all is replayed that had been made a moment before. The forecast is of the same."""
    first = 0
    for one in readings:
        while first + 1 < len(readings) and readings[first + 1].at_s <= one.at_s - MOMENT_S:
            first += 1
        if one.at_s >= back + MOMENT_S and one.replayed >= readings[first].made:
            return one.at_s
    return None


def _point(standby: psycopg.Connection[Any], conninfo: str) -> None:
    quoted = conninfo.replace("'", "''")
    for statement in (f"alter system set primary_conninfo = '{quoted}'", "select pg_reload_conf()"):
        standby.execute(statement.encode())


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    return None if row is None else row[0]


def _asked_until(positions: Positions, primary: psycopg.Connection[Any], query: str, wanted: int, problem: str) -> None:
    until(positions, lambda _: _one(primary, query) == wanted, STARTS_S, problem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
