"""Pages of database files, taken apart."""

from typing import Any, TypedDict, final, type_check_only

__all__ = ["PageRun", "PageValues", "informix_page", "informix_page_type", "page_read"]

def page_read(path: str, block: int, block_size: int | None = None) -> dict[str, Any]:
    """One page of a file: {path, engine, block, fork, fork_block, block_size, kind, checksums, computed_checksum, raw,
    parts: [{part, number, offset, length, fields: {name: {value, offset, length, flags?, words?}}}],
    problems: [{class, what, item, offset, wanted, found, message}],
    regions: [(start, end, part, number, field, kind)]}"""

def informix_page(page: bytes, *, version_15: bool = False, row_size: int | None = None) -> dict[str, Any]:
    """One page of Informix: {kind, computed_checksum, parts, problems, regions}, as in page_read."""

def informix_page_type(flags: int) -> str:
    """What pg_flags (pgflgs of onstat, 16 bits) says a page is."""

@type_check_only
class PageRunStatus(TypedDict):
    """How far it is, and how many problems were found."""

    running: bool
    bytes: int
    total_bytes: int
    problems: int

@final
class PageRun:
    """All pages of files, folders and data directories, looked at by threads of its own; with capture_dir written as tables."""

    def __new__(cls, paths: list[str], *, block_size: int | None = None, capture_dir: str | None = None, threads: int = 0) -> PageRun: ...
    def status(self) -> PageRunStatus: ...

    def take(self, most: int, wait_s: float) -> list[dict[str, Any]] | None:
        """Problems found since, as in page_read with path, block, kind; waits for the first. None: no more will come."""

    def stop(self) -> None:
        """Tells the threads to stop soon."""

    def finish(self) -> dict[str, Any]:
        """Waits for the end: {files, bytes, pages, items, checksums, kinds, classes, rows, vanished, shrunk}.

        Raises what ended it early."""

@final
class PageValues:
    """The values of a page's items, through the catalog of the data directory that a relation's file is in.

    relation: schema.name; columns: [(name, type)], of an index those of its tuples; encoding: that of texts where it is not UTF-8;
    unconverted_characters: how many so far could not be converted from it, and are U+FFFD.
    """

    relation: str
    columns: list[tuple[str, str]]
    encoding: str | None

    @property
    def unconverted_characters(self) -> int: ...
    def __new__(cls, path: str) -> PageValues:
        """path: a file of a relation. Raises kinds not_found, rights, unsupported, storage, invalid."""

    def of(self, page: bytes, block: int) -> list[tuple[int, list[tuple[str, str | None]]]]:
        """(line pointer, [(name, text)]) of each item; an inner tuple of an index may lack the last columns."""
