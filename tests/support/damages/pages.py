"""Pages of relation files that are changed by hand, with their checksums made right again."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from leadline._core.pages import page_read

BLOCK = 8192
NORMAL, REDIRECT, DEAD = 1, 2, 3


@dataclass
class Page:
    """A block of a file that is being changed."""

    path: Path
    block: int
    bytes: bytearray

    @property
    def lower(self) -> int:
        return self.u16(12)

    @property
    def special(self) -> int:
        return self.u16(16)

    @property
    def is_new(self) -> bool:
        return self.u16(14) == 0

    def u16(self, at: int) -> int:
        return int(struct.unpack_from("<H", self.bytes, at)[0])

    def u32(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.bytes, at)[0])

    def set16(self, at: int, value: int) -> None:
        struct.pack_into("<H", self.bytes, at, value & 0xFFFF)

    def set32(self, at: int, value: int) -> None:
        struct.pack_into("<I", self.bytes, at, value & 0xFFFFFFFF)

    def items(self) -> list[Item]:
        words = ((number, self.u32(24 + 4 * (number - 1))) for number in range(1, (self.lower - 24) // 4 + 1))
        return [Item(self, number, word & 0x7FFF, word >> 15 & 3, word >> 17) for number, word in words]

    def normal(self) -> list[Item]:
        return [item for item in self.items() if item.flags == NORMAL and item.length]

    def remove(self, item: Item) -> None:
        """As if it had never been on the page: line pointers behind it move up. Its bytes stay where they are."""
        at = 24 + 4 * (item.number - 1)
        self.bytes[at : self.lower - 4] = self.bytes[at + 4 : self.lower]
        self.set32(self.lower - 4, 0)
        self.set16(12, self.lower - 4)


@dataclass
class Item:
    """A line pointer. at: where its item begins in the page."""

    page: Page
    number: int
    at: int
    flags: int
    length: int

    @property
    def bytes(self) -> bytes:
        return bytes(self.page.bytes[self.at : self.at + self.length])

    def point(self, *, at: int | None = None, flags: int | None = None, length: int | None = None) -> None:
        """Changes the line pointer."""
        at, flags = self.at if at is None else at, self.flags if flags is None else flags
        length = self.length if length is None else length
        self.page.set32(24 + 4 * (self.number - 1), at | flags << 15 | length << 17)


@dataclass
class Made:
    """A relation with its indexes, stopped: the files by what they are. seen: what the damage changed, for people."""

    name: str
    files: dict[str, Path]
    seen: str = ""
    written: list[tuple[Path, int]] = field(default_factory=list)

    def count(self, of: str) -> int:
        return self.files[of].stat().st_size // BLOCK

    def page(self, of: str, block: int) -> Page:
        with self.files[of].open("rb") as file:
            file.seek(block * BLOCK)
            return Page(self.files[of], block, bytearray(file.read(BLOCK)))

    def pages(self, of: str) -> list[Page]:
        return [self.page(of, block) for block in range(self.count(of))]

    def write(self, page: Page) -> None:
        """With the checksum of its new bytes."""
        for _ in range(2):
            with page.path.open("r+b") as file:
                file.seek(page.block * BLOCK)
                file.write(page.bytes)
            checksum = page_read(str(page.path), page.block)["computed_checksum"]
            if page.is_new or checksum is None:
                break
            page.set16(8, checksum)
        self.written.append((page.path, page.block))


@dataclass(frozen=True)
class Damage:
    """A kind of damage. contradicts: something else in the files; else nobody can find it without knowing what was there before.

    template: the table that it needs.
    """

    category: str
    name: str
    template: str
    do: Callable[[Made, Random], None]
    contradicts: bool = True
