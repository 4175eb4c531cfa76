"""The folder that a capture is written into."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

from leadline.capture.reader import MANIFEST
from leadline.errors import LeadlineError, cannot_be_written


def capture_folder(out: Path | None, *, overwrite: bool) -> Path:
    """Where the capture goes. Removes a capture that is to be replaced, and nothing else.

    out: the capture folder, or an existing folder to put it in; None for leadline-DATE-TIME.leadline here.
    """
    default = datetime.datetime.now().strftime("leadline-%Y%m%d-%H%M%S.leadline")
    directory = Path(out) if out is not None else Path(default)
    if directory.is_dir() and directory.suffix != ".leadline" and not (directory / MANIFEST).exists():
        directory = directory / default
    elif directory.suffix != ".leadline":
        directory = directory.with_name(directory.name + ".leadline")
    if not directory.exists() or not any(directory.iterdir() if directory.is_dir() else [directory]):
        return directory
    if not (directory / MANIFEST).exists():
        raise LeadlineError(
            "usage", "there is something else in the place of the capture", hint="choose another name with -o", where=str(directory)
        )
    if not overwrite:
        raise LeadlineError(
            "usage", "there is a capture of that name", hint="--force replaces it, -o gives another name", where=str(directory)
        )
    try:
        shutil.rmtree(directory)
    except OSError as e:
        raise LeadlineError("storage", f"the old capture cannot be removed: {e.strerror}", where=str(directory)) from e
    return directory


def make_folder(directory: Path) -> bool:
    """Makes the folder; tells whether it was new."""
    try:
        if directory.is_dir():
            return False
        directory.mkdir(parents=True)
        return True
    except OSError as e:
        raise cannot_be_written("the folder of the capture", e, directory) from e


def make_empty_folder(directory: Path) -> None:
    """Makes the folder, or takes one that is there and has nothing in it."""
    try:
        empty = make_folder(directory) or not any(directory.iterdir())
    except OSError as e:
        raise cannot_be_written("the folder of the capture", e, directory) from e
    if not empty:
        raise LeadlineError("usage", "the folder is not empty", hint="name a new one with -o", where=str(directory))
