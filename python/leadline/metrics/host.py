"""The host's CPUs and pressure as the kernel counts them: the counters that the host probe reads, at the moment somebody asks.

A reading from the pieces would be old by up to half a minute, which a rate over a minute shows as steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from leadline.host.proc import PROC, read_text
from leadline.metrics.families import HOST_CPU, HOST_CPUS, PRESSURE, Reading

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# Columns of the line `cpu` of /proc/stat, with OpenTelemetry's words; the time of guests is in user and nice.
MODES = ("user", "nice", "system", "idle", "iowait", "interrupt", "interrupt", "steal")
RESOURCES = ("cpu", "io", "irq", "memory")
STALLS = ("some", "full")


class HostSource:
    """applies: whether the server that is recorded runs on this host, so that its counters say something of it."""

    def __init__(self, applies: Callable[[], bool], proc: Path = PROC) -> None:
        self._applies, self._proc = applies, proc

    def readings(self) -> Iterable[Reading]:
        stat = (read_text(self._proc / "stat") or "").splitlines()
        if not stat or not self._applies():
            return
        booted_ns = next((int(line.split()[1]) for line in stat if line.startswith("btime ")), 0) * 1_000_000_000
        modes = dict.fromkeys(MODES, 0)
        for mode, ticks in zip(MODES, stat[0].split()[1:]):
            modes[mode] += int(ticks) * TICK_NS
        cpus = sum(line.startswith("cpu") for line in stat[1:])
        yield Reading(HOST_CPU, tuple(((mode,), ns) for mode, ns in modes.items()), booted_ns)
        yield Reading(HOST_CPUS, (((), cpus),), booted_ns)
        if found := tuple(point for resource in RESOURCES for point in self._pressure(resource)):
            yield Reading(PRESSURE, found, booted_ns)

    def _pressure(self, resource: str) -> Iterable[tuple[tuple[str, ...], int]]:
        """None where the kernel does not count it, or was booted without."""
        for line in (read_text(self._proc / "pressure" / resource) or "").splitlines():
            stall, *fields = line.split()
            total = next((field.removeprefix("total=") for field in fields if field.startswith("total=")), "")
            if stall in STALLS and total.isdigit():
                yield (resource, stall), int(total) * 1000
