"""Redo against the images of a server: a log of each major, written with wal_consistency_checking, redone record by record without it.

Every kind of record that changes pages must be there, with every flag that changes what redo does.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from leadline._core import redo
from redo_load import heap_load
from redone import redone
from servers import MAJORS

HEAP = {"INSERT", "INSERT+INIT", "DELETE", "UPDATE", "UPDATE+INIT", "HOT_UPDATE", "HEAP_CONFIRM", "LOCK", "INPLACE"}
HEAP2 = {"VISIBLE", "MULTI_INSERT", "MULTI_INSERT+INIT", "LOCK_UPDATED"}
PRUNE = {
    13: {"CLEAN", "FREEZE_PAGE"},
    14: {"PRUNE", "VACUUM", "FREEZE_PAGE"},
    15: {"PRUNE", "VACUUM", "FREEZE_PAGE"},
    16: {"PRUNE", "VACUUM", "FREEZE_PAGE"},
    17: {"PRUNE_ON_ACCESS", "PRUNE_VACUUM_SCAN", "PRUNE_VACUUM_CLEANUP"},
    18: {"PRUNE_ON_ACCESS", "PRUNE_VACUUM_SCAN", "PRUNE_VACUUM_CLEANUP"},
}
BRIN = {"CREATE_INDEX", "INSERT", "INSERT+INIT", "UPDATE", "UPDATE+INIT", "SAMEPAGE_UPDATE", "REVMAP_EXTEND", "DESUMMARIZE"}

# Bits of the byte called `flags`, by the kinds of records that may have them; only those that redo looks at.
FLAGS = {
    ("Heap", "INSERT"): 0x01,  # the page was all-visible
    ("Heap", "DELETE"): 0x01 | 0x08 | 0x10,  # likewise; a speculative row is taken back; a row is moved to another partition
    ("Heap", "UPDATE"): 0x01 | 0x02 | 0x20 | 0x40,  # the old page, the new page was all-visible; common prefix, common suffix
    ("Heap", "HOT_UPDATE"): 0x01 | 0x20 | 0x40,
    ("Heap", "LOCK"): 0x01,  # the page was all-frozen
    ("Heap2", "MULTI_INSERT"): 0x01,
}
FROZEN_COPY = {("Heap2", "MULTI_INSERT+INIT"): 0x20}  # since 14
# The parts that a record which prunes or freezes may have, and what `infobits` says of rows that are locked, deleted and updated.
PARTS = {
    13: {"CLEAN": {"redirected", "dead", "unused"}, "FREEZE_PAGE": {"tuples"}},
    14: {"PRUNE": {"redirected", "dead", "unused"}, "VACUUM": {"unused"}, "FREEZE_PAGE": {"tuples"}},
    16: {"PRUNE": {"redirected", "dead", "unused"}, "VACUUM": {"unused"}, "FREEZE_PAGE": {"plans", "frozen"}},
    17: {
        "PRUNE_ON_ACCESS": {"redirected", "dead", "unused"},
        "PRUNE_VACUUM_SCAN": {"redirected", "dead", "unused", "plans", "frozen"},
        "PRUNE_VACUUM_CLEANUP": {"unused"},
    },
}
PARTS |= {15: PARTS[14], 18: PARTS[17]}
INFOBITS = {
    "LOCK": {"IS_MULTI", "LOCK_ONLY", "EXCL_LOCK", "KEYSHR_LOCK", "KEYS_UPDATED"},
    "DELETE": {"KEYS_UPDATED"},
    "UPDATE": {"KEYS_UPDATED"},
    "HOT_UPDATE": {"IS_MULTI", "EXCL_LOCK"},
}


def kinds(major: int) -> set[tuple[str, str]]:
    """Every kind of record that names a page of a heap, a BRIN index, a sequence, or of an extension's index."""
    return (
        {("Heap", kind) for kind in HEAP}
        | {("Heap2", kind) for kind in HEAP2 | PRUNE[major]}
        | {("BRIN", kind) for kind in BRIN}
        | {("Sequence", "LOG"), ("Generic", "Generic")}
    )


def flags(major: int) -> dict[tuple[str, str], int]:
    return {**FLAGS, **(FROZEN_COPY if major >= 14 else {})}


@dataclass
class Checked:
    """What became of a load's log. flags, parts, infobits: by kind of record, what any of them has."""

    redo: redo.Checked = field(init=False)
    flags: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    parts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    infobits: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def note(self, record: Mapping[str, Any]) -> None:
        rmgr, kind, says = record["rmgr"], record["record_type"], record["description"]
        if rmgr in ("Heap", "Heap2") and kind != "TRUNCATE":
            self.flags[rmgr, kind] |= says.get("flags", 0)
        if rmgr == "Heap2":
            self.parts[kind] |= {part for part in ("redirected", "dead", "unused", "tuples", "plans", "frozen") if says.get(part)}
        if rmgr == "Heap":
            self.infobits[kind] |= {*says.get("infobits", []), *says.get("old_infobits", [])}


@pytest.fixture(scope="module")
def checked() -> Callable[[int], Checked]:
    """checked(major): the log of the load, redone; made once."""
    return functools.cache(_check)


def _check(major: int) -> Checked:
    found = Checked()
    found.redo = redone(major, heap_load, ("Heap", "Heap2"), found.note)
    return found


@pytest.mark.live
@pytest.mark.parametrize("major", MAJORS)
def test_pages_are_those_of_the_server(major: int, checked: Callable[[int], Checked]) -> None:
    found = checked(major).redo
    assert found["differences"] == []
    assert sum(tally["differences"] for tally in found["kinds"].values()) == 0
    assert found["major"] == major
    assert sum(tally["compared"] for tally in found["kinds"].values()) > 50_000


@pytest.mark.live
@pytest.mark.parametrize("major", MAJORS)
def test_every_kind_of_record_was_redone_and_compared(major: int, checked: Callable[[int], Checked]) -> None:
    found = checked(major).redo["kinds"]
    compared = {kind for kind, tally in found.items() if tally["compared"] > 0}
    assert kinds(major) - compared == set()
    # The server names the visibility map's page only in newer minors; a truncation never names the maps it cuts.
    assert found["Storage", "TRUNCATE"]["unnamed"] > 0
    restored = {kind for kind, tally in found.items() if tally["begun"] > 0}
    assert {("XLOG", "FPI"), ("Heap", "INSERT"), ("Heap2", "VISIBLE")} <= restored


@pytest.mark.live
@pytest.mark.parametrize("major", MAJORS)
def test_every_flag_and_every_part_was_there(major: int, checked: Callable[[int], Checked]) -> None:
    found = checked(major)
    assert {kind: hex(bits & ~found.flags[kind]) for kind, bits in flags(major).items() if bits & ~found.flags[kind]} == {}
    assert {kind: parts - found.parts[kind] for kind, parts in PARTS[major].items() if parts - found.parts[kind]} == {}
    assert {kind: bits - found.infobits[kind] for kind, bits in INFOBITS.items() if bits - found.infobits[kind]} == {}
