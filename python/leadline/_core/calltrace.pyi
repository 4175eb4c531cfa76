"""Function-call traces."""

from typing import Any, Final

__all__ = ["FORMATS", "fold"]

FORMATS: Final[list[str]]

def fold(
    path: str, *, format: str | None = None, depth: int | None = None
) -> tuple[dict[str, Any], list[tuple[int, str, int, int | None]]]:
    """Folds a trace; what was read, and a row for each function below each path of callers: depth, name, calls, ns.

    format: one of FORMATS; recognised without. Raises kinds invalid, storage."""
