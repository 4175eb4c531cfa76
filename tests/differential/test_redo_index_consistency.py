"""Redo of indexes against the images of a server, as test_redo_consistency.py does it of heaps.

Every kind of record must be there and have been compared with the server's page, on every page it can name.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from leadline._core import redo
from redo_index_load import index_load
from redone import redone
from servers import MAJORS

# By kind of record the blocks it names, as far as a load can be small: a bitmap page of a hash index (block 3 of ADD_OVFL_PAGE) is
# followed by another one only behind 32,768 overflow pages, and the page behind a freed overflow page (block 4 of SQUEEZE_PAGE) is
# never there, as VACUUM frees the last one.
BLOCKS: dict[tuple[str, str], set[int]] = {
    ("Btree", "INSERT_LEAF"): {0},
    ("Btree", "INSERT_UPPER"): {0, 1},
    ("Btree", "INSERT_META"): {0, 1, 2},
    ("Btree", "SPLIT_L"): {0, 1, 2, 3},
    ("Btree", "SPLIT_R"): {0, 1, 2, 3},
    ("Btree", "INSERT_POST"): {0},
    ("Btree", "DEDUP"): {0},
    ("Btree", "DELETE"): {0},
    ("Btree", "UNLINK_PAGE"): {0, 1, 2, 3},
    ("Btree", "UNLINK_PAGE_META"): {0, 2, 3, 4},
    ("Btree", "NEWROOT"): {0, 1, 2},
    ("Btree", "MARK_PAGE_HALFDEAD"): {0, 1},
    ("Btree", "VACUUM"): {0},
    ("Btree", "META_CLEANUP"): {0},
    ("Hash", "INIT_META_PAGE"): {0},
    ("Hash", "INIT_BITMAP_PAGE"): {0, 1},
    ("Hash", "INSERT"): {0, 1},
    ("Hash", "ADD_OVFL_PAGE"): {0, 1, 2, 4},
    ("Hash", "SPLIT_ALLOCATE_PAGE"): {0, 1, 2},
    ("Hash", "SPLIT_PAGE"): {0},
    ("Hash", "SPLIT_COMPLETE"): {0, 1},
    ("Hash", "MOVE_PAGE_CONTENTS"): {0, 1, 2},
    ("Hash", "SQUEEZE_PAGE"): {0, 1, 2, 3, 5, 6},
    ("Hash", "DELETE"): {0, 1},
    ("Hash", "SPLIT_CLEANUP"): {0},
    ("Hash", "UPDATE_META_PAGE"): {0},
    ("Hash", "VACUUM_ONE_PAGE"): {0, 1},
    ("Gin", "CREATE_PTREE"): {0},
    ("Gin", "INSERT"): {0, 1},
    ("Gin", "SPLIT"): {0, 1, 2, 3},
    ("Gin", "VACUUM_PAGE"): {0},
    ("Gin", "DELETE_PAGE"): {0, 1, 2},
    ("Gin", "UPDATE_META_PAGE"): {0, 1},
    ("Gin", "INSERT_LISTPAGE"): {0},
    ("Gin", "DELETE_LISTPAGE"): {0, 1, 2},
    ("Gin", "VACUUM_DATA_LEAF_PAGE"): {0},
    ("Gist", "PAGE_UPDATE"): {0, 1},
    ("Gist", "DELETE"): {0},
    ("Gist", "PAGE_SPLIT"): {0, 1, 2, 3},
    ("Gist", "PAGE_DELETE"): {0, 1},
    ("SPGist", "ADD_LEAF"): {0, 1},
    ("SPGist", "MOVE_LEAFS"): {0, 1, 2},
    ("SPGist", "ADD_NODE"): {0, 1, 2},
    ("SPGist", "SPLIT_TUPLE"): {0, 1},
    ("SPGist", "PICKSPLIT"): {0, 1, 2, 3},
    ("SPGist", "VACUUM_LEAF"): {0},
    ("SPGist", "VACUUM_ROOT"): {0},
    ("SPGist", "VACUUM_REDIRECT"): {0},
}

# Each log is made once, by the first test that wants it, on two processors that may be busy.
pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

# Records that are nothing but images of their pages, which redo takes as they are.
IMAGES = {("Hash", "SPLIT_PAGE"), ("Gin", "VACUUM_PAGE")}

INDEXES = ("Btree", "Hash", "Gin", "Gist", "SPGist")
"""Pages of tables in the same log are the matter of test_redo_consistency.py, and their images would be most of it."""

NO_PAGE = 0xFFFFFFFF


def _variants(major: int) -> dict[str, Callable[[str, dict[str, Any]], bool]]:
    """Records of B-trees that take another way in redo: a name, and whether a record is of it."""
    variants: dict[str, Callable[[str, dict[str, Any]], bool]] = {
        "split of an inner page, new item left": lambda kind, said: kind == "SPLIT_L" and said["level"] > 0,
        "split of an inner page, new item right": lambda kind, said: kind == "SPLIT_R" and said["level"] > 0,
        "split of a page and of a list of rows": lambda kind, said: kind == "SPLIT_L" and said["postingoff"] > 0,
        "vacuum takes rows from lists": lambda kind, said: kind == "VACUUM" and said["nupdated"] > 0,
        "vacuum takes items": lambda kind, said: kind == "VACUUM" and said["ndeleted"] > 0,
        "killed items": lambda kind, said: kind == "DELETE" and said["ndeleted"] > 0,
        "parents of an empty page go too": lambda kind, said: kind == "MARK_PAGE_HALFDEAD" and said["topparent"] != NO_PAGE,
        "a root without items": lambda kind, said: kind == "NEWROOT" and said["level"] == 0,
    }
    if major >= 14:
        variants["killed rows of lists"] = lambda kind, said: kind == "DELETE" and said["nupdated"] > 0
    return variants


@dataclass
class Checked:
    """What became of a load's log. blocks: the block ids that records of each kind had."""

    redo: redo.Checked = field(init=False)
    blocks: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    variants: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def checked() -> Callable[[int], Checked]:
    """checked(major): the log of the load, redone; made once."""
    return functools.cache(_check)


def _check(major: int) -> Checked:
    found = Checked()
    variants = _variants(major)

    def note(record: Mapping[str, Any]) -> None:
        kind = record["record_type"]
        found.blocks[record["rmgr"], kind].update(block["block_id"] for block in record["blocks"])
        if record["rmgr"] == "Btree":
            found.variants |= {name for name, fits in variants.items() if fits(kind, record["description"])}

    found.redo = redone(major, index_load, INDEXES, note, wal_consistency_checking=",".join(INDEXES))
    return found


@pytest.mark.parametrize("major", MAJORS)
def test_pages_are_those_of_the_server(major: int, checked: Callable[[int], Checked]) -> None:
    found = checked(major).redo
    assert found["differences"] == []
    assert sum(tally["differences"] for tally in found["kinds"].values()) == 0
    assert found["major"] == major


@pytest.mark.parametrize("major", MAJORS)
def test_every_kind_of_record_was_redone_and_compared(major: int, checked: Callable[[int], Checked]) -> None:
    found = checked(major).redo["kinds"]
    compared = {kind for kind, tally in found.items() if tally["compared"] > 0}
    assert BLOCKS.keys() - IMAGES - compared == set()
    assert {kind for kind in IMAGES if found[kind]["begun"] > 0} == IMAGES


@pytest.mark.parametrize("major", MAJORS)
def test_every_page_a_record_can_name_was_there(major: int, checked: Callable[[int], Checked]) -> None:
    seen = checked(major).blocks
    missing = {kind: ids - seen[kind] for kind, ids in BLOCKS.items() if ids - seen[kind]}
    assert missing == {}


@pytest.mark.parametrize("major", MAJORS)
def test_every_variant_of_a_btree_record_was_there(major: int, checked: Callable[[int], Checked]) -> None:
    assert _variants(major).keys() - checked(major).variants == set()
