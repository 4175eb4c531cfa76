"""The simulator of disk arrays. What it finds comes as JSON.

Files are given as their text and their name, which errors say. Raise kind invalid.
"""

from collections.abc import Sequence

__all__ = ["layout", "loads", "replay", "simulate"]

def layout(text: str, name: str) -> str:
    """The name of the layout in a file; the file is checked."""

def loads(text: str, name: str) -> list[str]:
    """Names of the loads in a file; the file is checked."""

def simulate(
    layout: tuple[str, str], loads: tuple[str, str], number: int, *, seed: int, for_s: float, warm_up_s: float
) -> tuple[str, bool]:
    """One run of a load, by its number in the file. The second value: it was interrupted."""

def replay(
    layout: tuple[str, str], rows: Sequence[tuple[int, int, str, int, int, bool, int]], *, closed: bool
) -> tuple[str, bool]:
    """A trace once more. rows: issued and ended (ns), device, first byte, length, whether it writes, thread; by the time of issue."""
