"""PostgreSQL's log on disk."""

from collections.abc import Callable
from typing import NotRequired, TypedDict, final, type_check_only

from leadline._core.capture import Written

__all__ = ["History", "WalLog"]

@type_check_only
class WalDescription(TypedDict):
    """The log, and the part of it that is read."""

    major: int
    system_id: str
    timeline: int
    segment_size: int
    segments: int
    from_lsn: str
    to_lsn: str
    bytes: int

@type_check_only
class Ending(TypedDict):
    """Where the log ended, as far as it was read. end_lsn and why: only if it ended before what was asked for."""

    first_lsn: str | None
    last_lsn: str | None
    end_lsn: str | None
    why: str | None

@type_check_only
class StatsRow(TypedDict):
    """Sums over some records. Which ones say the first keys, of which there are those of `by`; relation: its name, if somebody adds it."""

    rmgr: NotRequired[str]
    record_type: NotRequired[str]
    spcnode: NotRequired[int | None]
    dbnode: NotRequired[int | None]
    relfilenode: NotRequired[int | None]
    hour: NotRequired[str | None]
    relation: NotRequired[str]
    records: int
    record_bytes: int
    fpi: int
    fpi_bytes: int
    superseded_fpi_bytes: int

@type_check_only
class Stats(TypedDict):
    """pages_forgotten: pages with images of which it is not known whether a later one supersedes them."""

    rows: list[StatsRow]
    ending: Ending
    pages_forgotten: int

@type_check_only
class Exported(TypedDict):
    """The tables that were written."""

    tables: dict[str, Written]
    ending: Ending

@type_check_only
class RecordsBetween(TypedDict):
    """records: end and start, resource manager, type, length, bytes of page images, blocks, and the first block: tablespace, database,
    file, fork, block. wrong: places whose record ends elsewhere; gone: places whose WAL is not there any more."""

    records: list[tuple[int, int, str, str, int, int, int, tuple[int, int, int, int, int] | None]]
    wrong: int
    gone: int

@final
class History:
    """Every change of the blocks that were asked for, in the order of the log."""

    def ending(self) -> Ending: ...
    def changes(self, json: bool, limit: int) -> tuple[int, bytes] | None:
        """The next changes as printed, as `WalLog.records`."""

@final
class WalLog:
    """PostgreSQL's log on disk: a folder of segments or one of them, and the records of it that are wanted.

    Raises kinds usage, not_found, rights, unsupported, storage, invalid; gone when the server takes a segment away meanwhile.
    """

    def __new__(
        cls,
        path: str,
        *,
        timeline: int | None = None,
        start: str | None = None,
        end: str | None = None,
        spc: int | None = None,
        db: int | None = None,
        rel: int | None = None,
        fork: int | None = None,
        block: int | None = None,
        xid: int | None = None,
        rmgr: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> WalLog:
        """start, end: LSNs; records that begin from start on and before end. since, until: likewise from the first record that tells
        such a time (Unix microseconds) or a later one. The others: what a record must have."""

    def describe(self) -> WalDescription: ...

    def ending(self) -> Ending: ...
    def records(self, json: bool, limit: int) -> tuple[int, bytes] | None:
        """The next records as printed, at most `limit`: how many and what; None at the end. What is printed is lines, or with `json`
        objects with commas between them; it may be nothing, which is not the end."""

    def invalidations(self, json: bool, limit: int) -> tuple[int, bytes] | None:
        """The next records with invalidation messages, likewise. One with very many is several rows, counted once."""

    def page_image(self, at: str, block_id: int) -> bytes | None:
        """The whole page of the image that the record at this LSN has of a block."""

    def history(self, progress: Callable[[int], None] | None) -> History: ...
    def stats(self, by: str, threads: int, progress: Callable[[int], None] | None) -> Stats:
        """by: type, rmgr, relation, database, hour."""

    def records_between(self, places: list[tuple[int, int]]) -> RecordsBetween:
        """The records that a server was seen to replay. places: what was replayed before each, and where it ends."""

    def export(self, capture_dir: str, threads: int, progress: Callable[[int], None] | None) -> Exported:
        """Writes the records into a capture folder as wal_record_raw, wal_block_raw and wal_record_type."""
