"""Recovery of a data directory by page: after a crash, and of a base backup with archived WAL."""

from collections.abc import Callable
from typing import TypedDict, type_check_only

__all__ = ["page_at", "relation_at", "restore", "run"]

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
class Restored(TypedDict):
    """How far a base backup was brought, and what is left to the server.

    consistent_lsn: from there on the data is consistent. restartpoint_lsn: of the checkpoint that the server goes on from; None when
    there is none before the target, and nothing was done. redo_lsn: from there on the server replays, up to target_lsn. timeline: the
    one that is followed.
    """

    consistent_lsn: str
    restartpoint_lsn: str | None
    redo_lsn: str
    target_lsn: str
    left_bytes: int
    timeline: int

@type_check_only
class Work(TypedDict):
    """What was done to pages.

    pages: those that the WAL names and keeps. applied: changes; restored: those of them that put a page image in place; superseded:
    those before a later image of their page; removed: those of pages that the WAL removes later; older: those the page had already.
    """

    pages: int
    pages_written: int
    pages_read: int
    applied: int
    restored: int
    superseded: int
    removed: int
    older: int

@type_check_only
class Relation(Work):
    """The same of one fork (0 main, 1 fsm, 2 vm, 3 init)."""

    spcnode: int
    dbnode: int
    relfilenode: int
    fork: int

@type_check_only
class Report(Work):
    """What the WAL holds and what was done.

    is_clean: the server was shut down in order, and nothing else here means anything. changes: of pages, in all records. relations:
    the work by relation. threads: for each thread that read WAL or wrote pages its phase, its time and its CPU time in ns (None where
    the kernel does not tell). rounds: how often pages were written. checkpoint_lsn: of the record added at the end, or of the
    restartpoint; None when nothing was written. backup: of a base backup.
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
    relations: list[Relation]
    threads: list[tuple[str, int, int | None]]
    rounds: int
    spilled_bytes: int
    checkpoint_lsn: str | None
    backup: Restored | None
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

@type_check_only
class RelationAt(TypedDict):
    """from_lsn: where reading began. blocks: in the file. older: changes that the backup had already. last_lsn: the last record
    applied; None when none was."""

    from_lsn: str
    last_lsn: str | None
    blocks: int
    applied: int
    older: int

def relation_at(
    file: str,
    wal: str,
    lsn: str,
    output: str,
    *,
    block: int | None = None,
    threads: int,
    progress: Callable[[int], None] | None = None,
) -> RelationAt:
    """Writes one relation file, or one block of it, as the records that begin before an LSN leave it.

    file: the first one of a relation, in a backup. wal: an archive, a data directory or its pg_wal. Raises kinds usage, not_found,
    rights, unsupported, storage, invalid.
    """

def restore(
    path: str,
    *,
    archive: str,
    command: str | None,
    target: str,
    value: str,
    inclusive: bool,
    timeline: str,
    memory: int,
    threads: int,
    dry_run: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Brings a base backup to the last checkpoint before a recovery target, or only tells what is to be done.

    archive: a folder with WAL; with command, as the server's restore_command, an empty folder for what it brings. target: lsn, time,
    xid, name or end, with its value; a time in microseconds since 1970. timeline: latest, current or a number. progress: as of run,
    with the phase find before the others. Raises kinds usage, not_found, rights, unsupported, storage, invalid.
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
