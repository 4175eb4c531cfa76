"""A database whose catalog is lost, with that of another data directory of the same schema as its template: where its rows are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline._core.rows import RowScan
from leadline.errors import LeadlineError
from leadline.files.salvage.catalog import AsOf, Catalog
from leadline.files.salvage.control import control
from leadline.files.salvage.heap_files import FIRST_OF_USERS, folders, heap_files
from leadline.files.salvage.matching import Matcher, Matching
from leadline.files.salvage.relations import is_temporary
from leadline.files.salvage.remains import Remains

SAME_CLUSTER = "nearly certain: the same cluster had this file for it"
LARGE_OBJECTS = ("pg_largeobject", "pg_largeobject_metadata")


@dataclass
class Places:
    """Where the rows of a template's tables are in a dead cluster, by their OIDs. others: sequences, empty tables, large objects."""

    data_dir: Path
    matching: Matching
    others: dict[int, tuple[Path, str, str]] = field(default_factory=dict)

    def scan(self, catalog: Catalog, oid: int, columns: list[str] | None, dead: bool, as_of: AsOf) -> RowScan:
        """Raises LeadlineError."""
        match = self.matching.found.get(oid)
        file = match.file.path if match else self.others[oid][0] if oid in self.others else None
        if file is None:
            why = self.matching.refused.get(oid, "no file of the dead database is known to be its: it was empty, or its file is lost")
            raise LeadlineError("not_found", why)
        return catalog.tables.scan(oid, file=str(file), toast=match.toast if match else {}, columns=columns, dead=dead, as_of=as_of)

    def source(self, oid: int) -> dict[str, Any]:
        """For the manifest: where the rows of a table are from, and how sure that is."""
        if match := self.matching.found.get(oid):
            return {"file": match.file.place, "by": match.by, "sure": match.sure}
        if oid in self.others:
            path, by, sure = self.others[oid]
            return {"file": str(path.relative_to(self.data_dir)), "by": by, "sure": sure}
        return {"file": None, "by": None, "sure": self.matching.refused.get(oid, "")}


def places(template: Catalog, data_dir: Path, database: int, names: dict[int, str]) -> Places:
    """Which file is which table. names: of tables, by numbers of files that are given. Raises LeadlineError."""
    files = heap_files(data_dir, database)
    of_users = [row for row in template.rows("pg_class") if int(row["oid"]) >= FIRST_OF_USERS and not is_temporary(template, row)]
    remains, is_same = Remains(template, data_dir, database), is_copy_of(template.data_dir, data_dir)
    matcher = Matcher(template, [row for row in of_users if row["relkind"] in ("r", "m")], files, is_same=is_same)
    matcher.given(names)
    matcher.by_catalog(remains)
    if is_same:
        matcher.by_number()
    else:
        template.tables.relabel(_labels(template, remains))
    matcher.by_shape()
    here = {int(path.name): path for folder in reversed(folders(data_dir, database)) for path in folder.iterdir() if path.name.isdigit()}
    found = Places(data_dir, matcher.result)
    for row in of_users:
        left = remains.classes.get((template.schema(int(row["relnamespace"])), row["relname"]))
        number, by, sure = 0, "", ""
        if left is not None:
            number, by, sure = int(left["relfilenode"] or 0), "pg_class", "certain: what is left of the dead catalog names it"
        elif is_same:
            number, by, sure = int(row["relfilenode"] or 0), "file number", SAME_CLUSTER
        is_empty = number in here and here[number].stat().st_size == 0
        if int(row["oid"]) not in found.matching.found and number in here and (row["relkind"] == "S" or is_empty):
            found.others[int(row["oid"])] = (here[number], by, f"{sure}; it is empty" if is_empty else sure)
    for name in LARGE_OBJECTS:
        found.others[template.tables.find("pg_catalog", name)] = (remains.file(name), "file number", "certain: initdb made it")
    return found


def is_copy_of(template: Path, data_dir: Path) -> bool:
    """Whether the template is an earlier state of the cluster: one that went on by itself since has a timeline of its own."""
    then, now = _identity(template), _identity(data_dir)
    return then is not None and now is not None and then[0] == now[0] and then[1] <= now[1]


def _identity(data_dir: Path) -> tuple[int, int] | None:
    """The identifier of the cluster and its timeline; None when they are lost."""
    try:
        fields = control(data_dir)
        return int(fields["system_identifier"]), int(fields["ThisTimeLineID"])
    except (LeadlineError, KeyError):
        return None


def _labels(template: Catalog, remains: Remains) -> dict[int, dict[int, str]]:
    """Of the template's enums, the labels by the numbers that the dead cluster has for them: those of types with the very same labels."""
    dead: dict[str, dict[int, str]] = {}
    for row in remains.rows("pg_enum"):
        dead.setdefault(row["enumtypid"], {})[int(row["oid"] or 0)] = row["enumlabel"]
    found: dict[int, dict[int, str]] = {}
    for oid, rows in template.grouped("pg_enum", "enumtypid").items():
        labels = {row["enumlabel"] for row in rows}
        found[oid] = {number: label for each in dead.values() if set(each.values()) == labels for number, label in each.items()}
    return found
