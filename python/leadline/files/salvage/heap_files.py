"""Files of tables as a folder has them, without a catalog: which there are, and some tuples of each as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from leadline._core.datadir import block_sizes
from leadline.errors import LeadlineError

FIRST_OF_USERS = 16384
HEADER, ITEM, TUPLE = 24, 4, 23  # bytes of a page header, a line pointer, a tuple's fixed part
NORMAL = 1  # of a line pointer
HAS_NULL, HAS_VARIABLE, NATTS = 0x1, 0x2, 0x7FF
BLOCKS, TUPLES = 24, 200  # that are looked at of a file


class Tuple(NamedTuple):
    """One version of a row. nulls: its bitmap, empty when there is a value of each column."""

    natts: int
    nulls: bytes
    data: bytes
    has_variable: bool

    def is_null(self, column: int) -> bool:
        return bool(self.nulls) and not self.nulls[column >> 3] >> (column & 7) & 1


@dataclass(frozen=True)
class HeapFile:
    """The main fork of a table or a TOAST table. place: in the data directory. sample: tuples of blocks all over it."""

    path: Path
    place: str
    number: int
    blocks: int
    sample: tuple[Tuple, ...]

    @property
    def natts(self) -> int:
        return max((each.natts for each in self.sample), default=0)

    @property
    def is_toast(self) -> bool:
        """All of them are chunks of values, among them a first one."""
        numbers = [chunk[1] if (chunk := chunk_of(each)) else -1 for each in self.sample]
        return bool(numbers) and min(numbers) >= 0 and 0 in numbers


def chunk_of(row: Tuple) -> tuple[int, int] | None:
    """The value and number of a chunk of a TOAST table, if it is one: bytes that are never compressed come after these."""
    if row.natts != 3 or row.nulls or len(row.data) <= 8:
        return None
    value_id, number = struct.unpack_from("<Ii", row.data)
    first = row.data[8]
    length = first >> 1 if first & 1 else struct.unpack_from("<I", row.data.ljust(12, b"\0"), 8)[0] >> 2
    is_plain = bool(first & 1) or not first & 2
    return (value_id, number) if is_plain and length == len(row.data) - 8 and number >= 0 else None


def folders(data_dir: Path, database: int) -> list[Path]:
    """Where a database has files: in the default tablespace first."""
    found = [data_dir / "base" / str(database), *sorted(data_dir.glob(f"pg_tblspc/*/PG_*/{database}"))]
    return [folder for folder in found if folder.is_dir()]


def heap_files(data_dir: Path, database: int) -> list[HeapFile]:
    """Those that users' tables may have: with at least one tuple. Raises LeadlineError."""
    try:
        size = block_sizes(str(data_dir))[0]
    except LeadlineError:
        size = 8192
    paths = [path for folder in folders(data_dir, database) for path in folder.iterdir() if path.name.isdigit()]
    users = sorted((path for path in paths if int(path.name) >= FIRST_OF_USERS), key=lambda path: int(path.name))
    found = []
    for path in users:
        blocks = path.stat().st_size // size
        sample = tuple(_sample(path, blocks, size))
        if sample:
            found.append(HeapFile(path, str(path.relative_to(data_dir)), int(path.name), blocks, sample))
    return found


def _sample(path: Path, blocks: int, size: int) -> Iterator[Tuple]:
    step = max(blocks // BLOCKS, 1)
    most = max(TUPLES // min(blocks, BLOCKS), 4) if blocks else 0
    with path.open("rb") as file:
        for block in range(0, blocks, step):
            file.seek(block * size)
            yield from list(tuples_of(file.read(size)))[:most]


def tuples_of(page: bytes) -> Iterator[Tuple]:
    """Those of a page of a table; none of another page, which has something behind its items."""
    if len(page) < HEADER:
        return
    lower, upper, special = struct.unpack_from("<HHH", page, 12)
    if not HEADER <= lower <= upper <= special or special != len(page):
        return
    for at in range(HEADER, lower - ITEM + 1, ITEM):
        (item,) = struct.unpack_from("<I", page, at)
        offset, flags, length = item & 0x7FFF, item >> 15 & 3, item >> 17
        if flags != NORMAL or length < TUPLE or not upper <= offset <= len(page) - length:
            continue
        mask2, mask, hoff = struct.unpack_from("<HHB", page, offset + 18)
        natts = mask2 & NATTS
        bitmap = (natts + 7) // 8 if mask & HAS_NULL else 0
        if hoff % 8 or not TUPLE + bitmap <= hoff <= length:
            continue
        nulls = page[offset + TUPLE : offset + TUPLE + bitmap]
        yield Tuple(natts, nulls, page[offset + hoff : offset + length], bool(mask & HAS_VARIABLE))
