"""Tables of a capture written from Python, and its clocks."""

from os import PathLike
from typing import Any, TypedDict, final, type_check_only

__all__ = ["OverheadProbe", "TableWriter", "clock", "define_table", "exchange", "parse_toml"]

_Single = int | float | str | bool | bytes | None
_Value = _Single | list[int] | list[float] | list[str] | list[bool] | list[bytes]

def clock() -> tuple[int, int]:
    """(CLOCK_MONOTONIC ns, CLOCK_REALTIME ns) of the same moment."""

def define_table(name: str, clock: str, columns: list[tuple[str, str, bool]]) -> None:
    """Adds a stored table that no file described when this was built. columns: (name, type, nullable). Raises kind invalid."""

def exchange(path: str | PathLike[str], place: str | PathLike[str]) -> None:
    """Lets two files change their names in one step; without a second file, the first one gets its name. Raises OSError."""

def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML file says; dates as text. Raises kind invalid."""

@type_check_only
class ErrorObject(TypedDict):
    """An error, as LeadlineError.as_dict gives it."""

    kind: str
    message: str
    detail: str
    hint: str
    where: str

@type_check_only
class Written(TypedDict):
    """What was written of one table."""

    rows: int
    bytes: int
    segments: int

@type_check_only
class ProbeStatus(TypedDict):
    """How a probe is doing. ts_from: ns on CLOCK_MONOTONIC, 0 before the first reading; cpu_ns: of its threads."""

    running: bool
    error: ErrorObject | None
    ts_from: int
    ticks: int
    missed: int
    rows: int
    bytes_written: int
    cpu_ns: int

@type_check_only
class ProbeFinal(ProbeStatus):
    """What a probe says at its end. tables: by name; loss: counts of what was missed, by name; ts_to: None if it was never started."""

    tables: dict[str, Written]
    loss: dict[str, int]
    ts_to: int | None

@final
class TableWriter:
    """Writes rows of one stored table into a capture folder, checked against the table's columns."""

    def __new__(cls, capture_dir: str, table: str, *, growing: bool = True) -> TableWriter:
        """growing: a segment grows from flush to flush, up to some megabytes; not where a reader takes segments away."""

    def append(self, rows: list[tuple[_Value, ...]]) -> None:
        """Adds rows: values in the order of the columns. All of them, or none when one does not fit."""

    def flush(self) -> None:
        """Puts the rows into a file that readers see. No rows, no file."""

    def close(self) -> Written:
        """Flushes and ends. Closing again gives the same figures."""

@final
class OverheadProbe:
    """Writes `clock`, and what the process used into `self_cost`, once a second, in a thread of its own."""

    def __new__(cls, capture_dir: str, *, flush_interval_s: float = 5.0, growing_segments: bool = True) -> OverheadProbe: ...
    def start(self) -> None: ...
    def status(self) -> ProbeStatus: ...
    def stop(self) -> ProbeFinal:
        """Flushes and joins."""
