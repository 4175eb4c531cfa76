"""Pages of database files, taken apart."""

from typing import Any, NotRequired, TypedDict, final, type_check_only

from leadline._core.datadir import Remark

__all__ = ["PagePlan", "PageRun", "PageValues", "RelationRun", "backup_list", "backups_in", "informix_page_type", "page_read"]

_Class = TypedDict("_Class", {"class": str})  # a keyword, so no class statement can have it

@type_check_only
class Field(TypedDict):
    """A field of a part. value: int, float, bool, text, or a list of numbers or texts. offset: in the page; None of a dump."""

    value: Any
    offset: int | None
    length: int | None
    flags: NotRequired[list[str]]
    words: NotRequired[str]

@type_check_only
class Part(TypedDict):
    """A part of a page: its header, a line pointer, a tuple. values: those of an item by column, from leadline.files.pages.values."""

    part: str
    number: int | None
    offset: int | None
    length: int | None
    fields: dict[str, Field]
    values: NotRequired[dict[str, str | None]]

@type_check_only
class Wrong(_Class):
    """What is wrong in a page."""

    what: str
    item: int | None
    offset: int | None
    wanted: str
    found: str
    message: str

@type_check_only
class Problem(_Class):
    """What is wrong with a file, whether with one of its pages or the whole of it."""

    path: str
    block: int
    kind: str
    what: str
    item: int | None
    message: str

@type_check_only
class PageProblem(Problem):
    """What is wrong with a page of a file."""

    offset: int
    wanted: str
    found: str

@type_check_only
class RelationProblem(Problem):
    """What is wrong between pages, or between a row and what it should fit. relation: schema.name; means: for the
    data; sure: "certain" or "likely".
    """

    relation: str
    means: str
    sure: str

_Region = tuple[int, int, str, int | None, str, str]  # start, end, part, number, field, kind

@type_check_only
class Dissected(TypedDict):
    """A page taken apart. The regions tile the page."""

    kind: str
    computed_checksum: int | None
    parts: list[Part]
    problems: list[Wrong]
    regions: list[_Region]

@type_check_only
class Dump(TypedDict):
    """The text that a page was read from. missing_bytes: bytes of the page that it lacks; None where it has no bytes at all."""

    tool: str
    missing_bytes: int | None

@type_check_only
class Page(Dissected):
    """A page and where it is. checksums: whether its file keeps them, None where nobody knows.

    leadline.files.pages gives pages of dumps too, which may have no raw bytes and no block_size, and adds the keys that are not required:
    relation and columns (name, type), or untyped, which says why there are none; encoding and how many characters could not be converted.
    """

    path: str
    engine: str
    block: int
    fork: str
    fork_block: int
    block_size: int | None
    checksums: bool | None
    raw: bytes | None
    dump: NotRequired[Dump]
    relation: NotRequired[str | None]
    columns: NotRequired[list[tuple[str, str]] | None]
    untyped: NotRequired[str]
    encoding: NotRequired[str]
    unconverted_characters: NotRequired[int]
    notes: NotRequired[list[Remark]]

def page_read(
    path: str, block: int, block_size: int | None = None, *, engine: str | None = None, version_15: bool = False,
    row_size: int | None = None,
) -> Page:  # fmt: skip
    """One page of a file. Its name or first bytes tell its format, or else engine does: "informix", which has the last two."""

def backups_in(path: str) -> list[str]:
    """The folders of all backups of a repository, complete or not, in the order of their names. Raises kind not_found."""

def backup_list(path: str) -> str:
    """The file that says what is in a backup: while it is the same, so is the backup."""

def informix_page_type(flags: int) -> str:
    """What pg_flags (pgflgs of onstat, 16 bits) says a page is."""

@type_check_only
class PageRunStatus(TypedDict):
    """How far it is, and how many problems were found."""

    running: bool
    bytes: int
    total_bytes: int
    problems: int

@type_check_only
class NotChecked(TypedDict):
    """Files of one kind that were passed over, with the first of them."""

    kind: str
    files: int
    first: str

@type_check_only
class PageRunSummary(TypedDict):
    """What was seen, in sum. checksums: pages whose checksum was compared. kinds, classes, rows: pages, problems and rows by name.

    vanished: files that were gone when their turn came; absent: links of tablespaces that lead nowhere; shrunk: parts of files that
    became shorter meanwhile; not_checked: files that have no pages of a relation; incremental: files of an incremental backup, which have
    some blocks of a relation's file; backups: those read in place, and what each is; written_again: their pages with a wrong checksum that
    were changed while the backup was taken, so that its WAL has them; digests: files that have the digest of the backup's own list.
    """

    files: int
    bytes: int
    pages: int
    items: int
    checksums: int
    kinds: dict[str, int]
    classes: dict[str, int]
    rows: dict[str, int]
    vanished: int
    shrunk: int
    absent: list[str]
    not_checked: list[NotChecked]
    incremental: int
    backups: list[tuple[str, str]]
    written_again: int
    digests: int

_PageTask = dict[str, Any]  # of JSON; keys that are not known here are passed over

@type_check_only
class PagePlanAbout(TypedDict):
    """What a plan has to read, and what it does not: as of PageRunSummary."""

    files: int
    incremental: int
    absent: list[str]
    not_checked: list[NotChecked]
    backups: list[tuple[str, str]]

@final
class PagePlan:
    """What there is to read in files, folders, data directories and backups, as tasks of up to 64 MB that any process can be given.

    key: that of encrypted backups.
    """

    def __new__(cls, paths: list[str], *, block_size: int | None = None, key: str | None = None) -> PagePlan: ...
    @staticmethod
    def of_task(task: _PageTask, *, key: str | None = None) -> PagePlan:
        """What one task reads. Raises what opening its backup raises."""

    def tasks(self) -> list[_PageTask]:
        """{"files": [{file_id, path, bytes, from, to, ...}]}, or {"backup": PATH, "part": N, ...}; in the order of the files."""

    def about(self) -> PagePlanAbout: ...
    def write_files(self, capture_dir: str) -> None:
        """The table page_file of a capture."""

@final
class PageRun:
    """All pages of files, folders, data directories and backups, looked at by threads of its own. key: that of encrypted backups."""

    def __new__(cls, paths: list[str], *, block_size: int | None = None, threads: int = 0, key: str | None = None) -> PageRun: ...
    @staticmethod
    def of_task(plan: PagePlan, task: _PageTask, folder: str) -> PageRun:
        """The pages of a task of the plan, in one thread, with their rows in tables below the folder: the same bytes each time."""

    def status(self) -> PageRunStatus: ...
    def take(self, most: int, wait_s: float) -> list[PageProblem] | None:
        """Problems found since the last call; waits for the first. None: no more will come."""

    def stop(self) -> None:
        """Tells the threads to stop soon."""

    def finish(self) -> PageRunSummary:
        """Waits for the end. Raises what ended it early."""

@type_check_only
class RelationRunSummary(TypedDict):
    """What was checked. classes: problems by name; skipped: what could not be compared, by the reason."""

    relations: int
    classes: dict[str, int]
    skipped: dict[str, int]

@final
class RelationRun:
    """All relations of a data directory, or the one that a file is of, checked across their pages by a thread of its own.

    values: also the values of rows, with the catalog, TOAST chunks and transaction logs.
    """

    def __new__(cls, path: str, *, values: bool = False) -> RelationRun: ...
    def status(self) -> tuple[int, int]:
        """Relations that are done, and all that are known so far."""

    def take(self, most: int, wait_s: float) -> list[RelationProblem] | None:
        """Problems found since the last call; waits for the first. None: no more will come."""

    def stop(self) -> None:
        """Tells the thread to stop soon."""

    def finish(self) -> RelationRunSummary:
        """Waits for the end. Raises what ended it early."""

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
