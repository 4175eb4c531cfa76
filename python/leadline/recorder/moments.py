"""Now, by the two clocks of this host: the wall clock, which may be set, and one that only goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from leadline.host.proc import boot_id


@dataclass(frozen=True)
class Moment:
    """wall_ns: since 1970. boot_ns: since the host started, also while it was suspended. boot: which start that was."""

    wall_ns: int
    boot_ns: int
    boot: str

    @staticmethod
    def now() -> Moment:
        return Moment(time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), boot_id())


def as_utc(ns: int) -> str:
    """2026-11-28T03:00:00Z."""
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ns_of(text: str) -> int:
    """The reverse. Raises ValueError."""
    return round(datetime.fromisoformat(text).timestamp() * 1e9)
