"""oncheck -pe: chunks and the extents in them, as oncheck prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leadline.engines.informix.text import INT32, INT64, Unknown, lines, number
from leadline.errors import LeadlineError

SPACE = re.compile(r"dbspace usage report: (\S+)(?: owner:.*)?", re.IGNORECASE)
# Before version 10 there was one page size, and no column for it.
CHUNK_HEADERS = {
    ("Chunk", "Pathname", "Pagesize(k)", "Size(p)", "Used(p)", "Free(p)"): True,
    ("Chunk", "Pathname", "Size", "Used", "Free"): False,
}
FIGURE = r"(\d{1,19}|see below)"
CHUNK = {
    True: re.compile(rf"(\d{{1,9}}) (\S.*?) (\d{{1,5}}) (\d{{1,19}}) {FIGURE} {FIGURE}"),
    False: re.compile(rf"(\d{{1,9}}) (\S.*?)() (\d{{1,19}}) {FIGURE} {FIGURE}"),
}
EXTENT_HEADERS = {("Description", "Offset(p)", "Size(p)"), ("Description", "Offset", "Size")}
EXTENT = re.compile(r"(\S.*?) (\d{1,19}) (\d{1,19})")
OBJECT = re.compile(r"([^:\s]+):'([^']*)'\.(\S+)")
NO_DATA = re.compile(r"-+( +-+)*|Total .*: ?\d+")


@dataclass(frozen=True)
class Chunk:
    """page_size: bytes of a page of its dbspace; None where the listing does not say. used, free: None for "see below"."""

    chunk: int
    dbspace: str | None
    pathname: str
    page_size: int | None
    size: int
    used: int | None
    free: int | None


@dataclass(frozen=True)
class Extent:
    """Pages [offset, offset + size) of a chunk, in pages of its dbspace. The three names are those of db:'owner'.name."""

    chunk: Chunk
    description: str
    datname: str | None
    owner: str | None
    relname: str | None
    offset: int
    size: int


@dataclass
class Report:
    """Reads one file. Iterate over it: a Chunk, then its extents, then the next Chunk."""

    path: Path
    unknown: Unknown = field(default_factory=Unknown)

    def __iter__(self) -> Iterator[Chunk | Extent]:
        """Raises LeadlineError('invalid') when the file has no chunk."""
        space: str | None = None
        chunk: Chunk | None = None
        with_page_size: bool | None = None  # the next line is a chunk, with or without that column
        in_extents, any_chunk = False, False
        for at, line in lines(self.path):
            words = tuple(line.split())
            text = " ".join(words)  # runs of blanks would make the patterns slow on lines made for that
            if not words:
                continue
            if title := SPACE.fullmatch(text):
                space, chunk, in_extents = title[1], None, False
            elif words in CHUNK_HEADERS:
                with_page_size, in_extents = CHUNK_HEADERS[words], False
            elif with_page_size is not None:
                chunk = _chunk(text, space, with_page_size)
                with_page_size = None
                if chunk is None:
                    self.unknown.add(at, line)
                else:
                    any_chunk = True
                    yield chunk
            elif words in EXTENT_HEADERS:
                in_extents = True
            elif NO_DATA.fullmatch(text):
                continue
            elif chunk is not None and in_extents and (extent := _extent(chunk, text)):
                yield extent
            else:
                self.unknown.add(at, line)
        if not any_chunk:
            raise LeadlineError(
                "invalid",
                "not the output of oncheck -pe",
                detail="no chunk found after the line: " + " ".join(next(iter(CHUNK_HEADERS))),
                hint="run on the server: oncheck -pe > FILE",
                where=str(self.path),
            )


def _chunk(text: str, space: str | None, with_page_size: bool) -> Chunk | None:
    found = CHUNK[with_page_size].fullmatch(text)
    if not found:
        return None
    chunk, size = number(found[1], INT32), number(found[4], INT64)
    kilobytes = int(found[3]) if found[3] else None
    if chunk is None or size is None or kilobytes == 0:
        return None
    page_size = None if kilobytes is None else kilobytes * 1024
    return Chunk(chunk, space, found[2], page_size, size, number(found[5], INT64), number(found[6], INT64))


def _extent(chunk: Chunk, text: str) -> Extent | None:
    found = EXTENT.fullmatch(text)
    if not found:
        return None
    offset, size = number(found[2], INT64), number(found[3], INT64)
    if offset is None or size is None or offset + size >= INT64:
        return None
    names = OBJECT.fullmatch(found[1])
    datname, owner, relname = names.groups() if names else (None, None, None)
    return Extent(chunk, found[1], datname, owner, relname, offset, size)
