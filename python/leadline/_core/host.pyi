"""The probe of the host."""

from typing import Any, final

__all__ = ["HostProbe"]

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

    def describe(self) -> dict[str, bool]:
        """{taskstats, exits, delays, pressure, io_of_others}: which ways to look were open"""

    def start(self) -> None: ...
    def status(self) -> dict[str, Any]:
        """As of Keeper."""

    def stop(self) -> dict[str, Any]:
        """As of Keeper, with {"loss": {ticks_taken, ticks_missed, exit_overruns, cgroups_left_out}}."""
