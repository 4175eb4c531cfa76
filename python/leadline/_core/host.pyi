"""The probes of the host and of the connections of a server."""

from typing import TypedDict, final, type_check_only

from leadline._core.capture import ProbeFinal, ProbeStatus

__all__ = ["HostProbe", "SocketsProbe"]

@type_check_only
class HostAccess(TypedDict):
    """Which ways to look are open."""

    taskstats: bool
    exits: bool
    delays: bool
    pressure: bool
    io_of_others: bool

@final
class HostProbe:
    """The host as /proc, /sys and taskstats tell it, read in a thread of its own."""

    def __new__(
        cls,
        capture_dir: str,
        rate_hz: float,
        *,
        flush_interval_s: float = 5.0,
        growing_segments: bool = True,
        taskstats: bool = True,
    ) -> HostProbe:
        """Opens every way to look that our rights allow. taskstats: False does without that interface."""

    def describe(self) -> HostAccess: ...
    def start(self) -> None: ...
    def status(self) -> ProbeStatus: ...
    def stop(self) -> ProbeFinal:
        """Flushes and joins. loss: ticks_taken, ticks_missed, exit_overruns, cgroups_left_out."""

@final
class SocketsProbe:
    """The TCP connections of one server as the kernel sees them (sock_diag), read in a thread of its own."""

    def __new__(
        cls, capture_dir: str, pid: int, port: int, rate_hz: float, *, flush_interval_s: float = 5.0, growing_segments: bool = True
    ) -> SocketsProbe:
        """port: that of the server. Raises LeadlineError (unsupported) where the kernel does not tell."""

    def sees_owners(self) -> bool:
        """Whether it may see which process has which connection."""

    def follow(self, pid: int, port: int) -> None:
        """From now on the connections of this server: it has started again."""

    def start(self) -> None: ...
    def status(self) -> ProbeStatus: ...
    def stop(self) -> ProbeFinal:
        """Flushes and joins. loss: ticks_taken, ticks_missed."""
