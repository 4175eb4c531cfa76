"""Damages of indexes, by their access methods."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from damages.heap import copied, zeroed
from damages.pages import BLOCK, Damage, Item, Made, Page

NONE = 0xFFFFFFFF  # no block
Wanted = Callable[[Page], bool]
Change = Callable[[Page, Made, Random], str]


def on_page(of: str, wanted: Wanted, do: Change) -> Callable[[Made, Random], None]:
    """Changes a page that is wanted."""

    def made_so(made: Made, rng: Random) -> None:
        found = [page for page in made.pages(of) if not page.is_new and wanted(page)]
        page = rng.choice(found)
        before = bytes(page.bytes)
        said = do(page, made, rng)
        assert bytes(page.bytes) != before, said
        made.seen = f"block {page.block}: {said}"
        made.write(page)

    return made_so


def special(at: int, value: Callable[[int, Made, Random], int], what: str, size: int = 4) -> Change:
    """A field of the special area."""

    def do(page: Page, made: Made, rng: Random) -> str:
        place, form = page.special + at, "<I" if size == 4 else "<H"
        (old,) = struct.unpack_from(form, page.bytes, place)
        new = value(old, made, rng)
        struct.pack_into(form, page.bytes, place, new)
        return f"{what} {old:#x} -> {new:#x}"

    return do


def another(of: str) -> Callable[[int, Made, Random], int]:
    """The number of another block of the index."""

    def value(old: int, made: Made, rng: Random) -> int:
        return rng.choice([block for block in range(1, made.count(of)) if block != old])

    return value


def flip(bits: int) -> Callable[[int, Made, Random], int]:
    return lambda old, made, rng: old ^ bits


def tid_of(item: Item) -> tuple[int, int]:
    high, low, number = struct.unpack_from("<HHH", item.bytes)
    return high << 16 | low, number


def lead(item: Item, block: int, number: int | None = None) -> None:
    """Changes block and line pointer that an item leads to."""
    at = item.at
    item.page.set16(at, block >> 16)
    item.page.set16(at + 2, block)
    if number is not None:
        item.page.set16(at + 4, number)


# -- B-tree ------------------------------------------------------------------------------------------------------------------

LEAF, ROOT, DELETED, META, HALF_DEAD, INCOMPLETE = 1, 2, 4, 8, 16, 128


def flags(page: Page) -> int:
    return page.u16(page.special + 12)


def is_leaf(page: Page) -> bool:
    return page.block > 0 and bool(flags(page) & LEAF) and page.u32(page.special + 4) != 0 and page.u32(page.special) != 0


def is_inner(page: Page) -> bool:
    return page.block > 0 and not flags(page) & (LEAF | META | DELETED) and len(page.items()) > 4


def is_root(page: Page) -> bool:
    return page.block > 0 and bool(flags(page) & ROOT)


def keys(page: Page) -> list[Item]:
    """Its items without the high key."""
    return page.items()[1 if page.u32(page.special + 4) else 0 :]


def swap_items(page: Page, made: Made, rng: Random) -> str:
    one = rng.choice(keys(page)[:-1])
    other = page.items()[one.number]
    one.point(at=other.at, length=other.length)
    other.point(at=one.at, length=one.length)
    return f"items {one.number} and {other.number} swapped"


def key_byte(page: Page, made: Made, rng: Random) -> str:
    """The last byte of a key: of the digits that tell keys apart."""
    item = rng.choice([item for item in keys(page) if item.length > 160])
    at = item.at + 8 + 4 + 150 + rng.randrange(3)
    old = page.bytes[at]
    page.bytes[at] = ord("f") - (old - ord("0")) % 16 if old != ord("8") else ord("0")
    return f"item {item.number}: key byte {old:#x} -> {page.bytes[at]:#x}"


def high_key(page: Page, made: Made, rng: Random) -> str:
    item = page.items()[0]
    at = item.at + 8 + 4 + 150
    page.bytes[at : at + 1] = b"0" if page.bytes[at] > ord("0") else b"f"
    return "high key"


def missing(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice(keys(page)[1:])
    page.remove(item)
    return f"item {item.number} removed"


def beyond(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice(keys(page))
    lead(item, 70_000)
    return f"item {item.number} leads to block 70000 of the table"


def another_row(page: Page, made: Made, rng: Random) -> str:
    one, other = rng.sample(keys(page), 2)
    block, number = tid_of(other)
    lead(one, block, number)
    return f"item {one.number} leads to the row of item {other.number}"


def no_row(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice(keys(page))
    lead(item, tid_of(item)[0], 280)
    return f"item {item.number} leads to line pointer 280"


def again(page: Page, made: Made, rng: Random) -> str:
    one = rng.choice(keys(page)[:-1])
    other = page.items()[one.number]
    assert one.length == other.length
    page.bytes[other.at : other.at + other.length] = one.bytes
    return f"item {other.number} is item {one.number} again"


def downlink(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice(keys(page)[1:])
    old = tid_of(item)[0]
    lead(item, another("btree")(old, made, rng))
    return f"downlink {item.number}: {old} -> {tid_of(page.items()[item.number - 1])[0]}"


def swap_downlinks(page: Page, made: Made, rng: Random) -> str:
    one = rng.choice(keys(page)[1:-1])
    other = page.items()[one.number]
    a, b = tid_of(one)[0], tid_of(other)[0]
    lead(one, b)
    lead(other, a)
    return f"downlinks {one.number} and {other.number} swapped"


def pivot_attributes(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice(keys(page)[1:])
    page.set16(item.at + 4, page.u16(item.at + 4) & 0xF000 | 3)
    return f"item {item.number} says 3 attributes"


def meta(at: int, value: Callable[[int, Made, Random], int], what: str, of: str = "btree") -> Callable[[Made, Random], None]:
    def do(page: Page, made: Made, rng: Random) -> str:
        old = page.u32(24 + at)
        page.set32(24 + at, value(old, made, rng))
        return f"{what} {old} -> {page.u32(24 + at)}"

    return on_page(of, lambda page: page.block == 0, do)


def posting(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice([item for item in keys(page) if is_posting(item)])
    (begin,) = struct.unpack("<I", struct.pack("<HH", *reversed(struct.unpack_from("<HH", item.bytes))))
    at = item.at + begin
    page.bytes[at : at + 12] = page.bytes[at + 6 : at + 12] + page.bytes[at : at + 6]
    return f"item {item.number}: the first two rows of its posting list swapped"


def is_posting(item: Item) -> bool:
    return bool(item.page.u16(item.at + 6) & 0x2000 and item.page.u16(item.at + 4) & 0x2000)


def has_posting(page: Page) -> bool:
    return page.block > 0 and bool(flags(page) & LEAF) and any(is_posting(item) for item in keys(page))


BTREE = [
    ("left link", on_page("btree", is_leaf, special(0, another("btree"), "btpo_prev"))),
    ("right link", on_page("btree", is_leaf, special(4, another("btree"), "btpo_next"))),
    ("right link of an inner page", on_page("btree", lambda p: is_inner(p) and not is_root(p), special(4, another("btree"), "btpo_next"))),
    ("right link to itself", on_page("btree", is_leaf, lambda p, m, r: (p.set32(p.special + 4, p.block), "btpo_next to itself")[1])),
    ("level", on_page("btree", is_inner, special(8, lambda old, m, r: old + 1, "btpo_level"))),
    ("root flag", on_page("btree", is_leaf, special(12, flip(ROOT), "btpo_flags", 2))),
    ("half dead", on_page("btree", is_leaf, special(12, flip(HALF_DEAD), "btpo_flags", 2))),
    ("deleted", on_page("btree", is_leaf, special(12, flip(DELETED), "btpo_flags", 2))),
    ("split not finished", on_page("btree", is_leaf, special(12, flip(INCOMPLETE), "btpo_flags", 2))),
    ("items swapped", on_page("btree", is_leaf, swap_items)),
    ("key changed", on_page("btree", is_leaf, key_byte)),
    ("high key changed", on_page("btree", is_leaf, high_key)),
    ("item missing", on_page("btree", is_leaf, missing)),
    ("row beyond the table", on_page("btree", is_leaf, beyond)),
    ("another row", on_page("btree", is_leaf, another_row)),
    ("line pointer that is not there", on_page("btree", is_leaf, no_row)),
    ("item twice", on_page("btree", is_leaf, again)),
    ("downlink", on_page("btree", is_inner, downlink)),
    ("downlinks swapped", on_page("btree", is_inner, swap_downlinks)),
    ("separator changed", on_page("btree", is_inner, key_byte)),
    ("downlink missing", on_page("btree", is_inner, missing)),
    ("attributes of a pivot", on_page("btree", is_inner, pivot_attributes)),
    ("btm_root", meta(8, another("btree"), "btm_root")),
    ("btm_fastroot", meta(16, another("btree"), "btm_fastroot")),
    ("btm_level", meta(12, lambda old, m, r: old + 1, "btm_level")),
    ("posting list", on_page("btree dup", has_posting, posting)),
    ("block of zeros", zeroed("btree")),
    ("block copied over another", copied("btree")),
]

# -- hash --------------------------------------------------------------------------------------------------------------------


def is_bucket(page: Page) -> bool:
    return page.u16(page.special + 12) & 0xF == 2 and len(page.items()) > 3


def is_overflow(page: Page) -> bool:
    return page.u16(page.special + 12) & 0xF == 1 and len(page.items()) > 3


def has_overflow(page: Page) -> bool:
    return is_bucket(page) and page.u32(page.special + 4) != NONE


def other_hash(page: Page, made: Made, rng: Random) -> str:
    item = page.items()[-1]
    page.set32(item.at + 8, page.u32(item.at + 8) ^ 1)
    return f"item {item.number}: lowest bit of the hash"


HASH = [
    ("next block of a chain", on_page("hash", is_overflow, special(0, another("hash"), "hasho_prevblkno"))),
    (
        "next overflow block",
        on_page("hash", has_overflow, special(4, another("hash"), "hasho_nextblkno")),
    ),
    ("bucket of a block", on_page("hash", lambda p: is_bucket(p) or is_overflow(p), special(8, lambda old, m, r: old + 1, "hasho_bucket"))),
    ("items swapped", on_page("hash", is_bucket, swap_items)),
    ("hash of another bucket", on_page("hash", is_bucket, other_hash)),
    ("row beyond the table", on_page("hash", is_bucket, beyond)),
    ("item missing", on_page("hash", is_bucket, missing)),
    ("hashm_maxbucket", meta(24, lambda old, m, r: old + 1, "hashm_maxbucket", "hash")),
    ("block of zeros", on_page("hash", is_bucket, lambda p, m, r: (p.bytes.__setitem__(slice(None), bytes(BLOCK)), "zeros")[1])),
]

# -- GIN ---------------------------------------------------------------------------------------------------------------------


def gin_flags(page: Page) -> int:
    return page.u16(page.special + 6)


def entry_leaf(page: Page) -> bool:
    return page.block > 0 and gin_flags(page) & 0x7F == 2 and len(page.items()) > 4


def entry_inner(page: Page) -> bool:
    return page.block > 0 and gin_flags(page) & 0x7F == 0 and len(page.items()) > 1


def data_leaf(page: Page) -> bool:
    return gin_flags(page) & 0x7F == 3


def data_inner(page: Page) -> bool:
    return gin_flags(page) & 0x7F == 1


def inside(wanted: Wanted) -> Wanted:
    """Of these pages, those that are not the last of their level."""
    return lambda page: wanted(page) and page.u32(page.special) != NONE


def gin_downlink(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice(page.items())
    old = tid_of(item)[0]
    lead(item, another("gin")(old, made, rng))
    return f"downlink {item.number} of {old}"


def segment_byte(page: Page, made: Made, rng: Random) -> str:
    """The first row of a compressed part of a posting tree's leaf."""
    page.set16(24 + 8 + 2, page.u16(24 + 8 + 2) ^ 0x40)
    return "first row of the leaf"


def posting_item(page: Page, made: Made, rng: Random) -> str:
    """The block that an inner page of a posting tree leads to; its items begin behind the right bound."""
    at = 24 + 8 + 10 * rng.randrange(page.u16(page.special + 4))
    page.set16(at + 2, another("gin")(page.u16(at + 2), made, rng))
    return "downlink of a posting tree"


GIN = [
    ("items swapped", on_page("gin", entry_leaf, lambda p, m, r: swap_any(p, r))),
    (
        "right link of the entry tree",
        on_page("gin", inside(entry_leaf), special(0, another("gin"), "rightlink")),
    ),
    ("downlink of the entry tree", on_page("gin", entry_inner, gin_downlink)),
    (
        "right link of a posting tree",
        on_page("gin", inside(data_leaf), special(0, another("gin"), "rightlink")),
    ),
    ("first row of a posting tree's leaf", on_page("gin", data_leaf, segment_byte)),
    ("downlink of a posting tree", on_page("gin", data_inner, posting_item)),
    ("block of zeros", on_page("gin", entry_leaf, lambda p, m, r: (p.bytes.__setitem__(slice(None), bytes(BLOCK)), "zeros")[1])),
]


def swap_any(page: Page, rng: Random) -> str:
    one, other = rng.sample(page.items(), 2)
    one.point(at=other.at, length=other.length)
    other.point(at=one.at, length=one.length)
    return f"items {one.number} and {other.number} swapped"


# -- GiST and SP-GiST --------------------------------------------------------------------------------------------------------


def gist_leaf(page: Page) -> bool:
    return page.u16(page.special + 12) & 3 == 1 and page.block > 0 and len(page.items()) > 3


def gist_inner(page: Page) -> bool:
    return page.u16(page.special + 12) & 3 == 0 and len(page.items()) > 1


def gist_downlink(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice(page.items())
    old = tid_of(item)[0]
    lead(item, another("gist")(old, made, rng))
    return f"downlink {item.number} of {old}"


def gist_key(page: Page, made: Made, rng: Random) -> str:
    """A point or box that its parent does not contain."""
    item = rng.choice(page.items())
    struct.pack_into("<d", page.bytes, item.at + 8, 1e9)
    return f"key of item {item.number}"


GIST = [
    ("downlink", on_page("gist", gist_inner, gist_downlink)),
    ("leaf flag", on_page("gist", gist_leaf, special(12, flip(1), "flags", 2))),
    ("deleted", on_page("gist", gist_leaf, special(12, flip(2), "flags", 2))),
    ("key outside of its parent's", on_page("gist", gist_leaf, gist_key)),
    ("downlink missing", on_page("gist", gist_inner, lambda p, m, r: (p.remove(r.choice(p.items())), "a downlink removed")[1])),
    ("row beyond the table", on_page("gist", gist_leaf, lambda p, m, r: (lead(r.choice(p.items()), 70_000), "to block 70000")[1])),
    ("block copied over another", copied("gist")),
]


def spgist_leaf(page: Page) -> bool:
    return page.block > 2 and bool(page.u16(page.special) & 4) and len(page.items()) > 3


def spgist_inner(page: Page) -> bool:
    return page.block > 0 and not page.u16(page.special) & 5 and len(page.items()) > 0


def spgist_next(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice([item for item in page.normal() if not page.bytes[item.at] & 3])
    page.set16(item.at + 4, page.u16(item.at + 4) & 0xC000 | 2000)
    return f"item {item.number}: nextOffset 2000"


def spgist_node(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice([item for item in page.normal() if not page.bytes[item.at] & 3])
    (prefix,) = struct.unpack_from("<H", page.bytes, item.at + 2)
    at = item.at + 8 + prefix
    page.set16(at + 2, another("spgist")(page.u16(at + 2), made, rng))
    page.set16(at + 4, 1)
    return f"item {item.number}: its first node"


SPGIST = [
    ("chain of leaves", on_page("spgist", spgist_leaf, spgist_next)),
    ("node of an inner tuple", on_page("spgist", spgist_inner, spgist_node)),
    ("leaf flag", on_page("spgist", spgist_leaf, special(0, flip(4), "flags", 2))),
    ("nPlaceholder", on_page("spgist", spgist_leaf, special(4, lambda old, m, r: old + 3, "nPlaceholder", 2))),
    ("row beyond the table", on_page("spgist", spgist_leaf, lambda p, m, r: spgist_beyond(p, r))),
    ("block copied over another", on_page("spgist", spgist_leaf, lambda p, m, r: copy_leaf(p, m, r))),
]


def spgist_beyond(page: Page, rng: Random) -> str:
    item = rng.choice([item for item in page.normal() if not page.bytes[item.at] & 3])
    page.set16(item.at + 6, 1)
    return f"item {item.number} leads to block 65536 and more"


def copy_leaf(page: Page, made: Made, rng: Random) -> str:
    other = rng.choice([other for other in made.pages("spgist") if not other.is_new and spgist_leaf(other) and other.block != page.block])
    page.bytes[:] = other.bytes
    return f"the bytes of block {other.block}"


# -- BRIN --------------------------------------------------------------------------------------------------------------------


def brin_regular(page: Page) -> bool:
    return page.u16(BLOCK - 2) == 0xF093


def brin_revmap(page: Page) -> bool:
    return page.u16(BLOCK - 2) == 0xF092


def summary(page: Page, made: Made, rng: Random) -> str:
    """The largest value of a range is smaller than all."""
    item = rng.choice(page.normal())
    page.bytes[item.at + item.length - 8 : item.at + item.length - 4] = struct.pack("<i", -5)
    page.bytes[item.at + item.length - 4 : item.at + item.length] = struct.pack("<i", -5)
    return f"item {item.number}: from -5 to -5"


def brin_block(page: Page, made: Made, rng: Random) -> str:
    item = rng.choice(page.normal())
    page.set32(item.at, page.u32(item.at) + 1)
    return f"item {item.number}: bt_blkno + 1"


def revmap_entry(page: Page, made: Made, rng: Random) -> str:
    page.set16(24 + 4, page.u16(24 + 4) + 1)
    return "entry 0 leads to the next item"


BRIN = [
    ("summary too narrow", on_page("brin", brin_regular, summary)),
    ("range of a summary", on_page("brin", brin_regular, brin_block)),
    ("entry of the map", on_page("brin", brin_revmap, revmap_entry)),
    ("pagesPerRange", meta(8, lambda old, m, r: old * 2, "pagesPerRange", "brin")),
    ("lastRevmapPage", meta(12, lambda old, m, r: old + 1, "lastRevmapPage", "brin")),
]

BY_TEMPLATE = {"btree": BTREE, "hash": HASH, "gin": GIN, "gist": GIST, "spgist": SPGIST, "brin": BRIN}
NAMES = {"btree": "B-tree", "hash": "hash", "gin": "GIN", "gist": "GiST", "spgist": "SP-GiST", "brin": "BRIN"}
# A bit by itself is a state that a crash leaves behind; what contradicts it is only its neighbour's state.
DAMAGES = [Damage(NAMES[template], name, template, do) for template, all_of in BY_TEMPLATE.items() for name, do in all_of]
