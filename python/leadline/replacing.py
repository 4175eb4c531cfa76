"""What lies where a command is about to write: replaced with --force only, and only when it is what the command writes.

`make_room` is the one place that decides it, for captures (directories) and for single files.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from leadline.errors import LeadlineError, cannot_be_written

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path  # not when a command starts

MANIFEST = "manifest.json"
EXISTS = "the output already exists"
FORCE_HELP = "Replace the output if it already exists."


def make_room(path: Path, *, overwrite: bool, capture: bool = False, marks: Collection[str] = ()) -> None:
    """Returns when `path` may be written. Whoever writes it replaces what is there: a file when the new one is whole, a capture when it
    holds the lock (capture/directory.py).

    capture: a capture directory will be written, else a file. marks: another directory will be; the files by which it is known.
    Raises LeadlineError: something is there and overwrite is false, or it is something else.
    """
    if not path.exists() and not path.is_symlink():
        return
    known_by = (MANIFEST,) if capture else marks
    if known_by and path.is_dir() and not any(path.iterdir()):
        return
    replaceable = all((path / mark).is_file() for mark in known_by) if known_by else path.is_file()
    if not replaceable:
        kind = "a capture" if capture else "what this command writes" if marks else "a file"
        detail = f"it is not {kind}, so --force does not replace it"
        raise LeadlineError("usage", EXISTS, detail=detail, hint="write to another place with -o", where=str(path))
    if not overwrite:
        raise LeadlineError("usage", EXISTS, hint="use --force to replace it, or -o to write elsewhere", where=str(path))


def write_whole(path: Path, text: str | bytes, what: str, *, overwrite: bool) -> Path:
    """Writes a file that is there only when it is whole; the path. Raises LeadlineError, which names `what`."""
    write_parts(path, [text.encode() if isinstance(text, str) else text], what, overwrite=overwrite)
    return path


def write_parts(path: Path, parts: Iterable[bytes], what: str, *, overwrite: bool) -> int:
    """The same of a file that is too large to hold; its bytes. Where the parts end in an error, what was there before stays."""
    make_room(path, overwrite=overwrite)
    temporary = path.with_name(path.name + ".tmp")
    written = 0
    try:
        with temporary.open("wb") as file:
            for part in parts:
                written += file.write(part)
        temporary.replace(path)
    except BaseException as e:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(e, OSError):
            raise cannot_be_written(what, e, path) from e
        raise
    return written


def write_durably(path: Path, content: bytes) -> None:
    """Replaces a file as one step: on the disk, whole, or not at all, also after a power loss. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)  # the new name too
    finally:
        os.close(directory)
