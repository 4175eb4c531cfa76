"""The probe that reads the shared memory of a server."""

from typing import Any, final

__all__ = ["Recorder", "normalise"]

def normalise(text: str) -> tuple[str, int]:
    """A statement with its literals replaced by $n, and the 64-bit key of its shape (0 for an empty text)."""

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

    def describe(self) -> dict[str, Any]:
        """{server_version_num, server_version, max_connections, shared_buffers_bytes, data_dir,
        layout_checks: [{check, result, detail}], access: {shared_memory, private_memory, why},
        probes: {name: {status, why, hint}}}"""

    def start(self) -> None:
        """Starts sampling in threads of its own and returns."""

    def status(self) -> dict[str, Any]:
        """{running, error: dict | None, ts_from, ts_now, ticks, missed, torn, sessions, rows, bytes_written, cpu_ns}"""

    def stop(self) -> dict[str, Any]:
        """Flushes and joins; the final status with {"tables": {name: {rows, bytes, segments}}, "loss": {...}, "ts_to"}."""
