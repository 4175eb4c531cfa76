"""PostgreSQL's log on disk."""

from collections.abc import Callable
from typing import Any, NotRequired, TypedDict, final, type_check_only

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
class BlockReference(TypedDict):
    """A block that a record refers to. fpi: the image of its page."""

    block_id: int
    spcnode: int
    dbnode: int
    relfilenode: int
    fork: str | None
    block: int
    will_init: bool
    has_image: bool
    data_length: int
    fpi_length: int
    fpi_apply: bool
    fpi_compression: str
    hole_offset: int
    hole_length: int

@type_check_only
class RecordHead(TypedDict):
    """What every record has. xid: 0 for none."""

    lsn: str
    end_lsn: str
    prev_lsn: str
    xid: int
    rmgr: str
    record_type: str

@type_check_only
class WalRecord(RecordHead):
    """A record. description: what it says, other fields for each type of record."""

    top_xid: int
    origin: int
    record_length: int
    main_data_length: int
    fpi_length: int
    blocks: list[BlockReference]
    description: dict[str, Any]

@type_check_only
class Message(TypedDict):
    """An invalidation message: which cache is told, and of what."""

    kind: str
    db: int
    object: int

@type_check_only
class Invalidation(RecordHead):
    """A record that sends invalidation messages. message_count: all that it sends, also those that `messages` does not have."""

    time: str | None
    messages: list[Message]
    message_count: int

@type_check_only
class Change(TypedDict):
    """A change of a block. block: None where the relation lost it. outcome: of its transaction. log_time: the last one before."""

    lsn: str
    end_lsn: str
    xid: int
    rmgr: str
    record_type: str
    block: BlockReference | None
    description: dict[str, Any]
    log_time: str | None
    outcome: str | None
    outcome_time: str | None

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

@final
class History:
    """Every change of the blocks that were asked for, in the order of the log."""

    def ending(self) -> Ending: ...
    def changes(self, limit: int) -> list[Change] | None:
        """The next changes, at most `limit`; None at the end."""

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
    def records(self, limit: int) -> list[WalRecord] | None:
        """The next records, at most `limit`; an empty list is not the end, None is."""

    def invalidations(self, limit: int) -> list[Invalidation] | None:
        """The next records with invalidation messages, likewise; of the last one maybe not all messages: see `message_count`."""

    def more_messages(self) -> list[Message] | None:
        """The next messages of the last record that `invalidations` gave; None when there are no more."""

    def page_image(self, at: str, block_id: int) -> bytes | None:
        """The whole page of the image that the record at this LSN has of a block."""

    def history(self, progress: Callable[[int], None] | None) -> History: ...
    def stats(self, by: str, threads: int, progress: Callable[[int], None] | None) -> Stats:
        """by: type, rmgr, relation, database, hour."""

    def export(self, capture_dir: str, threads: int, progress: Callable[[int], None] | None) -> Exported:
        """Writes the records into a capture folder as wal_record_raw, wal_block_raw and wal_record_type."""
