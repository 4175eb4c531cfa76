"""A trial of the study `conflict`: a reader of a standby keeps a snapshot while the primary removes what that snapshot still sees.

    leadline.study.conflict DSN STANDBY_DSN --rate 300 --hold 3s --for 10s

Rows of the table `seen` are updated at a fixed rate, and vacuumed several times a second. The reader has a snapshot for the time of --hold,
then none for a second, and so on. Prints one object of JSON.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from leadline.engines.postgres.forecast import Reading
from leadline.errors import LeadlineError
from leadline.study import trial
from leadline.study.backlog import ages, stall
from leadline.study.load_beside import LoadBeside
from leadline.study.positions import EVERY_S, NO_WAL, STARTS_S, Positions, connected, until, until_replayed

BETWEEN_S = 1.0  # two snapshots of the reader
EACH = 5  # readings, between two vacuums
UPDATE = "update seen set n = n + 1 where id = (select 1 + (random() * 1999)::int);"
VACUUM = "vacuum (truncate false) seen"  # a truncation would be a conflict of locks
# What its standby has sent, and what a vacuum has just found that it could not remove.
HELD = "select coalesce(max(age(backend_xmin)), 0)::bigint, pg_stat_get_dead_tuples('seen'::regclass) from pg_stat_replication"


class Reader(threading.Thread):
    """finished: snapshots that it could keep for as long as it wanted. cancelled: those that replay took away."""

    def __init__(self, dsn: str, hold_s: float) -> None:
        super().__init__(daemon=True)
        self._dsn, self._hold_s = dsn, hold_s
        self.finished = self.cancelled = 0
        self.problem = ""
        self._ending = threading.Event()
        self._connection = connected(dsn)

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                if self._connection.closed:
                    self._connection = connected(self._dsn)
                self._read()
                self._ending.wait(BETWEEN_S)
        except (psycopg.Error, LeadlineError) as e:
            if not self._ending.is_set():
                self.problem = " ".join(str(e).split())

    def _read(self) -> None:
        try:
            self._connection.execute("begin isolation level repeatable read")
            self._connection.execute("select count(*) from seen")
            self._connection.execute("select pg_sleep(%s)", [self._hold_s])
            self._connection.execute("commit")
            self.finished += 1
        except psycopg.errors.SerializationFailure:  # "due to conflict with recovery", and the session may be gone
            self.cancelled += 1
            with suppress(psycopg.errors.SerializationFailure):  # or go now: replay asks again until the snapshot is given up
                if not self._connection.closed:
                    self._connection.execute("rollback")

    def close(self) -> None:
        """Also in the middle of a snapshot, which then counts as neither."""
        self._ending.set()
        if self.is_alive():
            with suppress(psycopg.Error):  # its session may be gone
                self._connection.cancel()
            self.join(STARTS_S)
        self._connection.close()


def main(argv: list[str]) -> int:
    parser = trial.of_pair("conflict")
    parser.add_argument("--rate", type=float, required=True)
    trial.take_times(parser, for_s="10s", hold_s="3s", most_s="120s")
    return trial.run(parser, conflict, argv)


def conflict(given: argparse.Namespace) -> dict[str, Any]:
    """Raises LeadlineError."""
    longest = 2 * STARTS_S + given.for_s
    with closing(Positions(given.primary, given.standby)) as positions, closing(connected(given.primary)) as primary:
        positions.start()
        until_replayed(positions, given.most_s)
        there = make_conninfo(given.standby, dbname=primary.info.dbname)
        with LoadBeside(given.primary, UPDATE, given.rate, longest) as load, closing(Reader(there, given.hold_s)) as reader:
            until(positions, load.has_begun, STARTS_S, NO_WAL)
            begun, seen = time.monotonic(), list[tuple[int, int]]()
            reader.start()
            while time.monotonic() < begun + given.for_s:
                primary.execute(VACUUM.encode())
                seen.append(_held(primary))
                positions.wait(len(positions.readings) + EACH, STARTS_S)
            readings = positions.since(begun)
        if reader.problem:
            raise LeadlineError("gone", "the reader of the standby has ended", detail=reader.problem)
        until_replayed(positions, given.most_s)
    return account(readings, seen, reader.finished, reader.cancelled)


def account(readings: Sequence[Reading], seen: Sequence[tuple[int, int]], finished: int, cancelled: int) -> dict[str, Any]:
    """seen: again and again, the age of the oldest transaction that the standby holds, and the dead rows of the table after a vacuum."""
    return {
        "behind_s": round(max(*ages(readings), EVERY_S), 4), "stalled_s": round(stall(readings), 4), "finished": finished,
        "cancelled": cancelled, "held_xids": max(age for age, _ in seen), "dead_rows": max(rows for _, rows in seen),
    }  # fmt: skip


def _held(primary: psycopg.Connection[Any]) -> tuple[int, int]:
    row = primary.execute(HELD.encode()).fetchone()
    return (0, 0) if row is None else (row[0], row[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
