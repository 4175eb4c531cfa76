"""Rows of a table, from files."""

from collections.abc import Callable
from typing import Any, final

__all__ = ["RowScan"]

@final
class RowScan:
    """The rows of one relation, from the files of a data directory.

    Raises kinds usage, not_found, rights, unsupported, storage, invalid.
    """

    def __new__(cls, path: str, *, relation: str | None = None, database: str | None = None, dead: bool = False) -> RowScan:
        """path: a data directory, then relation is [schema.]name; or the file of a relation. dead: rows not visible too."""

    def describe(self) -> dict[str, Any]:
        """{relation, columns: [(name, type)], provenance: [name], unknown: [name of a column whose values are hex],
        virtual: [name of a generated column that no row keeps a value of], unlogged: bool,
        encoding: that of its texts where it is not UTF-8}"""

    def status(self) -> dict[str, int]:
        """{block, blocks, gone_blocks, unread_pages, torn_pages, wrong_checksums, unread_rows, unread_values,
        unconverted_characters}: as far as was read"""

    def rows(self, about: int) -> list[list[str | None]] | None:
        """The next rows: provenance, then columns, as text; an empty list is not the end, None is."""

    def export(self, out: str, threads: int, progress: Callable[[int, int], None] | None) -> tuple[int, list[str]]:
        """Writes all rows into OUT.csv or OUT.parquet; how many, and columns that are text since not all values fit their type."""
