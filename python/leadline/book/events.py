"""What the events of a spool mean: one function per kind of event, which puts it into the store.

A part of leadline that has events of its own names them PART.KIND, adds its module to MODULES, and marks there a function
with @taken("PART.KIND"). A spool is input: such a function reads values with text(), whole() and number() alone, and what
they refuse is passed over.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leadline.book.db import Db
from leadline.book.place import Place

LONGEST_TEXT = 4096
MODULES = {  # by the word before the dot
    "": "leadline.book.runs",
    "ansible": "leadline.book.ansible.ingest",
    "experiment": "leadline.book.experiments.ingest",
    "study": "leadline.book.experiments.studies",
}


@dataclass(frozen=True)
class Event:
    """One event of a run. ts: microseconds since 1970. body: as it was written, with kind, n and ts."""

    uid: str
    n: int
    ts: int
    kind: str
    body: dict[str, Any]
    place: Place


Taker = Callable[[Db, Event], None]
_takers: dict[str, Taker] = {}


def taken(kind: str) -> Callable[[Taker], Taker]:
    """Marks the function that takes events of a kind into the store. It may raise KeyError, TypeError or ValueError for a bad one."""

    def mark(function: Taker) -> Taker:
        _takers[kind] = function
        return function

    return mark


def taker_of(kind: str) -> Taker | None:
    if kind not in _takers:
        part, dot, _ = kind.rpartition(".")
        if (module := MODULES.get(part if dot else "")) is None:
            return None
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            return None
    return _takers.get(kind)


def run_id(db: Db, uid: str) -> int:
    """Raises KeyError: its beginning was not taken in."""
    row = db.execute("select id from run where uid = ?", (uid,)).fetchone()
    if row is None:
        raise KeyError(uid)
    return int(row["id"])


def text(value: Any, longest: int = LONGEST_TEXT) -> str:
    """A text that every store takes: no surrogates, no NUL, not endless."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value[:longest].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def whole(value: Any) -> int:
    """A whole number that every store takes."""
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("too large")
    return number


def number(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)
