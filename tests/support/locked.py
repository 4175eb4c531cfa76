"""One test process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(folder: Path, name: str) -> Iterator[int]:
    """Of all processes that give this folder and name, one is in the block at a time. Gives the descriptor of the lock.

    The lock is a file in the folder. A child that gets the descriptor keeps the lock until it ends.
    """
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()
