"""Kernel counters of this host for table host_stat on the SQL tier; on the shared-memory tier the recorder writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from leadline.host import proc

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_STAT_LINES = ("ctxt", "processes", "procs_running", "procs_blocked")
_MEMINFO = ("MemFree", "MemAvailable", "Buffers", "Cached", "Dirty", "Writeback", "AnonPages", "Shmem", "PageTables", "SwapFree")
_VMSTAT_PREFIXES = (
    "pgpgin", "pgpgout", "pswpin", "pswpout", "pgfault", "pgmajfault", "pgscan_", "pgsteal_", "allocstall", "zone_reclaim_",
    "compact_", "thp_fault", "thp_collapse_alloc", "oom_kill", "nr_dirty", "nr_writeback", "workingset_refault", "numa_",
)  # fmt: skip


def read_counters() -> Iterator[tuple[str, int]]:
    """metric and value of everything this kernel gives."""
    for line in (proc.read_text("/proc/stat") or "").splitlines():
        name, *fields = line.split()
        if name == "cpu":
            yield from ((f"stat.cpu_{field}_ns", int(ticks) * _TICK_NS) for field, ticks in zip(_CPU_FIELDS, fields))
        elif name in _STAT_LINES:
            yield f"stat.{name}", int(fields[0])
    for line in (proc.read_text("/proc/vmstat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name.startswith(_VMSTAT_PREFIXES):
            yield f"vmstat.{name}", int(value)
    for line in (proc.read_text("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name in _MEMINFO:
            yield f"meminfo.{name}_bytes", int(value.split()[0]) * 1024
    for resource in ("cpu", "memory", "io"):
        for line in (proc.read_text(f"/proc/pressure/{resource}") or "").splitlines():
            kind, *pairs = line.split()
            total = next((pair[6:] for pair in pairs if pair.startswith("total=")), None)
            if total is not None:
                yield f"pressure.{resource}_{kind}_ns", int(total) * 1000
