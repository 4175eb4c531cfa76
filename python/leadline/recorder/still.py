"""A piece that is being written, as it is at one moment: the last segment of a table grows, and DuckDB reads a file more than once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leadline.capture.manifest import MANIFEST
from leadline.errors import LeadlineError, cannot_be_written

READS = 10


@contextmanager
def room_near(place: Path) -> Iterator[Path]:
    """A directory for copies, in `place` or the nearest directory above it that exists: a service may write nowhere else.

    Raises LeadlineError.
    """
    near = next(directory for directory in (place.absolute(), *place.absolute().parents) if directory.is_dir())
    try:
        room = tempfile.TemporaryDirectory(prefix=".leadline-", dir=near)
    except OSError as e:
        raise cannot_be_written("the window", e, near) from e
    with room as path:
        yield Path(path)


def still(piece: Path, into: Path) -> Path:
    """A directory of the same name in `into`, with the segments that no longer grow as links. Raises LeadlineError."""
    copy = into / piece.name
    try:
        copy.mkdir()
        shutil.copy(piece / MANIFEST, copy / MANIFEST)
        for table in sorted({segment.parent for segment in piece.glob("*/*.parquet")}):
            (copy / table.name).mkdir()
            *whole, growing = sorted(table.glob("*.parquet"))
            for segment in whole:
                (copy / table.name / segment.name).symlink_to(segment.absolute())
            (copy / table.name / growing.name).write_bytes(_read(growing))
    except OSError as e:
        raise LeadlineError("storage", f"the piece that is being written cannot be copied: {e.strerror}", where=str(piece)) from e
    return copy


def _read(segment: Path) -> bytes:
    """What has this name at one moment. The file that loses the name when the segment grows is written anew for the next growth."""
    for _ in range(READS):
        with segment.open("rb") as file:
            before, content, after = os.fstat(file.fileno()), file.read(), os.fstat(file.fileno())
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, len(content)):
            return content
    raise LeadlineError("storage", "a segment of the running piece grew whenever it was read", where=str(segment))
