"""The temporary directory that segments pass through: in memory when there is room, and gone afterwards, whatever ends the view."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.interrupt import deferred_interrupts

SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES = 64 << 20  # segments live for seconds: even a busy server with a thousand sessions needs less
PREFIX = "leadline-top-"
LOCK = "in-use"  # locked while its view runs, so that what a killed view left behind can be told


def parent() -> Path:
    """/dev/shm when it may be written and has room, else the usual directory for temporary files."""
    try:
        room = os.statvfs(SHARED_MEMORY)
        if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) and room.f_bavail * room.f_frsize >= ROOM_BYTES:
            return SHARED_MEMORY
    except OSError:
        pass
    return Path(tempfile.gettempdir())


@contextmanager
def temporary_directory(inside: Path | None = None) -> Iterator[Path]:
    """A directory for the time of the block, that nobody else may enter. Raises LeadlineError('storage')."""
    inside = inside or parent()
    _remove_left_over(inside)
    try:
        directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=inside))
    except OSError as e:
        raise LeadlineError(
            "storage", f"no temporary directory can be made: {e.strerror}", hint="set TMPDIR to use another place", where=str(inside)
        ) from e
    lock = None
    try:
        lock = (directory / LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory
    finally:
        with deferred_interrupts():
            shutil.rmtree(directory, ignore_errors=True)
            if lock is not None:
                lock.close()


def _remove_left_over(inside: Path) -> None:
    """Directories of our own views that were killed: their lock is free."""
    for directory in inside.glob(PREFIX + "*"):
        try:
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            with (directory / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:  # in use, just being made, or gone already
            continue
