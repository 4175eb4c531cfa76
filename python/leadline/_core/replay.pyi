"""Crash recovery of a data directory, by page."""

from collections.abc import Callable
from typing import TypedDict, type_check_only

__all__ = ["page_at", "run"]

@type_check_only
class Kind(TypedDict):
    """Records of one kind."""

    rmgr: str
    type: str
    records: int
    record_bytes: int
    fpi: int
    fpi_bytes: int

@type_check_only
class Report(TypedDict):
    """What the WAL holds and what was done.

    is_clean: the server was shut down in order, and nothing else here means anything. changes: of pages, in all records; superseded:
    those before a later image of their page; removed: those of pages that the WAL removes later; older: those the page had already.
    rounds: how often pages were written. checkpoint_lsn: of the record added at the end; None when nothing was written.
    """

    is_clean: bool
    major: int
    redo_lsn: str | None
    end_lsn: str | None
    end_reason: str
    timeline: int
    wal_bytes: int
    kinds: list[Kind]
    changes: int
    kept_bytes: int
    commits: int
    aborts: int
    prepared: int
    files: int
    dropped_relations: int
    pages: int
    pages_written: int
    pages_read: int
    applied: int
    superseded: int
    removed: int
    older: int
    rounds: int
    checkpoint_lsn: str | None
    seconds: dict[str, float]

@type_check_only
class PageAt(TypedDict):
    """A page, the record that made it anew, the last one that changed it, and how many were applied."""

    bytes: bytes
    image_lsn: str
    last_lsn: str
    applied: int

def page_at(
    path: str, file: str, block: int, lsn: str, *, threads: int, progress: Callable[[int], None] | None = None
) -> PageAt:
    """One page as the records that begin before an LSN leave it.

    path: the data directory. file: of the relation, as pg_relation_filepath prints it. Raises kinds usage, not_found, rights,
    unsupported, storage, invalid.
    """

def run(
    path: str,
    *,
    memory: int,
    threads: int,
    dry_run: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Brings a crashed data directory to the end of its WAL, or only tells what is to be done.

    memory: bytes for records on their way to their pages. progress: gets the phase (read, pages, sync, status, hand over), how much of
    it is done, and of how much; may raise. Raises kinds usage, not_found, rights, unsupported, storage, invalid.
    """
