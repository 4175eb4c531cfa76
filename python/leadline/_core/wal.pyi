"""PostgreSQL's log on disk."""

from collections.abc import Callable
from typing import Any, TypedDict, final, type_check_only

__all__ = ["WalLog"]

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

    def ending(self) -> dict[str, str | None]:
        """{first_lsn, last_lsn, end_lsn, why}: as far as was read; end_lsn and why when the log ended early."""

    def records(self, limit: int) -> list[dict[str, Any]] | None:
        """The next records, at most `limit`; an empty list is not the end, None is."""

    def invalidations(self, limit: int) -> list[dict[str, Any]] | None:
        """The next records with invalidation messages, likewise; of the last one maybe not all messages: see `message_count`."""

    def more_messages(self) -> list[dict[str, Any]] | None:
        """The next messages of the last record that `invalidations` gave; None when there are no more."""

    def page_image(self, at: str, block_id: int) -> bytes | None:
        """The whole page of the image that the record at this LSN has of a block."""

    def history(self, progress: Callable[[int], None] | None) -> dict[str, Any]:
        """{changes: [...], ending}: every change of the blocks asked for; `block` is None where the relation lost it."""

    def stats(self, by: str, threads: int, progress: Callable[[int], None] | None) -> dict[str, Any]:
        """{rows: [...], ending, pages_forgotten}; by: type, rmgr, relation, database, hour."""

    def export(self, capture_dir: str, threads: int, progress: Callable[[int], None] | None) -> dict[str, Any]:
        """{tables: {name: {rows, bytes, segments}}, ending}"""
