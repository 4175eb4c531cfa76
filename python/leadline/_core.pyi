"""The compiled part of leadline (crates/py). Every error is a leadline.errors.LeadlineError."""

from collections.abc import Callable
from typing import Any, TypedDict, final, type_check_only

__all__ = [
    "DEFAULT_BLOCK_SIZE",
    "MAJORS",
    "REASONS",
    "VERSION",
    "CatalogNames",
    "HostProbe",
    "Keeper",
    "OldPages",
    "PageRun",
    "PageValues",
    "Recorder",
    "RowScan",
    "TableWriter",
    "WalLog",
    "block_sizes",
    "clock",
    "condition",
    "file_faults",
    "informix_page",
    "informix_page_type",
    "normalise",
    "page_read",
    "pending_scan",
    "relation_names",
]

VERSION: str

_Value = int | float | str | bool | None

def normalise(text: str) -> tuple[str, int]:
    """A statement with its literals replaced by $n, and the 64-bit key of its shape (0 for an empty text)."""

def clock() -> tuple[int, int]:
    """(CLOCK_MONOTONIC ns, CLOCK_REALTIME ns) of the same moment."""

@final
class TableWriter:
    """Writes rows of one stored table into a capture folder, checked against the table's columns."""

    def __new__(cls, capture_dir: str, table: str) -> TableWriter: ...
    def append(self, rows: list[tuple[_Value, ...]]) -> None:
        """Adds rows: values in the order of the columns. All of them, or none when one does not fit."""

    def flush(self) -> None:
        """Finishes the present segment: its rows are then in a file that readers see. No rows, no file."""

    def close(self) -> dict[str, int]:
        """Flushes and ends: {"rows", "bytes", "segments"}. Closing again gives the same figures."""

def block_sizes(data_dir: str) -> tuple[int, int]:
    """What a data directory's pg_control says of its pages: bytes of a block, and of a block of the log."""

DEFAULT_BLOCK_SIZE: int
"""Bytes of a block, and of a block of the log, unless the server was built otherwise."""

MAJORS: tuple[int, int]
"""The first and the last major whose data directories are known."""

@final
class CatalogNames:
    """Names from the catalog files of a data directory. Rows of transactions that had not ended, as far as the files tell, count too.

    Raises kinds not_found, rights, unsupported, storage, invalid.
    """

    def __new__(cls, data_dir: str) -> CatalogNames: ...
    def databases(self) -> list[tuple[int, str, int, int]]:
        """(oid, name, default tablespace, bytes or -1) of each database."""

    def roles(self) -> list[tuple[int, str]]:
        """(oid, name) of each role."""

    def relations(self, datid: int) -> list[tuple[int, int, int, int, str, str, str, str, int, int, float]]:
        """Rows of the table `relation` for one database, shared relations (datid 0) with it."""

@type_check_only
class Remark(TypedDict):
    """One thing that a reader of the files should know. is_error: they are damaged, not only behind."""

    name: str
    is_error: bool
    message: str
    hint: str

@type_check_only
class Condition(TypedDict):
    """server: running, stopped, stopped in recovery, crashed, copied, restoring, unknown. behind_since: from which LSN on the log may
    not be in the files; None when all of it is. remarks: errors first; empty when the files are whole and nobody writes them."""

    root: str
    server: str
    pid: int | None
    behind_since: str | None
    has_backup_label: bool
    has_standby_signal: bool
    has_recovery_signal: bool
    remarks: list[Remark]

def condition(path: str) -> Condition | None:
    """How well the data directory at `path` is, or the one that the file `path` is in; None when it is in none."""

def page_read(path: str, block: int, block_size: int | None = None) -> dict[str, Any]:
    """One page of a file: {path, engine, block, fork, fork_block, block_size, kind, checksums, computed_checksum, raw,
    parts: [{part, number, offset, length, fields: {name: {value, offset, length, flags?, words?}}}],
    problems: [{class, what, item, offset, wanted, found, message}],
    regions: [(start, end, part, number, field, kind)]}"""

def informix_page(page: bytes, *, version_15: bool = False, row_size: int | None = None) -> dict[str, Any]:
    """One page of Informix: {kind, computed_checksum, parts, problems, regions}, as in page_read."""

def informix_page_type(flags: int) -> str:
    """What pg_flags (pgflgs of onstat, 16 bits) says a page is."""

@final
class PageRun:
    """All pages of files, folders and data directories, looked at by threads of its own; with capture_dir written as tables."""

    def __new__(cls, paths: list[str], *, block_size: int | None = None, capture_dir: str | None = None, threads: int = 0) -> PageRun: ...
    def status(self) -> dict[str, Any]:
        """{running, bytes, total_bytes, problems}"""

    def take(self, most: int, wait_s: float) -> list[dict[str, Any]] | None:
        """Problems found since, as in page_read with path, block, kind; waits for the first. None: no more will come."""

    def stop(self) -> None:
        """Tells the threads to stop soon."""

    def finish(self) -> dict[str, Any]:
        """Waits for the end: {files, bytes, pages, items, checksums, kinds, classes, rows, vanished, shrunk}.

        Raises what ended it early."""

@final
class Recorder:
    """The shared-memory probe of one server and the threads that write what it sees."""

    def __new__(
        cls,
        capture_dir: str,
        pid: int,
        rate_hz: float,
        *,
        delta_interval_s: float = 1.0,
        flush_interval_s: float = 5.0,
        growing_segments: bool = True,
        allow_map: bool = True,
    ) -> Recorder:
        """Attaches to the postmaster `pid` and calibrates. Raises kinds rights, unsupported, layout, not_found."""

    def describe(self) -> dict[str, Any]:
        """{server_version_num, server_version, max_connections, shared_buffers_bytes, data_dir,
        layout_checks: [{check, result, detail}], access: {shared_memory, private_memory, why},
        probes: {name: {status, why, hint}}}"""

    def start(self) -> None:
        """Starts sampling in threads of its own and returns."""

    def status(self) -> dict[str, Any]:
        """{running, error: dict | None, ts_from, ts_now, ticks, missed, torn, sessions, rows, bytes_written, cpu_ns}"""

    def stop(self) -> dict[str, Any]:
        """Flushes and joins; the final status with {"tables": {name: {rows, bytes, segments}}, "loss": {...}, "ts_to"}."""

@final
class Keeper:
    """Writes `clock`, and what the process used into `self_cost`, once a second, in a thread of its own."""

    def __new__(cls, capture_dir: str, *, flush_interval_s: float = 5.0, growing_segments: bool = True) -> Keeper: ...
    def start(self) -> None: ...
    def status(self) -> dict[str, Any]:
        """{running, error: dict | None, ts_from, ticks, missed, rows, bytes_written, cpu_ns}; cpu_ns: of its thread"""

    def stop(self) -> dict[str, Any]:
        """Flushes and joins; the final status with {"tables": {name: {rows, bytes, segments}}, "ts_to"}."""

@final
class HostProbe:
    """The host as /proc, /sys and taskstats tell it, read in a thread of its own."""

    def __new__(
        cls,
        capture_dir: str,
        rate_hz: float,
        *,
        flush_interval_s: float = 5.0,
        growing_segments: bool = True,
        taskstats: bool = True,
    ) -> HostProbe:
        """Opens every way to look that our rights allow. taskstats: False does without that interface."""

    def describe(self) -> dict[str, bool]:
        """{taskstats, exits, delays, pressure, io_of_others}: which ways to look were open"""

    def start(self) -> None: ...
    def status(self) -> dict[str, Any]:
        """As of Keeper."""

    def stop(self) -> dict[str, Any]:
        """As of Keeper, with {"loss": {ticks_taken, ticks_missed, exit_overruns, cgroups_left_out}}."""

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

def file_faults(data_dir: str) -> list[dict[str, Any]]:
    """What is wrong with the files of a data directory as its catalogs have them: {class, path, relation, bytes, wanted, found}.

    class: missing, odd (no regular file), short (fewer blocks than were counted last), orphan (of no relation; path names the first of its
    files), catalog (cannot be read). Nothing of a copy or a backup without its log. Raises as RowScan does.
    """

def relation_names(data_dir: str) -> dict[tuple[int, int, int], tuple[str, str]]:
    """Of the file of each relation in a data directory (tablespace, database, number): (database, schema.name).

    The database of what all databases share is 0, without a name. Raises as RowScan does.
    """

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

    def describe(self) -> dict[str, Any]:
        """{major, system_id, timeline, segment_size, segments, from_lsn, to_lsn, bytes}"""

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
