"""How fast a standby replays WAL that has waited for it, and how long the process that replays runs on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from leadline.engines.postgres.forecast import Reading
from leadline.engines.postgres.server.standby import STARTED
from leadline.errors import LeadlineError
from leadline.host import proc
from leadline.study.positions import Positions, until, until_replayed

NOT_RECEIVED = "the standby does not receive the WAL"


@dataclass(frozen=True)
class Replayed:
    """A backlog: bytes, and the readings from when replay went on until nothing was left. cpu_s: of the process that replays."""

    replayed: int
    seconds: float
    cpu_s: float
    readings: list[Reading]


def of_backlog(
    positions: Positions,
    standby: psycopg.Connection[Any],
    make: Callable[[], object],
    most_s: float,
    before: Callable[[], None] = lambda: None,
) -> Replayed:
    """How fast is replayed what is made while replay is paused, with nothing else at work. before: it goes on. Raises LeadlineError."""
    until_replayed(positions, most_s)
    standby.execute("select pg_wal_replay_pause()")
    try:
        make()
        done = time.monotonic()
        until(positions, lambda now: now[-1].at_s > done and now[-1].on_disk >= now[-1].made, most_s, NOT_RECEIVED)
        before()
        startup = startup_of(standby)
        used, begun, at_begin = cpu_of(startup), time.monotonic(), positions.readings[-1]
    finally:
        standby.execute("select pg_wal_replay_resume()")
    until_replayed(positions, most_s, after_s=begun)
    readings = positions.since(begun)
    return Replayed(readings[-1].replayed - at_begin.replayed, readings[-1].at_s - begun, cpu_of(startup) - used, readings)


def startup_of(standby: psycopg.Connection[Any]) -> int:
    """The process that replays. Raises LeadlineError."""
    row = standby.execute(STARTED.encode()).fetchone()
    if row is None:
        raise LeadlineError("gone", "the standby has no process that replays")
    return int(row[0])


def cpu_of(startup: int) -> float:
    """For how long it has run on a CPU. Raises LeadlineError."""
    if (used := proc.cpu_s(startup)) is None:
        raise LeadlineError("gone", "the process that replays has ended, or is not on this host")
    return used
