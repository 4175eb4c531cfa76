"""The directory that a capture is written into. As long as a command writes it, no other can replace it or write into it."""

from __future__ import annotations

import datetime
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from leadline.capture.manifest import MANIFEST
from leadline.errors import LeadlineError, cannot_be_written
from leadline.replacing import make_room


@contextmanager
def new_capture(out: Path | None, *, overwrite: bool, exactly: bool = False, keep: bool = False) -> Iterator[Path]:
    """The directory for a new capture, locked while the block runs. Without a manifest at an error, a directory that was made is removed.

    out: the capture directory, or an existing directory to put it in; None for leadline-DATE-TIME.leadline here. exactly: `out` is the
    directory itself, whatever its name. overwrite: replace a capture that is there; keep: go on with it, as it is. Raises LeadlineError.
    """
    directory = out if exactly and out is not None else _place(out)
    with ExitStack() as stack:
        try:
            make_room(directory, overwrite=overwrite or keep, capture=True)
            made = _make(directory)
            stack.callback(os.close, _lock(directory))
            make_room(directory, overwrite=overwrite or keep, capture=True)  # whoever had the lock may have written meanwhile
            if not keep:
                _empty(directory)
        except OSError as e:
            raise cannot_be_written("the directory of the capture", e, directory) from e
        try:
            yield directory
        except BaseException:
            if made and not (directory / MANIFEST).exists():
                shutil.rmtree(directory, ignore_errors=True)
            raise


def _place(out: Path | None) -> Path:
    default = datetime.datetime.now().strftime("leadline-%Y%m%d-%H%M%S.leadline")
    directory = Path(out) if out is not None else Path(default)
    if directory.is_dir() and directory.suffix != ".leadline" and not (directory / MANIFEST).exists():
        return directory / default
    return directory if directory.suffix == ".leadline" else directory.with_name(directory.name + ".leadline")


def _make(directory: Path) -> bool:
    """Whether it was new."""
    if directory.is_dir():
        return False
    directory.mkdir(parents=True)
    return True


def _lock(directory: Path) -> int:
    """A descriptor that holds the lock. The kernel releases it when the process ends, however it ends."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        hint = "write to another place with -o, or wait until it has ended"
        raise LeadlineError("usage", "another command is writing this capture", hint=hint, where=str(directory)) from None
    except OSError:  # NFS locks no directory: there, only the manifest protects the capture
        pass
    return fd


def _empty(directory: Path) -> None:
    """Removes the capture that is to be replaced."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
