"""The host as a probe: processes, devices, interfaces, control groups and counters from /proc, /sys and taskstats (crates/host)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from leadline import _core
from leadline.capture.manifest import Manifest, ProbeState
from leadline.capture.store import Store
from leadline.errors import LeadlineError
from leadline.host.facts import read_host, read_this_host
from leadline.host.storage import StoredPath
from leadline.probes.probe import ThreadProbe

MIN_RATE_HZ, MAX_RATE_HZ = 0.1, 10.0
DEFAULT_RATE_HZ = 1.0


class HostProbe(ThreadProbe["_core.host.HostProbe"]):
    """Looks at this host. pid, stored: the server that is measured and what it keeps where, for its limits and mounts."""

    name = "host"

    def __init__(
        self,
        directory: Path,
        rate_hz: float = DEFAULT_RATE_HZ,
        *,
        required: bool = False,
        pid: int | None = None,
        stored: Iterable[StoredPath] = (),
        flush_interval_s: float = 5.0,
    ) -> None:
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise LeadlineError(
                "usage", f"cannot read a host {rate_hz:g} times per second", hint=f"{MIN_RATE_HZ:g} to {MAX_RATE_HZ:g} readings per second"
            )
        self.required, self.rate_hz = required, rate_hz
        self._pid, self._stored = pid, tuple(stored)
        growing = flush_interval_s >= 5.0
        super().__init__(_core.host.HostProbe(str(directory), rate_hz, flush_interval_s=flush_interval_s, growing_segments=growing))

    def before(self, store: Store, manifest: Manifest) -> None:
        found = read_this_host() if self._pid is None else read_host(self._pid, self._stored)
        store.add("host_fact", found.facts)
        store.add("mount", found.mounts)
        store.add("block_device", found.devices)
        manifest.note(*found.notes)

    def describe(self, manifest: Manifest) -> None:
        access = self._core.describe()
        if self.name in manifest.probes and manifest.probes[self.name].access:
            return  # what it may read does not change
        missing = [why for name, why in _MISSING.items() if not access[name]]
        hints = dict.fromkeys(_HINTS[name] for name in _MISSING if not access[name])
        manifest.probes[self.name] = ProbeState(
            "partial" if missing else "ok", "; ".join(missing), "; ".join(hints), "procfs", self.rate_hz, access=dict(access)
        )

    def progress(self) -> str:
        return f"host: {self._core.status()['ticks']} readings"


_Way = Literal["taskstats", "exits", "delays", "pressure", "io_of_others"]
_MISSING: dict[_Way, str] = {
    "taskstats": "run-queue time and context switches are known only for single-threaded processes: no permission for taskstats",
    "exits": "processes that start and end between two readings are counted but not named: no permission for exit events of the kernel",
    "delays": "waits of processes for block I/O are not counted: kernel.task_delayacct is off",
    "pressure": "host-wide stalls are not counted: the kernel counts no pressure",
    "io_of_others": "no permission to see the I/O of processes of other users",
}
_HINTS: dict[_Way, str] = {
    "taskstats": "run as root on the host itself, or: setcap cap_net_admin+ep on the Python that runs leadline",
    "exits": "run as root on the host itself, or: setcap cap_net_admin+ep on the Python that runs leadline",
    "delays": "sysctl kernel.task_delayacct=1 (costs little, and processes started before count too)",
    "pressure": "boot the kernel with psi=1",
    "io_of_others": "run as root",
}
