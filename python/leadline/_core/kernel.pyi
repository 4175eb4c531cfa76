"""The trace of threads."""

from typing import final, type_check_only

from leadline._core.capture import ProbeFinal, ProbeStatus

__all__ = ["KernelProbe", "check"]

def check(tier: str) -> None:
    """Asks the kernel for what a tier (bpf, perf) needs and gives it back.

    Raises kinds rights, unsupported: what the kernel says against it."""

@type_check_only
class KernelStatus(ProbeStatus):
    """records: events read; lost: those for which the buffer had no room, as far as is known."""

    records: int
    lost: int

@final
class KernelProbe:
    """System calls and scheduling of processes and all that they start, traced by the kernel."""

    def __new__(
        cls,
        capture_dir: str,
        pids: list[int],
        *,
        tier: str = "bpf",
        ring_bytes: int | None = None,
        stack_from_ns: int | None = None,
        events: bool = True,
        retransmits: bool = False,
        budget: float | None = None,
        flush_interval_s: float = 5.0,
        growing_segments: bool = True,
    ) -> KernelProbe:
        """Attaches. tier: bpf or perf. ring_bytes: of the buffer, a power of two. stack_from_ns: sleeps this long have their functions.
        events: each call and stay off the CPU; False: sums of calls only, made in the kernel (tier bpf).
        retransmits: segments of TCP that are sent again, of the whole host (tier bpf).
        budget: CPU time it may take, as a share of one core; above it, it leaves out stacks, then single events (tier bpf).

        Raises kinds rights, unsupported."""

    def start(self) -> None: ...
    def per_waking(self) -> tuple[int, int]:
        """How far time on a CPU and time in the run queue may differ from the scheduler's own counters, in ns for each waking; measured
        when the probe was made."""

    def status(self) -> KernelStatus: ...
    def stop(self) -> ProbeFinal:
        """Flushes and joins. loss: records, records_lost, requests_lost, retransmits_lost, stacks_lost, threads_lost,
        times_less_recorded."""
