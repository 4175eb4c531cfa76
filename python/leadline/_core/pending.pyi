"""Rows and indexes in an old form."""

from collections.abc import Callable
from typing import Any, final

__all__ = ["REASONS", "OldPages", "pending_scan"]

def pending_scan(
    path: str,
    table: str | int | None = None,
    database: str | int | None = None,
    oldest_running: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    threads: int = 0,
    verify: bool = False,
) -> list[dict[str, Any]]:
    """What is in an old form, relation by relation, old or not: [{database, relation, oid, is_table, is_unlogged, blocks, pages,
    reasons: {reason: (rows, pages, bytes)} without those that are not there, any: (rows, pages, bytes),
    in_progress, unread_pages, unread_rows, gone_pages, vanished}].

    path: a data directory, or the file of a relation. table: [database.][schema.]table, or its oid; so of database. oldest_running:
    a transaction before it that neither committed nor aborted was ended by a crash. progress: gets bytes done and all, may raise.
    threads: 0 for one on each core. verify: compare checksums, where there are any.
    Raises kinds usage, not_found, rights, unsupported, storage, invalid.
    """

@final
class OldPages:
    """The old rows of one table, page by page."""

    def __new__(cls, path: str, database: str | int, oid: int, oldest_running: int | None = None) -> OldPages: ...
    def progress(self) -> tuple[int, int]:
        """Blocks looked at, blocks there are."""

    def next_pages(self, about_rows: int) -> list[tuple[int, int, list[tuple[int, int, int, int]]]] | None:
        """(block, bytes of room, [(lp, bits of reasons, bytes, about its bytes rewritten)]) of the next pages that have old
        rows; an empty list is not the end, None is."""

REASONS: list[tuple[str, int, bool]]
"""(name, bit, whether it is of rows) of each reason."""
