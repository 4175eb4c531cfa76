"""The folder that a capture is written into."""

from __future__ import annotations

import datetime
from pathlib import Path

from leadline.capture.manifest import MANIFEST
from leadline.errors import cannot_be_written
from leadline.replacing import make_room


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
    make_room(directory, overwrite=overwrite, capture=True)
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


def make_empty_folder(directory: Path, *, overwrite: bool) -> None:
    """Makes exactly this folder. An empty one is used as it is, a capture is replaced if `overwrite` is set."""
    try:
        make_room(directory, overwrite=overwrite, capture=True)
    except OSError as e:  # a folder that may not be read
        raise cannot_be_written("the folder of the capture", e, directory) from e
    make_folder(directory)
