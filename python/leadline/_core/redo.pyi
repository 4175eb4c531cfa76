"""Redo of PostgreSQL's log, page by page."""

from typing import TypedDict, type_check_only

__all__ = ["check"]

@type_check_only
class Tally(TypedDict):
    """What was done with the records of one kind.

    compared: pages compared with an image. begun: pages restored from an image or not known yet, with nothing to compare. unnamed: pages
    that changed and that the record does not name.
    """

    records: int
    compared: int
    begun: int
    unnamed: int
    differences: int

@type_check_only
class Checked(TypedDict):
    """kinds: by resource manager and record type. differences: the first hundred, in words."""

    major: int
    pages: int
    kinds: dict[tuple[str, str], Tally]
    differences: list[str]

def check(path: str, *, start: str | None = None, block_size: int | None = None, hint_bits_are_logged: bool = True) -> Checked:
    """Redoes a log written with wal_consistency_checking, and compares each page with its image after each record.

    path: segments in a folder, or a data directory. hint_bits_are_logged: data checksums or wal_log_hints were on.
    block_size: of the server, 8 kB by default.
    Raises kinds usage, not_found, rights, unsupported, storage, invalid.
    """
