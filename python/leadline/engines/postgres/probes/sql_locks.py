"""Who blocks whom, from one reading of pg_locks: the answer of pg_blocking_pids without calling it.

pg_blocking_pids takes every lock partition for each call; one pg_locks query and this join cost the server less. The order of
the wait queue is not in pg_locks: it is taken from waitstart (14 and later). Where that is missing, a waiter counts as ahead
only when its statement began earlier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Conflicts between modes, as in the table of the manual (13.3.1). The order is that of strength.
MODES = (
    "AccessShareLock",
    "RowShareLock",
    "RowExclusiveLock",
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
)
_STRENGTH = {mode: number for number, mode in enumerate(MODES)}
_CONFLICTS = {
    "AccessShareLock": MODES[7:],
    "RowShareLock": MODES[6:],
    "RowExclusiveLock": MODES[4:],
    "ShareUpdateExclusiveLock": MODES[3:],
    "ShareLock": (MODES[2], MODES[3], *MODES[5:]),
    "ShareRowExclusiveLock": MODES[2:],
    "ExclusiveLock": MODES[1:],
    "AccessExclusiveLock": MODES,
}


def conflicts(wanted: str, held: str) -> bool:
    """Two modes of the same object may not be held by different sessions at once. Predicate locks (SIReadLock) never conflict."""
    return held in _CONFLICTS.get(wanted, ())


@dataclass(frozen=True)
class LockRow:
    """One row of pg_locks. pid 0: a prepared transaction. wait_start: unix microseconds, 0 when not known."""

    locktype: str
    datid: int
    relid: int
    page: int
    tuple_no: int
    virtualxid: str
    transactionid: int
    classid: int
    objid: int
    objsubid: int
    pid: int
    mode: str
    granted: bool
    wait_start: int

    @property
    def tag(self) -> tuple[object, ...]:
        return (
            self.locktype, self.datid, self.relid, self.page, self.tuple_no, self.virtualxid, self.transactionid,
            self.classid, self.objid, self.objsubid,
        )  # fmt: skip


@dataclass(frozen=True)
class Blocked:
    """One waiter and one of its blockers. kind: holder or queue. blocker_pid: the leader of its lock group; 0 when prepared."""

    waiter: LockRow
    blocker_pid: int
    kind: str
    blocker_mode: str


def blocked(rows: Iterable[LockRow], leaders: Mapping[int, int], since: Mapping[int, int]) -> list[Blocked]:
    """Every waiter with each of its blockers.

    leaders: worker pid -> leader pid of its parallel group. since: pid -> start of its statement, unix microseconds.
    """
    by_tag: dict[tuple[object, ...], list[LockRow]] = defaultdict(list)
    for row in rows:
        by_tag[row.tag].append(row)
    found = []
    for same in by_tag.values():
        for waiter in same:
            if not waiter.granted:
                found += _blockers_of(waiter, same, leaders, since)
    return found


def _blockers_of(waiter: LockRow, same: list[LockRow], leaders: Mapping[int, int], since: Mapping[int, int]) -> list[Blocked]:
    own_group = leaders.get(waiter.pid, waiter.pid)
    strongest: dict[tuple[int, str], str] = {}
    for other in same:
        group = leaders.get(other.pid, other.pid)
        if (group == own_group and group != 0) or not conflicts(waiter.mode, other.mode):
            continue
        if not other.granted and not _is_ahead(other, waiter, since):
            continue
        key = (group, "holder" if other.granted else "queue")
        if _STRENGTH[other.mode] > _STRENGTH.get(strongest.get(key, ""), -1):
            strongest[key] = other.mode
    holders = {group for group, kind in strongest if kind == "holder"}
    return [
        Blocked(waiter, group, kind, mode)
        for (group, kind), mode in strongest.items()
        if kind == "holder" or group not in holders  # who holds and waits is named once, as the holder
    ]


def _is_ahead(other: LockRow, waiter: LockRow, since: Mapping[int, int]) -> bool:
    if other.wait_start and waiter.wait_start:
        return other.wait_start < waiter.wait_start
    return since.get(other.pid, 0) < since.get(waiter.pid, 0)
