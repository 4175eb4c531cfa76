"""Threads as a probe: their system calls, sleeps and waits for a CPU, traced by the kernel (crates/kernel), on one of several tiers."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from leadline import _core
from leadline.capture.manifest import Manifest, ProbeState
from leadline.capture.store import Store
from leadline.engines.live import Server
from leadline.errors import LeadlineError
from leadline.host.facts import numa_nodes
from leadline.host.proc import descendants
from leadline.host.semaphores import semaphore_sets
from leadline.probes.probe import ThreadProbe

TRACING = ("bpf", "perf")  # tiers that trace, the best first
TIERS = ("auto", *TRACING, "proc")
DETAILS = ("events", "sums")
_LESS = "no requests of disks, no stacks of sleeps and of failing calls"
_WITHOUT_TRACE = "threads are not traced: processes are read from /proc, without calls and sleeps"


@dataclass
class Attached:
    """The probe of the best tier that could be had; None on the tier proc, where the probe of the host looks.

    state: what the manifest says of the kernel probe then. notes: why no better tier, and what is less.
    """

    probe: KernelProbe | None
    state: ProbeState | None = None
    notes: tuple[str, ...] = ()


def attach(
    directory: Path,
    pids: Collection[int],
    tier: str,
    *,
    detail: str = "events",
    budget: float = 0.3,
    retransmits: bool = False,
    required: bool = False,
    ring_bytes: int | None = None,
) -> Attached:
    """Attaches on a tier; `auto` takes the best one that the kernel and our rights allow.

    Raises LeadlineError: what stands against the one tier that was asked for.
    """
    if tier not in TIERS:
        raise LeadlineError("usage", f"no kernel tier named {tier}", hint="kernel tiers: " + ", ".join(TIERS))
    notes: list[str] = []
    best: LeadlineError | None = None
    for name in TRACING if tier == "auto" else () if tier == "proc" else (tier,):
        try:
            probe = KernelProbe(
                directory, pids, tier=name, detail=detail, budget=budget, retransmits=retransmits, required=required, ring_bytes=ring_bytes
            )
        except LeadlineError as e:
            if tier != "auto" or e.kind not in ("rights", "unsupported"):
                raise
            best = best or e
            notes.append(f"no kernel tier {name}: {e.message}" + (f": {e.detail}" if e.detail else ""))
            continue
        if best is not None:
            notes.append(f"threads are traced by perf events: {_LESS}, and what is traced is slowed down more (for all: {best.hint})")
        return Attached(probe, None, tuple(notes))
    why = "; ".join([*notes, _WITHOUT_TRACE])
    hint = best.hint if best else "leave out --kernel-tier proc"
    return Attached(None, ProbeState("off", why, hint, "proc"), (*notes, _WITHOUT_TRACE + (f" (to trace: {hint})" if best else "")))


class KernelProbe(ThreadProbe["_core.kernel.KernelProbe"]):
    """Traces these processes, what has descended from them, and all that they start in the window.

    detail: events: every call and stay off the CPU; sums: of the calls of each thread only, about once a second.
    budget: CPU time it may take, as a share of one core; above it, it leaves out stacks, then single events.
    retransmits: TCP segments that the whole host retransmits.
    """

    name = "kernel"

    def __init__(
        self,
        directory: Path,
        pids: Collection[int],
        *,
        tier: str = "bpf",
        required: bool = False,
        flush_interval_s: float = 5.0,
        ring_bytes: int | None = None,
        detail: str = "events",
        budget: float = 0.3,
        retransmits: bool = False,
    ) -> None:
        if detail not in DETAILS:
            raise LeadlineError("usage", f"no kernel detail named {detail}", hint="kernel details: " + ", ".join(DETAILS))
        if detail == "sums" and tier != "bpf":
            raise LeadlineError("unsupported", f"calls cannot be summed on the tier {tier}", hint="leave out --kernel-detail sums")
        if retransmits and tier != "bpf":
            raise LeadlineError(
                "unsupported", f"the tier {tier} does not see retransmitted segments", hint="leave out --kernel-retransmits"
            )
        self.retransmits = retransmits
        self.tier, self.detail, self.required = tier, detail, required
        core = _core.kernel.KernelProbe(
            str(directory), sorted(descendants(pids)), tier=tier, ring_bytes=ring_bytes, events=detail == "events",
            retransmits=retransmits, budget=budget, flush_interval_s=flush_interval_s,
        )  # fmt: skip
        super().__init__(core)
        self._pids = pids
        self._left_out: set[int] = set()

    def follow(self, now: Server) -> None:
        """The server has started again, as processes that do not descend from those that are traced."""
        if now.pid is not None and now.pid not in self._pids:
            self._left_out.add(now.pid)

    def before(self, store: Store, manifest: Manifest) -> None:
        self._semaphores(store)

    def _semaphores(self, store: Store) -> None:
        store.add("semaphore_set", semaphore_sets(self._pids, time.monotonic_ns()))

    def describe(self, manifest: Manifest) -> None:
        state = manifest.probes.setdefault(self.name, ProbeState())
        state.tier = self.tier
        run_ns, runq_ns = self._core.per_waking()
        state.detail = {
            "waking_run_ns": run_ns, "waking_runq_ns": runq_ns, "recorded": self.detail, "numa_nodes": max(1, len(numa_nodes())),
        }  # fmt: skip
        lost = state.loss.get("records_lost", 0)
        names = {
            "stacks_lost": "stacks", "requests_lost": "requests of disks or io_uring", "threads_lost": "ends of threads with their sums",
            "retransmits_lost": "retransmitted segments",
        }  # fmt: skip
        others = {what: state.loss.get(name, 0) for name, what in names.items()}
        steps = state.loss.get("times_less_recorded", 0)
        whys, hints = [], []
        if not self.retransmits:
            state.detail["without"] = {"tcp_retransmit": "not asked for: --kernel-retransmits"}
        if self.tier == "perf":
            state.detail["without"] |= {
                "block_io": "perf events tell of no requests of disks",
                "io_uring_op": "perf events are not asked for operations of io_uring",
            }
            whys.append(f"traced by perf events: {_LESS}")
            hints.append("leadline doctor says what stands against the tier bpf")
        if lost or any(others.values()):
            parts = [f"{lost:,} of {lost + state.loss['records']:,} events"] if lost else []
            parts += [f"{n:,} {what}" for what, n in others.items() if n]
            whys.append(f"the buffer had no room for {', '.join(parts)}")
            if self.tier == "perf":
                sums = "the time around them is unknown"
            elif gone := state.loss.get("threads_lost", 0):
                sums = f"the sums of {gone:,} threads are missing; those of the others are exact"
            else:
                sums = "sums per thread are exact all the same"
            hints.append(f"{sums}; for every event trace fewer processes")
        if self._left_out:
            whys.append("the server was restarted: its new processes are not traced")
            hints.append("start another capture to trace them")
        if steps:
            left_out = "stacks were left out" + (" and calls were summed" if steps > 1 else "")
            whys.append(f"the trace lost events or took more than its budget: from then on {left_out} (table kernel_detail)")
            hints.append("raise --kernel-budget, or trace fewer processes")
        if whys:
            state.status, state.why, state.hint = "partial", "; ".join(whys), "; ".join(hints)

    def after(self, store: Store, manifest: Manifest) -> None:
        self._semaphores(store)
        self.describe(manifest)

    def progress(self) -> str:
        status = self._core.status()
        lost = f", {status['lost']:,} lost" if status["lost"] else ""
        return f"kernel: {status['records']:,} events{lost}"
