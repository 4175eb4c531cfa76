"""What is wrong with a data directory as a whole: its control file, and files that do not fit its catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from leadline._core.catalog import file_faults
from leadline.errors import LeadlineError
from leadline.files import condition

if TYPE_CHECKING:
    from leadline._core.pages import Problem

    class FileProblem(Problem):
        """A fault that the catalogs tell of, with what they say."""

        relation: str
        bytes: int
        wanted: str
        found: str


WORDS = {
    "missing": "{relation} has no file",
    "tablespace": "{wanted} is missing",
    "odd": "the file of {relation} is not a regular file: {found}",
    "short": "{relation} has {found}, expected {wanted}",
    "orphan": "{found}",
    "xact": "{wanted} cannot be read: {found}",
    "catalog": "the files of database {relation} cannot be compared with its catalog: {found}",
}


def problems(paths: list[Path]) -> Iterator[Problem]:
    """In the shape of what is found in pages. Files are compared with catalogs of whole data directories, in which both are."""
    seen = set()
    for path in paths:
        found = condition.of(str(path))
        if found is None or found["root"] in seen:
            continue
        seen.add(found["root"])
        errors = [remark for remark in found["remarks"] if remark["is_error"]]
        yield from (condition.as_problem(found["root"], remark) for remark in errors)
        if path.samefile(found["root"]):
            yield from _faults(found["root"], is_certain=not errors)


def has_catalogs(root: str) -> bool:
    """Whether there is anything of its catalogs: relation files alone may be kept in the directories of a data directory."""
    place = Path(root)
    return any(place.glob("base/*/pg_filenode.map")) or (place / "global" / "pg_filenode.map").exists()


def _faults(root: str, *, is_certain: bool) -> Iterator[Problem]:
    if not has_catalogs(root):
        return
    try:
        faults = file_faults(root)
    except LeadlineError as e:
        if is_certain and e.kind != "unsupported":
            message = WORDS["catalog"].format(relation="all", found=": ".join(filter(None, [e.message, e.detail])))
            yield {"path": root, "block": 0, "kind": "file", "class": "catalog", "what": "file", "item": None, "message": message}
        return
    for fault in faults:
        message = WORDS[fault["class"]].format_map(fault)
        problem: FileProblem = {**fault, "block": 0, "kind": "file", "what": "file", "item": None, "message": message}
        yield problem
