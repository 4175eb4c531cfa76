"""Where a primary and its standby are in the WAL, read over SQL again and again beside a load, by the clock of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from leadline.engines.postgres.forecast import Reading
from leadline.errors import LeadlineError

PRIMARY = "select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint"
STANDBY = """
select (coalesce(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn)::bigint,
       (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint
"""
EVERY_S, NO_WAL = 0.05, "no WAL is made"
STARTS_S = 60.0  # until a load runs, or a standby has gone or come


def connected(dsn: str) -> psycopg.Connection[Any]:
    """Raises LeadlineError."""
    try:
        return psycopg.connect(dsn, autocommit=True, connect_timeout=10, application_name="leadline study")
    except psycopg.Error as e:
        raise LeadlineError("connection", "a server of the pair cannot be asked", detail=" ".join(str(e).split())) from e


class Positions(threading.Thread):
    """readings: in order; the primary is read before its standby, so a lag is never too large by what was made in between."""

    def __init__(self, primary: str, standby: str) -> None:
        super().__init__(daemon=True)
        self._of = connected(primary), connected(standby)
        self.readings: list[Reading] = []
        self.problem = ""
        self._more, self._ending = threading.Condition(), threading.Event()

    def run(self) -> None:
        primary, standby = self._of
        while not self._ending.is_set():
            try:
                at = time.monotonic()
                made, (received, replayed) = _row(primary, PRIMARY)[0], _row(standby, STANDBY)
            except (psycopg.Error, TypeError) as e:
                self.problem = " ".join(str(e).split())
            with self._more:
                if not self.problem:
                    self.readings.append(Reading(at, made, max(received, replayed), replayed))
                self._more.notify_all()
            if self.problem:
                return
            self._ending.wait(max(at + EVERY_S - time.monotonic(), 0.0))

    def since(self, at_s: float) -> list[Reading]:
        with self._more:
            return [one for one in self.readings if one.at_s >= at_s]

    def wait(self, number: int, within_s: float) -> bool:
        """Until there are more readings than this. Raises LeadlineError when there will be none."""
        with self._more:
            there = self._more.wait_for(lambda: len(self.readings) > number or bool(self.problem), within_s)
        if self.problem:
            raise LeadlineError("connection", "a server of the pair does not answer any more", detail=self.problem)
        return there

    def close(self) -> None:
        self._ending.set()
        if self.is_alive():
            self.join(10)
        for connection in self._of:
            connection.close()


def _row(connection: psycopg.Connection[Any], query: str) -> Any:
    return connection.execute(query.encode()).fetchone()


def until(positions: Positions, is_so: Callable[[Sequence[Reading]], bool], within_s: float, problem: str) -> None:
    """Looks after each reading. Raises LeadlineError."""
    deadline = time.monotonic() + within_s
    while not is_so(positions.readings):
        if time.monotonic() > deadline:
            raise LeadlineError("gone", problem)
        positions.wait(len(positions.readings), 1.0)


def has_all(readings: Sequence[Reading]) -> bool:
    return bool(readings) and readings[-1].replayed >= readings[-1].made


def until_replayed(positions: Positions, within_s: float, *, after_s: float = 0.0) -> None:
    """Until the standby has replayed all, by a reading that is later than after_s. Raises LeadlineError."""
    until(positions, lambda readings: has_all(readings) and readings[-1].at_s > after_s, within_s, "the standby does not catch up")


def rate_of(readings: Sequence[Reading]) -> float:
    """Bytes of WAL made a second."""
    seconds = readings[-1].at_s - readings[0].at_s if len(readings) > 1 else 0.0
    return (readings[-1].made - readings[0].made) / seconds if seconds > 0 else 0.0
