"""The temporary directory that files of a backup are put into, to be read there and removed at the end."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from leadline.errors import LeadlineError, cannot_be_written
from leadline.interrupt import terminated_as_interrupted
from leadline.units import sized


@contextlib.contextmanager
def temporary(name: str) -> Iterator[Path]:
    """In TMPDIR; removed also after Ctrl-C and SIGTERM. An error names files in it as those of `name`. Raises LeadlineError."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="leadline-backup-")
    except OSError as e:
        raise cannot_be_written("files of the backup", e, Path(tempfile.gettempdir())) from e
    with terminated_as_interrupted(), directory as path:
        try:
            yield Path(path)
        except LeadlineError as e:
            said = (text.replace(path, name) for text in (e.message, e.detail, e.hint, e.where))
            raise LeadlineError(e.kind, *said) from e


def must_have_room(directory: Path, needed: int, what: str) -> None:
    """needed: bytes. Raises LeadlineError when they are not free."""
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise LeadlineError(
            "storage", f"not enough space for the files that are needed of the {what}",
            detail=f"{sized(needed)} are needed in {directory.parent}, {sized(free)} are free",
            hint="set TMPDIR to a directory with more space", where=str(directory),
        )  # fmt: skip
