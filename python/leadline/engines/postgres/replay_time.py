"""How long the startup process of a standby ran in the kernel: what its calls to read ahead are a part of."""

from __future__ import annotations

import time
from collections.abc import Iterable

from leadline.capture.store import Row
from leadline.engines.postgres import postmaster
from leadline.host import proc

_NAMED = ("pg_stat_recovery_prefetch", "", "startup_pid")


def in_kernel(postmaster_pid: int, phase: str, counters: Iterable[Row]) -> list[Row]:
    """A row of table server_stat, if these rows of it name the startup process."""
    inner = next((int(row[5]) for row in counters if row[2:5] == _NAMED), None)
    pid = None if inner is None else postmaster.children_by_inner_pid(postmaster_pid).get(inner)
    seconds = None if pid is None else proc.kernel_s(pid)
    return [] if seconds is None else [(time.monotonic_ns(), phase, "proc_stat", str(inner), "stime_s", seconds)]
