"""How well the data directory is that files are read from: the one place that says it, for every command that reads them.

A damaged control file and mixed versions are errors; a server that runs, crashed or was not restored leaves files that are behind,
which is a note. Of files in no data directory nothing is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from leadline._core.datadir import condition

if TYPE_CHECKING:
    from leadline._core.datadir import Condition, Remark
    from leadline._core.pages import Problem

FIRST_MAJOR = 13


def of(path: str) -> Condition | None:
    """The condition of the data directory that a file or directory is, or is in."""
    if os.path.isdir(path) and not (os.path.exists(f"{path}/PG_VERSION") and os.path.isdir(f"{path}/global")):
        path += "/any"  # of a directory in one, or in none
    found = condition(path)
    return found if found is None or _is_known(found["root"]) else None


def _is_known(root: str) -> bool:
    """Whether its control file is one whose fields are known; of a version that cannot be read that is to be said."""
    try:
        with open(f"{root}/PG_VERSION", encoding="ascii", errors="replace") as file:
            major = file.read(16).strip().split(".")[0]
    except OSError:
        return True
    return not major.isdigit() or int(major) >= FIRST_MAJOR


def remarks(paths: Iterable[str]) -> list[Remark]:
    """What is to be said of the data directories of some paths, of each once."""
    found = {each["root"]: each for path in paths if (each := of(path)) is not None}
    return [remark for each in found.values() for remark in each["remarks"]]


def text(remark: Remark) -> str:
    """For stderr."""
    hint = f"\n  hint: {remark['hint']}" if remark["hint"] else ""
    return f"{'error' if remark['is_error'] else 'note'}: {remark['message']}{hint}"


def as_problem(root: str, remark: Remark) -> Problem:
    """An error of a directory in the shape of what `page check` finds in pages."""
    name = "PG_VERSION" if remark["name"] == "version" else "global/pg_control"
    return {
        "class": remark["name"],
        "what": "file",
        "item": None,
        "message": remark["message"],
        "path": f"{root}/{name}",
        "block": 0,
        "kind": "control",
    }
