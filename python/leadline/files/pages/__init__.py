"""Pages of files, without a server: where they are, what is in them, what is wrong with them.

The bytes are taken apart in Rust (crates/page, crates/pagescan); here is what people and programs see of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline._core.pages import page_read
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline._core.pages import Page, Part


@dataclass(frozen=True)
class Place:
    """One page: a file and the number of the block within it."""

    path: Path
    block: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.block}"


def parse_place(text: str, *, block_needed: bool = False) -> Place:
    """FILE:BLOCK, or FILE for its block 0. A file whose own name ends in a colon and digits is meant when it exists."""
    if Path(text).exists() and not block_needed:
        return Place(Path(text))
    path, colon, block = text.rpartition(":")
    if colon and path and block.isascii() and block.isdigit():
        if int(block) > 0xFFFFFFFE:
            raise LeadlineError("usage", f"block {block} is out of range: the last block of a relation is {0xFFFFFFFE}")
        return Place(Path(path), int(block))
    if block_needed:
        raise LeadlineError("usage", f"no block number in {text}", hint=f"add the block number: {text}:0")
    return Place(Path(text))


def read_page(place: Place, block_size: int | None = None, engine: str | None = None, **more: Any) -> Page:
    """A page taken apart, as leadline._core.pages.page_read gives it; of a text, the page it is a dump of. Raises LeadlineError.

    engine and more: what neither the file nor its name says.
    """
    from leadline.files.pages import dump_text, oracle_dump

    if engine is not None:
        return page_read(str(place.path), place.block, block_size, engine=engine, **more)
    text = dump_text.read_text(place.path)
    if text is not None:
        return oracle_dump.read_dump(place, text) if oracle_dump.is_dump(text) else dump_text.read_dump(place, text, block_size)
    return page_read(str(place.path), place.block, block_size)


def as_json(page: Page) -> dict[str, object]:
    """What --json prints of a page: all but its bytes and the regions, which page hex prints."""
    return {key: value for key, value in page.items() if key not in ("raw", "regions")}


def named(part: Part) -> str:
    """A part's name with its number: tuple 3."""
    return part["part"] if part["number"] is None else f"{part['part']} {part['number']}"
