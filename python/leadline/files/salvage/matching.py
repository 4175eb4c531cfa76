"""Which file of a dead database is which table of a template: by what is left of the dead catalog, as given, by its number or by shape.

What is not certain is said; a file that may be of two tables, or a table that may have two files, is not chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from leadline.errors import LeadlineError
from leadline.files.salvage.catalog import Catalog, Row
from leadline.files.salvage.heap_files import FIRST_OF_USERS, HeapFile, chunk_of, tuples_of
from leadline.files.salvage.remains import Remains
from leadline.files.salvage.shapes import Column, fit, fits, pointers

UTF8 = 6
OWN_AT = {"A": 8, "c": 4, "r": 0, "m": 0, "e": 0}
"""Of an array, a composite type, a range, a multirange and an enum, where values have the OID of their type, elements or label."""
TOAST_PAGES = 4096  # of a file that are looked through for a value
OF_TEXT = {25, 1042, 1043, 114, 142, 194, 1790, 19}


@dataclass
class Match:
    """A file of a table. toast: numbers of the files of TOAST tables by their OIDs, where these are not their numbers."""

    file: HeapFile
    by: str
    sure: str
    toast: dict[int, int] = field(default_factory=dict)


@dataclass
class Matching:
    """By the OID of a table in the template its file; files of no table, with those that they may be of; tables that may have several."""

    found: dict[int, Match] = field(default_factory=dict)
    left: list[tuple[HeapFile, list[str]]] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    toasts: dict[int, HeapFile] = field(default_factory=dict)


def columns_of(catalog: Catalog, oid: int, *, is_same: bool) -> list[Column]:
    """As values of a table lie in its rows. is_same: the dead cluster has the same OIDs, so that labels of enums can be checked."""
    types = catalog.by_oid("pg_type")
    is_utf8 = any(row["datname"] == catalog.database and int(row["encoding"]) == UTF8 for row in catalog.rows("pg_database"))

    def base(oid: int) -> int:
        while (row := types.get(oid)) and row["typtype"] == "d" and int(row["typbasetype"]) != oid:
            oid = int(row["typbasetype"])
        return oid

    def is_array_of_users(oid: int) -> bool:
        return bool(types[oid]["typcategory"] == "A" and int(types[oid]["typelem"]))

    def column(row: Row) -> Column:
        dropped = row["attisdropped"] == "t"
        of = actual = 0 if dropped else base(int(row["atttypid"]))
        kind = types.get(of, {}).get("typtype")
        checked = of < FIRST_OF_USERS or (kind == "e" and is_same)
        of = of if checked and kind in ("b", "r", "m", "e") and (is_utf8 or of not in OF_TEXT) else 0
        is_array = of and types[of]["typcategory"] == "A" and int(row["attlen"]) == -1
        element = int(types[of]["typelem"]) if is_array else 0
        own_at = OWN_AT.get("A" if is_array_of_users(actual) else kind or "") if not dropped and actual >= FIRST_OF_USERS else None
        return Column(of, int(row["attlen"]), row["attalign"], int(row["atttypmod"]), element, own_at)

    return [column(row) for row in catalog.attributes.get(oid, ())]


class Matcher:
    """Of the files of a dead database with the tables of a template."""

    def __init__(self, template: Catalog, tables: Iterable[Row], files: list[HeapFile], *, is_same: bool) -> None:
        self.template, self.prints = template, template.value
        self.tables = {int(row["oid"]): row for row in tables}
        self.files = {file.number: file for file in files}
        self.toasts = {file.number: file for file in files if file.is_toast}
        self.columns = {oid: columns_of(template, oid, is_same=is_same) for oid in self.tables}
        self.named = set[int]()
        self.result = Matching(toasts=self.toasts)

    def name(self, oid: int) -> str:
        row = self.tables[oid]
        return f"{self.template.schema(int(row['relnamespace']))}.{row['relname']}"

    def fits(self, file: HeapFile, oid: int) -> bool:
        columns = self.columns[oid]
        return file.natts <= len(columns) and fits(file.sample, columns, self.prints)

    def take(self, oid: int, file: HeapFile, by: str, sure: str) -> bool:
        """Whether the file is one of this table, by its rows: most of them, as some may be damaged."""
        looked, fitting = len(file.sample), sum(fit(row, self.columns[oid], self.prints) for row in file.sample)
        if 2 * fitting <= looked:
            self.result.refused[oid] = f"{by} names file {file.number} for it, but the rows in it are not of its columns"
            return False
        looks = f"{looked} rows looked at fit its columns" if fitting == looked else f"{fitting} of {looked} rows looked at fit its columns"
        self.result.found[oid] = Match(file, by, f"{sure}; {looks}", toast_files(file, self.columns[oid], self.toasts))
        del self.files[file.number]
        return True

    def given(self, names: dict[int, str]) -> None:
        """By numbers of files that who asks has named. Raises LeadlineError."""
        oids = {self.name(oid): oid for oid in self.tables}
        for number, name in names.items():
            if name not in oids:
                raise LeadlineError("not_found", f"the template has no table named {name}")
            if number not in self.files:
                raise LeadlineError("not_found", f"no file with number {number} has rows of a table")
            if not self.take(oids[name], self.files[number], "--match", "certain: given"):
                raise LeadlineError("usage", f"file {number} is not one of {name}", detail="the rows in it are not of its columns")

    def by_catalog(self, remains: Remains) -> None:
        """By the rows of the dead pg_class that can be read: a name counts with the name of its schema."""
        for oid, row in self.tables.items():
            left = remains.classes.get((self.template.schema(int(row["relnamespace"])), row["relname"]))
            number = int(left["relfilenode"] or 0) if left is not None else 0
            if oid not in self.result.found and number in self.files:
                self.take(oid, self.files[number], "pg_class", "certain: what is left of the dead catalog names it")
        # What it names as another table is no table of the template by anything else.
        self.named = {int(row["relfilenode"] or 0) for row in remains.classes.values()}

    def by_number(self) -> None:
        """In a copy of the same cluster a table had the same file, unless it was rewritten since."""
        for oid, row in self.tables.items():
            number = int(row["relfilenode"] or 0)
            if oid not in self.result.found and number in self.files and number not in self.named:
                self.take(oid, self.files[number], "file number", "nearly certain: the same cluster had this file for it")

    def by_shape(self) -> None:
        """A file whose rows are of the columns of one table, and of no other, when no other file's rows are. A row must have all columns:
        one with fewer, from before a column was added, may be of any table that begins so.
        """
        open_tables = [oid for oid in self.tables if oid not in self.result.found]

        def fitting(file: HeapFile) -> list[int]:
            if file.number in self.named:
                return []
            return [oid for oid in open_tables if file.natts == len(self.columns[oid]) and self.fits(file, oid)]

        may_be = {number: fitting(file) for number, file in self.files.items()}
        files_of = defaultdict(list)
        for number, oids in may_be.items():
            for oid in oids:
                files_of[oid].append(number)
        for number, oids in may_be.items():
            file = self.files[number]
            if len(oids) == 1 and len(files_of[oids[0]]) == 1:
                self.take(oids[0], file, "shape", "likely: only this file fits this table, and no other table")
        for number, file in self.files.items():
            if may_be[number] or number not in self.toasts:
                self.result.left.append((file, [self.name(oid) for oid in may_be[number]]))
        for oid, numbers in files_of.items():
            if oid not in self.result.found:
                self.result.refused.setdefault(oid, f"it may be file {' or '.join(map(str, numbers))}: choose with --match")


def toast_files(file: HeapFile, columns: list[Column], toasts: dict[int, HeapFile]) -> dict[int, int]:
    """Of TOAST tables that the rows name and that are in a file with another number, that file: the only one that has the values."""
    wanted = defaultdict(set)
    for pointer in pointers(file.sample, columns):
        if pointer.relid not in toasts:
            wanted[pointer.relid].add(pointer.value_id)
    found = {}
    for relid, values in wanted.items():
        having = [number for number, toast in toasts.items() if _has(toast, values)]
        if len(having) == 1:
            found[relid] = having[0]
    return found


def _has(toast: HeapFile, values: set[int]) -> bool:
    """Whether a TOAST table has all of these values."""
    left = set(values)
    size = toast.path.stat().st_size // max(toast.blocks, 1)
    with toast.path.open("rb") as file:
        for _ in range(min(toast.blocks, TOAST_PAGES)):
            left -= {chunk[0] for row in tuples_of(file.read(size)) if (chunk := chunk_of(row))}
            if not left:
                return True
    return not left
