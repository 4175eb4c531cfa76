"""Rows of a table, from files."""

from collections.abc import Callable
from typing import TypeAlias, TypedDict, final, type_check_only

__all__ = [
    "RowScan", "Tables", "ValueTexts", "built_in_types", "database_names", "files_of_catalogs", "files_of_database", "files_of_table",
]  # fmt: skip

_AsOf: TypeAlias = tuple[int, bool] | tuple[int, int, bool]
"""Rows as they were: the last transaction that counts; or microseconds since 2000, and the oldest transaction whose time is known. And
whether numbers of transactions have begun again."""

@type_check_only
class RowsDescription(TypedDict):
    """What the rows are of. columns: (name, type); provenance: columns that say where a row is; unknown: columns whose values are hex;
    virtual: generated columns that no row keeps a value of; encoding: that of its texts where it is not UTF-8."""

    relation: str
    columns: list[tuple[str, str]]
    provenance: list[str]
    unknown: list[str]
    virtual: list[str]
    unlogged: bool
    encoding: str | None

@type_check_only
class Loss(TypedDict):
    """A page, row or value that could not be read. partition: of a partitioned table, where it is. ctid: None of a whole page; column: None
    of a whole row."""

    partition: str | None
    ctid: str | None
    block: int
    column: str | None
    reason: str

@type_check_only
class RowsStatus(TypedDict):
    """How far the file was read, and what could not be read so far. unreadable: the first losses; unreadable_left_out: how many more.

    invalid_values: printed as bytes, or labels of enums that are lost. missing_blocks: in the middle; cut_off_blocks: at the end, and what
    knows of them. empty_pages: of only zeros; zero_pages: those before pages in use, unwritten_pages: the same where the server did not
    stop; zeros_at: the first of these. lost_partitions: their files are gone; foreign_partitions: another server has their rows;
    undefined_partitions: the catalog has not all of their columns; and their names. undecided_rows: given, though a value that a condition
    needs is lost. unknown_rows: given, though nothing tells whether they are visible, and unknown_why. future_rows: given, of transactions
    later than the next one.
    toast_checksums: pages that values were taken from. catalog_damage: one line each.
    """

    block: int
    blocks: int
    unread_pages: int
    torn_pages: int
    wrong_checksums: int
    gone_blocks: int
    unread_rows: int
    unread_values: int
    vacuumed_values: int
    invalid_values: int
    missing_blocks: int
    cut_off_blocks: int
    cut_off_by: str
    empty_pages: int
    zero_pages: int
    unwritten_pages: int
    zeros_at: str
    lost_partitions: int
    lost_names: str
    foreign_partitions: int
    foreign_names: str
    undefined_partitions: int
    undefined_names: str
    undecided_rows: int
    unknown_rows: int
    unknown_why: list[str]
    future_rows: int
    toast_checksums: int
    catalog_damage: list[str]
    unreadable: list[Loss]
    unreadable_left_out: int
    unconverted_characters: int

@final
class RowScan:
    """The rows of one relation, from the files of a data directory.

    Raises kinds usage, not_found, rights, unsupported, storage, invalid.
    """

    def __new__(
        cls,
        path: str,
        *,
        relation: str | None = None,
        database: str | None = None,
        dead: bool = False,
        columns: list[str] | None = None,
        conditions: str | None = None,
        limit: int | None = None,
    ) -> RowScan:
        """path: a data directory, then relation is [schema.]name; or the file of a relation. dead: rows not visible too. columns: only
        these, in this order. conditions: only rows of which these are true, as SQL writes them. limit: only so many rows."""

    @staticmethod
    def of_given(
        file: str,
        name: str,
        columns: list[tuple[str, int, int]],
        *,
        toast: dict[int, int],
        dead: bool = False,
        as_of: _AsOf | None = None,
    ) -> RowScan:
        """Rows of a file, of columns that are not from a catalog: name, OID of a built-in type, type modifier. toast: see Tables.scan."""

    def describe(self) -> RowsDescription: ...
    def provenance(self) -> list[str]:
        """Names of what stands before the columns in the rows that came last: a status from the first one that is not known."""

    def status(self) -> RowsStatus: ...
    def rows(self, about: int) -> list[list[str | None]] | None:
        """The next rows: provenance, then columns, as text; an empty list is not the end, None is."""

    def export(self, out: str, threads: int, progress: Callable[[int, int], None] | None, which: str = "all") -> tuple[int, list[str]]:
        """Writes rows into OUT.csv, OUT.parquet or OUT.copy; how many, and columns that are text since not all values fit their type.

        which: all; of CSV also sure, those that are whole and visible with nothing beside their columns, doubtful, those that may be
        visible and are not sure, or dead, versions that are not visible, of a scan that gives them. Into OUT.copy, as COPY writes text,
        only sure.
        """

@final
class Tables:
    """The tables of one database, through catalogs that are read once. Raises as RowScan does."""

    def __new__(cls, data_dir: str, database: str | None = None) -> Tables: ...
    def relabel(self, labels: dict[int, dict[int, str]]) -> None:
        """Replaces the labels of enums, by the OID of their type."""

    def find(self, schema: str, name: str) -> int:
        """The OID of a relation with rows."""

    def scan(
        self,
        oid: int,
        *,
        file: str | None = None,
        toast: dict[int, int] = ...,
        dead: bool = False,
        columns: list[str] | None = None,
        as_of: _AsOf | None = None,
    ) -> RowScan:
        """The rows of a relation. file: not its own but this one, of another data directory; then toast has the numbers of the files of
        toast tables by their OIDs, where they are not the same."""

    def damage(self) -> list[str]:
        """What is wrong with the catalogs, one line each."""

def built_in_types() -> list[tuple[int, str, int, str]]:
    """The types that all servers have: OID, name, length and alignment of values."""

@final
class ValueTexts:
    """Prints values that are in no row, such as the constants of a stored expression. Raises as RowScan does."""

    def __new__(cls, data_dir: str, database: str | None = None) -> ValueTexts: ...
    @staticmethod
    def built_in() -> ValueTexts:
        """By the types that all servers have."""

    def text(self, oid: int, value: bytes) -> str | None:
        """A value of the type with this OID, without a length word, as the server prints it; None when it is none of its type."""

_File: TypeAlias = tuple[int, int, int]
"""Tablespace, database (0: shared by all) and number."""

def files_of_catalogs(data_dir: str) -> list[_File]:
    """Files of the catalogs of all databases, as far as pg_class can be read. Raises as database_names does."""

def files_of_table(data_dir: str, table: str | None, database: str | None = None) -> tuple[list[_File], bool]:
    """Files of a table, its partitions and their TOAST tables; and whether no others may be needed, as the catalog is not damaged.
    Raises as RowScan does."""

def files_of_database(data_dir: str, database: str) -> tuple[list[_File], bool]:
    """The same of all relations with rows of a database."""

def database_names(data_dir: str) -> list[tuple[str, bool, int]]:
    """The databases of a data directory: name, whether it is a template, and OID. Where the catalog that lists them is lost, their names
    are their numbers. Raises as RowScan does.
    """
