"""Damages of tables: line pointers, row headers, values, TOAST, maps, sequences.

The columns of the table are listed in cluster.py; those of fixed width come first, at known places of a row without nulls.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from damages.pages import BLOCK, DEAD, REDIRECT, Damage, Item, Made, Page

XMIN, XMAX, CTID, INFOMASK2, INFOMASK, HOFF = 0, 4, 12, 18, 20, 22
HASNULL, HASEXTERNAL, XMAX_INVALID, XMIN_COMMITTED, XMIN_INVALID = 0x0001, 0x0004, 0x0800, 0x0100, 0x0200
HOT_UPDATED, HEAP_ONLY = 0x4000, 0x8000
BOOL, DATE, TIME, MOOD, NUMERIC = 4, 8, 16, 24, 28  # offsets in the data of a row without nulls


def infomask(item: Item) -> int:
    return item.page.u16(item.at + INFOMASK)


def infomask2(item: Item) -> int:
    return item.page.u16(item.at + INFOMASK2)


def is_live(item: Item) -> bool:
    return bool(infomask(item) & XMAX_INVALID) or item.page.u32(item.at + XMAX) == 0


def data(item: Item) -> int:
    """Where its values begin in the page."""
    return item.at + item.page.bytes[item.at + HOFF]


def row(made: Made, rng: Random, wanted: Callable[[Item], bool] = is_live, of: str = "table") -> Item:
    """A random one."""
    found = [item for page in made.pages(of) if not page.is_new for item in page.normal() if wanted(item)]
    return rng.choice(found)


def plain(item: Item) -> bool:
    return is_live(item) and not infomask(item) & HASNULL


def root(item: Item) -> bool:
    return is_live(item) and not infomask2(item) & HEAP_ONLY


def heap_only(item: Item) -> bool:
    return is_live(item) and bool(infomask2(item) & HEAP_ONLY)


def with_nulls(item: Item) -> bool:
    return is_live(item) and bool(infomask(item) & HASNULL)


def aborted(item: Item) -> bool:
    return bool(infomask(item) & XMIN_INVALID)


def committed(item: Item) -> bool:
    return is_live(item) and infomask(item) & (XMIN_COMMITTED | XMIN_INVALID) == XMIN_COMMITTED


def change(wanted: Callable[[Item], bool], do: Callable[[Item, Random], str]) -> Callable[[Made, Random], None]:
    """Changes a row that is wanted."""

    def made_so(made: Made, rng: Random) -> None:
        item = row(made, rng, wanted)
        before = bytes(item.page.bytes)
        said = do(item, rng)
        assert bytes(item.page.bytes) != before, said
        made.seen = f"({item.page.block},{item.number}): {said}"
        made.write(item.page)

    return made_so


def set32(at: int, value: Callable[[int, Random], int], what: str) -> Callable[[Item, Random], str]:
    def do(item: Item, rng: Random) -> str:
        old = item.page.u32(item.at + at)
        new = value(old, rng)
        item.page.set32(item.at + at, new)
        return f"{what} {old} -> {new & 0xFFFFFFFF}"

    return do


def flip16(at: int, bits: int, what: str) -> Callable[[Item, Random], str]:
    def do(item: Item, rng: Random) -> str:
        item.page.set16(item.at + at, item.page.u16(item.at + at) ^ bits)
        return f"{what} ^ {bits:#06x}"

    return do


def value(at: int, new: bytes, what: str) -> Callable[[Item, Random], str]:
    def do(item: Item, rng: Random) -> str:
        item.page.bytes[data(item) + at : data(item) + at + len(new)] = new
        return f"{what} = {new.hex()}"

    return do


def varlena(item: Item, column: int) -> tuple[int, int]:
    """Where a value of variable width begins and how long it is with its header; column: 0 is the numeric."""
    at = data(item) + NUMERIC
    for number in range(column + 1):
        if item.page.bytes[at] == 0:
            at += -(at - data(item)) % 4
        first = item.page.bytes[at]
        length = 18 if first == 1 else first >> 1 if first & 1 else item.page.u32(at) >> 2
        if number == column:
            return at, length
        at += length
    raise AssertionError


def in_value(column: int, at: int, new: Callable[[int, Random], int], what: str) -> Callable[[Item, Random], str]:
    """Changes a byte of a value of variable width."""

    def do(item: Item, rng: Random) -> str:
        begin, length = varlena(item, column)
        place = begin + (at if at >= 0 else length + at)
        old = item.page.bytes[place]
        item.page.bytes[place] = new(old, rng) & 0xFF
        return f"{what}: {old:#x} -> {item.page.bytes[place]:#x}"

    return do


def longer(old: int, rng: Random) -> int:
    return old + 2 * rng.randint(20, 60)


def shorter(old: int, rng: Random) -> int:
    return max(old - 2 * rng.randint(1, 3), 3)


def move_ctid(item: Item, rng: Random) -> str:
    item.page.set16(item.at + CTID + 2, 60_000)
    return "t_ctid leads to block 60000"


def wrong_hoff(item: Item, rng: Random) -> str:
    item.page.bytes[item.at + HOFF] += 8
    return "t_hoff + 8"


def more_natts(item: Item, rng: Random) -> str:
    item.page.set16(item.at + INFOMASK2, infomask2(item) + 5)
    return "natts + 5"


def fewer_natts(item: Item, rng: Random) -> str:
    item.page.set16(item.at + INFOMASK2, infomask2(item) - 3)
    return "natts - 3"


def flip_null(item: Item, rng: Random) -> str:
    item.page.bytes[item.at + 23] ^= 0b0110
    return "null bits of b and d"


# -- line pointers -----------------------------------------------------------------------------------------------------------


def pointer(do: Callable[[Item, Random], str], wanted: Callable[[Item], bool] = is_live) -> Callable[[Made, Random], None]:
    return change(wanted, do)


def unused(item: Item, rng: Random) -> str:
    item.point(at=0, flags=0, length=0)
    return "lp unused"


def dead(item: Item, rng: Random) -> str:
    item.point(at=0, flags=DEAD, length=0)
    return "lp dead"


def redirected(item: Item, rng: Random) -> str:
    others = [other for other in item.page.normal() if other.number != item.number]
    other = rng.choice(others)
    item.point(at=other.number, flags=REDIRECT, length=0)
    return f"lp redirect to {other.number}"


def shifted(item: Item, rng: Random) -> str:
    item.point(at=item.at + 8, length=item.length - 8)
    return "lp_off + 8"


def cut(item: Item, rng: Random) -> str:
    item.point(length=item.length - 16)
    return "lp_len - 16"


def twice(item: Item, rng: Random) -> str:
    other = rng.choice([other for other in item.page.normal() if other.number != item.number and is_live(other)])
    item.point(at=other.at, length=other.length)
    return f"lp as that of {other.number}"


# -- whole blocks ------------------------------------------------------------------------------------------------------------


def block_of(of: str) -> Callable[[Made, Random], Page]:
    return lambda made, rng: made.page(of, rng.randrange(1, made.count(of) - 1))


def zeroed(of: str) -> Callable[[Made, Random], None]:
    def do(made: Made, rng: Random) -> None:
        page = block_of(of)(made, rng)
        page.bytes[:] = bytes(BLOCK)
        made.seen = f"block {page.block} of zeros"
        made.write(page)

    return do


def copied(of: str) -> Callable[[Made, Random], None]:
    def do(made: Made, rng: Random) -> None:
        one, other = rng.sample(range(1, made.count(of) - 1), 2)
        page = made.page(of, one)
        page.bytes[:] = made.page(of, other).bytes
        made.seen = f"block {one} has the bytes of block {other}"
        made.write(page)

    return do


def truncated(of: str) -> Callable[[Made, Random], None]:
    def do(made: Made, rng: Random) -> None:
        count = made.count(of)
        with made.files[of].open("r+b") as file:
            file.truncate((count - count // 4) * BLOCK)
        made.seen = f"{count // 4} of {count} blocks truncated"

    return do


# -- TOAST -------------------------------------------------------------------------------------------------------------------


def chunk(do: Callable[[Item, Random], str]) -> Callable[[Made, Random], None]:
    def made_so(made: Made, rng: Random) -> None:
        item = row(made, rng, of="toast")
        made.seen = f"chunk ({item.page.block},{item.number}): {do(item, rng)}"
        made.write(item.page)

    return made_so


def external(item: Item) -> bool:
    return is_live(item) and bool(infomask(item) & HASEXTERNAL)


def toast_pointer(at: int, add: int, what: str) -> Callable[[Made, Random], None]:
    """A field of the last value of a row, whose 18 bytes are the end of it."""

    def do(item: Item, rng: Random) -> str:
        begin = item.bytes.rindex(b"\x01\x12") + item.at
        place = begin + 2 + at
        (old,) = struct.unpack_from("<I", item.page.bytes, place)
        struct.pack_into("<I", item.page.bytes, place, (old + add) & 0xFFFFFFFF)
        return f"{what} {old} + {add}"

    return change(external, do)


def chunk_field(at: int, add: int, what: str) -> Callable[[Made, Random], None]:
    def do(item: Item, rng: Random) -> str:
        place = data(item) + at
        item.page.set32(place, item.page.u32(place) + add)
        return f"{what} + {add}"

    return chunk(do)


def compressed_byte(made: Made, rng: Random) -> None:
    """In the first chunk of a compressed value: a length of the packed form that no longer fits."""
    item = row(made, rng, lambda item: item.page.u32(data(item) + 4) == 0 and is_packed(item), of="toast")
    at = data(item) + 8 + 4 + 4
    item.page.bytes[at : at + 40] = bytes([0xFF]) * 40
    made.seen = f"chunk ({item.page.block},{item.number}): 40 bytes of the packed form"
    made.write(item.page)


def is_packed(item: Item) -> bool:
    """A value of the odd rows is packed; its first bytes are its size, which is small."""
    (size,) = struct.unpack_from("<I", item.page.bytes, data(item) + 12)
    return 0 < size < 1 << 20


# -- maps and sequences ------------------------------------------------------------------------------------------------------


def map_bits(bits: int) -> Callable[[Made, Random], None]:
    """The visibility map says so of a block with deleted rows."""

    def do(made: Made, rng: Random) -> None:
        dirty = [page.block for page in made.pages("table") if any(not is_live(item) for item in page.normal())]
        block = rng.choice(dirty)
        page = made.page("vm", 0)
        page.bytes[24 + block // 4] |= bits << (block % 4 * 2)
        made.seen = f"visibility map of block {block}: {bits:#b}"
        made.write(page)

    return do


def sequence(at: int, new: bytes, what: str) -> Callable[[Made, Random], None]:
    def do(made: Made, rng: Random) -> None:
        page = made.page("sequence", 0)
        (item,) = page.normal()
        page.bytes[data(item) + at : data(item) + at + len(new)] = new
        made.seen = what
        made.write(page)

    return do


def sequence_magic(made: Made, rng: Random) -> None:
    page = made.page("sequence", 0)
    page.set32(page.special, 0x1718)
    made.seen = "magic"
    made.write(page)


FUTURE = 0x3000_0000

DAMAGES = [
    Damage("line pointers", "unused", "rows", pointer(unused)),
    Damage("line pointers", "dead", "plain", pointer(dead), contradicts=False),
    Damage("line pointers", "redirect to any row", "rows", pointer(redirected)),
    Damage("line pointers", "shifted", "rows", pointer(shifted)),
    Damage("line pointers", "too short", "rows", pointer(cut)),
    Damage("line pointers", "two to one row", "rows", pointer(twice)),
    Damage("heap", "block of zeros", "rows", zeroed("table")),
    Damage("heap", "block copied over another", "rows", copied("table")),
    Damage("heap", "end truncated", "rows", truncated("table")),
    Damage("tuples", "xmin of the future", "rows", change(is_live, set32(XMIN, lambda old, rng: FUTURE + rng.randrange(1000), "xmin"))),
    Damage("tuples", "xmax of the future", "rows", change(lambda i: not is_live(i), set32(XMAX, lambda old, rng: FUTURE, "xmax"))),
    # VACUUM may have truncated the block with the successor of a row that it could not remove yet.
    Damage("tuples", "t_ctid beyond the end", "rows", change(lambda i: not is_live(i), move_ctid), contradicts=False),
    Damage(
        "tuples",
        "heap-only set",
        "rows",
        change(root, flip16(INFOMASK2, HEAP_ONLY, "infomask2")),
    ),
    Damage(
        "tuples",
        "heap-only cleared",
        "rows",
        change(heap_only, flip16(INFOMASK2, HEAP_ONLY, "infomask2")),
    ),
    Damage("tuples", "hot-updated set", "rows", change(is_live, flip16(INFOMASK2, HOT_UPDATED, "infomask2"))),
    Damage("tuples", "t_hoff", "rows", change(is_live, wrong_hoff)),
    Damage("tuples", "too many attributes", "rows", change(is_live, more_natts)),
    Damage("tuples", "too few attributes", "rows", change(plain, fewer_natts)),
    Damage("tuples", "null bits", "rows", change(with_nulls, flip_null)),
    Damage(
        "tuples",
        "committed, says the hint bit of an aborted row",
        "aborted",
        change(aborted, flip16(INFOMASK, XMIN_COMMITTED | XMIN_INVALID, "infomask")),
    ),
    Damage(
        "tuples",
        "aborted, says the hint bit of a committed row",
        "rows",
        change(committed, flip16(INFOMASK, XMIN_COMMITTED | XMIN_INVALID, "infomask")),
    ),
    Damage("values", "boolean of 7", "rows", change(plain, value(BOOL, b"\x07", "b"))),
    Damage("values", "date out of range", "rows", change(plain, value(DATE, struct.pack("<i", 2_147_000_000), "d"))),
    Damage("values", "timestamp out of range", "rows", change(plain, value(TIME, struct.pack("<q", 9_223_372_036_854_775_000), "ts"))),
    Damage("values", "enum without a label", "rows", change(plain, value(MOOD, struct.pack("<I", 999_999), "e"))),
    Damage("values", "numeric digit of 0xffff", "rows", change(plain, in_value(0, -1, lambda old, rng: 0xFF, "n"))),
    Damage("values", "numeric too long", "rows", change(plain, in_value(0, 0, longer, "n"))),
    Damage("values", "text too long", "rows", change(plain, in_value(1, 0, longer, "t"))),
    Damage("values", "text too short", "rows", change(plain, in_value(1, 0, shorter, "t"))),
    Damage("values", "text is no UTF-8", "plain", change(plain, in_value(1, 3, lambda old, rng: 0xFF, "t"))),
    Damage("values", "letter of an indexed text", "rows", change(plain, in_value(1, 3, lambda old, rng: old ^ 3, "t"))),
    Damage("values", "letter of a text", "plain", change(plain, in_value(1, 3, lambda old, rng: old ^ 3, "t")), contradicts=False),
    Damage("values", "array of 77 dimensions", "plain", change(plain, in_value(2, 1, lambda old, rng: 77, "a"))),
    Damage("values", "jsonb header", "plain", change(plain, in_value(3, 4, lambda old, rng: 0x70, "j"))),
    Damage("TOAST", "chunk_seq", "plain", chunk_field(4, 1, "chunk_seq")),
    Damage("TOAST", "chunk_id", "plain", chunk_field(0, 7777, "chunk_id")),
    Damage("TOAST", "chunk removed", "plain", chunk(unused)),
    Damage("TOAST", "chunk shorter", "plain", chunk(lambda i, rng: (i.page.set32(data(i) + 8, i.page.u32(data(i) + 8) - 40), "size")[1])),
    Damage("TOAST", "va_valueid", "plain", toast_pointer(8, 5555, "va_valueid")),
    Damage("TOAST", "va_rawsize", "plain", toast_pointer(0, 1_000_000, "va_rawsize")),
    Damage("TOAST", "va_extsize", "plain", toast_pointer(4, -100, "va_extinfo")),
    Damage("TOAST", "va_toastrelid", "plain", toast_pointer(12, 3, "va_toastrelid")),
    Damage("TOAST", "packed bytes", "plain", compressed_byte),
    Damage("maps", "all-visible with deleted rows", "rows", map_bits(1)),
    Damage("maps", "all-frozen with deleted rows", "rows", map_bits(3)),
    Damage("sequence", "last_value above its maximum", "sequence", sequence(0, struct.pack("<q", 1 << 40), "last_value")),
    Damage("sequence", "is_called of 7", "sequence", sequence(16, b"\x07", "is_called")),
    Damage("sequence", "log_cnt below 0", "sequence", sequence(8, struct.pack("<q", -9), "log_cnt")),
    Damage("sequence", "magic", "sequence", sequence_magic),
]
