"""Tables of a capture written from Python, and its clocks."""

from typing import Any, final

__all__ = ["Keeper", "TableWriter", "clock"]

_Value = int | float | str | bool | None

def clock() -> tuple[int, int]:
    """(CLOCK_MONOTONIC ns, CLOCK_REALTIME ns) of the same moment."""

@final
class TableWriter:
    """Writes rows of one stored table into a capture folder, checked against the table's columns."""

    def __new__(cls, capture_dir: str, table: str) -> TableWriter: ...
    def append(self, rows: list[tuple[_Value, ...]]) -> None:
        """Adds rows: values in the order of the columns. All of them, or none when one does not fit."""

    def flush(self) -> None:
        """Finishes the present segment: its rows are then in a file that readers see. No rows, no file."""

    def close(self) -> dict[str, int]:
        """Flushes and ends: {"rows", "bytes", "segments"}. Closing again gives the same figures."""

@final
class Keeper:
    """Writes `clock`, and what the process used into `self_cost`, once a second, in a thread of its own."""

    def __new__(cls, capture_dir: str, *, flush_interval_s: float = 5.0, growing_segments: bool = True) -> Keeper: ...
    def start(self) -> None: ...
    def status(self) -> dict[str, Any]:
        """{running, error: dict | None, ts_from, ticks, missed, rows, bytes_written, cpu_ns}; cpu_ns: of its thread"""

    def stop(self) -> dict[str, Any]:
        """Flushes and joins; the final status with {"tables": {name: {rows, bytes, segments}}, "ts_to"}."""
