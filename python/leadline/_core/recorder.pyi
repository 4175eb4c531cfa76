"""The probe that reads the shared memory of a server."""

from typing import Any, NotRequired, TypedDict, final, type_check_only

from leadline._core.capture import ProbeFinal, ProbeStatus

__all__ = ["Recorder", "normalise"]

def normalise(text: str) -> tuple[str, int]:
    """A statement with its literals replaced by $n, and the 64-bit key of its shape (0 for an empty text)."""

@type_check_only
class LayoutCheck(TypedDict):
    """One check of the layout against the running server. result: passed, failed or skipped."""

    check: str
    result: str
    detail: str

@type_check_only
class MemoryAccess(TypedDict):
    """How memory is read. shared_memory: map_files, process_vm_readv or none; why: the reason that it is not mapped."""

    shared_memory: str
    private_memory: bool
    why: str

@type_check_only
class ProbeFound(TypedDict):
    """What one probe can do here. status: ok, partial or off. detail: as in a ProbeState."""

    status: str
    why: str
    hint: str
    detail: NotRequired[dict[str, Any]]

@type_check_only
class ServerDescription(TypedDict):
    """The server, and how it is sampled. probes: sessions, locks, buffers, deltas."""

    server_version_num: int
    server_version: str
    max_connections: int | None
    shared_buffers_bytes: int
    data_dir: str | None
    layout_checks: list[LayoutCheck]
    access: MemoryAccess
    probes: dict[str, ProbeFound]

@type_check_only
class SamplerStatus(ProbeStatus):
    """How sampling goes. torn: entries that kept changing while they were read; sessions: of the last pass."""

    ts_now: int
    torn: int
    sessions: int
    realtime_priority: bool

@type_check_only
class SamplerFinal(ProbeFinal):
    """What a sampler says at its end: its last status, and what every probe says then."""

    ts_now: int
    torn: int
    sessions: int
    realtime_priority: bool

@final
class Recorder:
    """The shared-memory probe of one server and the threads that write what it sees."""

    def __new__(
        cls,
        capture_dir: str,
        pid: int,
        rate_hz: float,
        *,
        delta_interval_s: float = 1.0,
        flush_interval_s: float = 5.0,
        growing_segments: bool = True,
        allow_map: bool = True,
    ) -> Recorder:
        """Attaches to the postmaster `pid` and calibrates. Raises kinds rights, unsupported, layout, not_found."""

    def describe(self) -> ServerDescription: ...
    def attach_again(self, pid: int) -> None:
        """Attaches to the server that has started again as `pid`; `start` goes on. Raises as the constructor."""

    def last_seen(self) -> int | None:
        """Start of the last pass that counts, ns on CLOCK_MONOTONIC; known when the server is gone."""

    def start(self) -> None:
        """Starts sampling in threads of its own and returns; once after each attach."""

    def status(self) -> SamplerStatus: ...
    def stop(self) -> SamplerFinal:
        """Flushes and joins. loss: ticks_taken, ticks_missed, ticks_unverified, torn."""
