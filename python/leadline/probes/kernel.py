"""Threads as a probe: their system calls, sleeps and waits for a CPU, traced by BPF (crates/kernel)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from leadline import _core
from leadline.capture.manifest import Manifest, ProbeState
from leadline.capture.store import Store
from leadline.host.proc import descendants

if TYPE_CHECKING:
    from leadline._core.capture import ProbeFinal
    from leadline._core.kernel import KernelStatus


class KernelProbe:
    """Traces these processes, what has descended from them, and all that they start in the window."""

    name = "kernel"

    def __init__(
        self,
        directory: Path,
        pids: Collection[int],
        *,
        required: bool = False,
        flush_interval_s: float = 5.0,
        ring_bytes: int | None = None,
    ) -> None:
        self.required = required
        self._core = _core.kernel.KernelProbe(
            str(directory), sorted(descendants(pids)), ring_bytes=ring_bytes, flush_interval_s=flush_interval_s
        )

    def before(self, store: Store, manifest: Manifest) -> None: ...

    def start(self) -> None:
        self._core.start()

    def status(self) -> KernelStatus:
        return self._core.status()

    def stop(self) -> ProbeFinal:
        return self._core.stop()

    def describe(self, manifest: Manifest) -> None:
        state = manifest.probes.setdefault(self.name, ProbeState())
        state.tier = "bpf"
        run_ns, runq_ns = self._core.per_waking()
        state.detail = {"waking_run_ns": run_ns, "waking_runq_ns": runq_ns}
        lost = state.loss.get("records_lost", 0)
        others = {"stacks": state.loss.get("stacks_lost", 0), "requests of disks": state.loss.get("requests_lost", 0)}
        if lost or any(others.values()):
            parts = [f"{lost:,} of {lost + state.loss['records']:,} events"] + [f"{n:,} {what}" for what, n in others.items() if n]
            state.status = "partial"
            state.why = f"the buffer had no room for {', '.join(parts)}"
            state.hint = "sums per thread are exact all the same; for every event trace fewer processes"

    def after(self, store: Store, manifest: Manifest) -> None:
        self.describe(manifest)

    def progress(self) -> str:
        status = self._core.status()
        lost = f", {status['lost']:,} lost" if status["lost"] else ""
        return f"kernel: {status['records']:,} events{lost}"
