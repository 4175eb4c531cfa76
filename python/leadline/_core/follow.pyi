"""A command followed with ptrace."""

from collections.abc import Sequence

__all__ = ["run"]

def run(command: Sequence[str], *, linger_s: float = 1.0) -> str:
    """Runs a command to its end, its input and outputs untouched, and gives what was seen of its processes, as JSON.

    linger_s: how long to watch processes that it leaves running; they run on. Raises kinds usage, rights, unsupported, gone."""
