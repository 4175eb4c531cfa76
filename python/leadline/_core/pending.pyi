"""Rows and indexes in an old form."""

from collections.abc import Callable
from typing import TypedDict, final, type_check_only

__all__ = ["REASONS", "OldPages", "pending_scan"]

@type_check_only
class Pending(TypedDict):
    """What is in an old form in one relation.

    reasons: (rows, pages, bytes) of each reason that there is; any: of all of them, each row and page once. in_progress: of these rows,
    those of transactions that had not ended; unknown: those of which nothing tells whether they are visible, and unknown_why. missing:
    which blocks no file has. vanished: the file was gone when its turn came; absent: why there is no file to look at.
    """

    database: str
    relation: str
    oid: int
    is_unlogged: bool
    is_table: bool
    blocks: int
    pages: int
    reasons: dict[str, tuple[int, int, int]]
    any: tuple[int, int, int]
    in_progress: int
    unknown: int
    unknown_why: list[str]
    missing: list[str]
    unread_pages: int
    unread_rows: int
    gone_pages: int
    vanished: bool
    absent: str | None

@type_check_only
class PendingScan(TypedDict):
    """relations: old or not. refused: databases whose catalogs cannot be read, and why. damage: what is wrong with the others, in lines."""

    relations: list[Pending]
    refused: list[tuple[str, str]]
    damage: list[str]

def pending_scan(
    path: str,
    table: str | int | None = None,
    database: str | int | None = None,
    oldest_running: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    threads: int = 0,
    verify: bool = False,
) -> PendingScan:
    """What is in an old form, relation by relation.

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
