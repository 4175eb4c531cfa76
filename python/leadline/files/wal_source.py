"""WAL in tar archives, in a backup, in a store, or encrypted: files that are needed are put into a temporary directory, and read there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from leadline._core.backups import ArchivedWal, BackupFiles
from leadline.errors import LeadlineError
from leadline.files import store
from leadline.files.extracted import must_have_room, temporary

SEGMENT = re.compile(r"[0-9A-F]{8}([0-9A-F]{8})[0-9A-F]{8}(?![0-9A-F]).*")
HISTORY = re.compile(r"[0-9A-F]{8}\.history.*")
FOLLOWING = 5  # segments from one on, of which the others only end its last record
LSN = re.compile(r"([0-9A-Fa-f]{1,8})/[0-9A-Fa-f]{1,8}")


@contextlib.contextmanager
def opened(path: str, key: str | None, start: str | None = None, end: str | None = None) -> Iterator[str]:
    """Where the WAL is: `path`, or a directory that is removed at the end. Segments far before `start` and after `end` (LSNs) are left out.

    key: of an encrypted archive. Raises LeadlineError, in which files are named as those of `path`.
    """
    store.reachable([path])
    found: BackupFiles | ArchivedWal | None = None
    if not Path(path, "pg_wal").is_dir():
        found = BackupFiles.open(path, None, key) or ArchivedWal.open(path, key)
    if found is None:
        yield path
        return
    first, last = _high(start, 0), _high(end, 1 << 32)
    files = {name: size for name, size in found.files().items() if _is_wanted(name, first, last)}
    if isinstance(found, ArchivedWal) and Path(path).name in found.files():  # one of them
        following = sorted(name for name in files if name >= Path(path).name)[:FOLLOWING]
        files = {name: files[name] for name in following}
    if not files:
        raise LeadlineError(
            "not_found", "no WAL in it", detail="no file is named like a WAL segment, such as 000000010000000000000001", where=path
        )
    with temporary(path) as directory:
        must_have_room(directory, sum(files.values()), "WAL")
        if isinstance(found, ArchivedWal):
            found.copy(str(directory), set(files))
        elif lost := found.extract(str(directory), set(files)):
            name, why = lost[0]
            raise LeadlineError("invalid", "a segment cannot be read in the backup", detail=f"{name}: {why}", where=path)
        below = directory / "pg_wal"
        own = directory / Path(path).name  # of a file of an archive
        yield str(own if own.is_file() else below if below.is_dir() else directory)


def _is_wanted(name: str, first: int, last: int) -> bool:
    folder, _, own = name.rpartition("/")
    if HISTORY.fullmatch(own):
        return True
    segment = SEGMENT.fullmatch(own)
    # The end of the last record may be in the next segment, which may be of the next 4 GB.
    return segment is not None and "archive_status" not in folder and first <= int(segment[1], 16) <= last + 1


def _high(lsn: str | None, otherwise: int) -> int:
    """The upper half of an LSN; of what is none, whoever reads the WAL says so."""
    match = LSN.fullmatch(lsn or "")
    return int(match[1], 16) if match else otherwise
