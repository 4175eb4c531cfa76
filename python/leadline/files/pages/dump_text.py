"""A page from the text that a debugger or a dump tool printed of it: gdb x, od, hexdump -C, xxd, Oracle's "Dump of memory".

What the text leaves out is not known. It is taken as zeros only if the page's own checksum then agrees; a "*" of od or hexdump is
no gap: it stands for lines like the one before.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline._core.pages import page_read
from leadline.errors import LeadlineError
from leadline.files.pages import Place
from leadline.files.pages.text import checksum_words

if TYPE_CHECKING:
    from leadline._core.pages import Page

HEX = "[0-9a-fA-F]"
LARGEST_TEXT = 16 << 20  # of one page; more is no dump of one


@dataclass(frozen=True)
class Form:
    """How a tool prints memory: `line` finds address and words, `base` is that of the address."""

    tool: str
    line: re.Pattern[str]
    base: int = 16
    little_endian: bool = True  # of words of several bytes: printed as numbers, highest byte first


FORMS = (
    Form("gdb", re.compile(rf"^\s*0x({HEX}+)[^:]*:((?:\s+0x(?:{HEX}{{2}})+)+)\s*$")),
    Form("Oracle", re.compile(rf"^\s*({HEX}{{8,16}})((?: {HEX}{{8}}){{1,4}})\s+\[.*\]\s*$")),
    Form("hexdump -C", re.compile(rf"^({HEX}{{8}})((?:  ?{HEX}{{2}}){{1,16}})\s+\|.*\|\s*$")),
    Form("xxd", re.compile(rf"^({HEX}{{8}}):((?: (?:{HEX}{{2}})+){{1,16}})(?:\s\s.*)?$"), little_endian=False),
    Form("od -A d -t x1", re.compile(rf"^(\d{{7}})((?: {HEX}{{2}}){{1,16}})\s*$"), base=10),
    Form("od -A x -t x1", re.compile(rf"^({HEX}{{6,7}})((?: {HEX}{{2}}){{1,16}})\s*$")),
)
REPEATED = "*"


def is_text(head: bytes) -> bool:
    """Whether these first bytes of a file are printed text; pages have zeros or control bytes near their start."""
    return bool(head) and all(byte >= 0x20 or byte in b"\t\n\r" for byte in head) and b"\n" in head


def read_dump(place: Place, text: str, block_size: int | None = None) -> Page:
    """The page in a dump, as page_read gives it, with `dump`: {tool, missing_bytes}. Raises LeadlineError.

    The first page of the text counts, and what the text says before and after it does not matter.
    """
    where = str(place.path)
    if place.block:
        raise LeadlineError("usage", "a dump contains one page only", hint="remove the block number", where=where)
    form, chunks = _chunks(text)
    if form is None:
        raise LeadlineError(
            "invalid", "the text is not a page dump", detail="known: " + ", ".join(f.tool for f in FORMS), where=where
        )
    start = chunks[0][0]
    size = block_size or _size(chunks)
    page, known = bytearray(size), bytearray(size)
    for address, data in chunks:
        at = address - start
        if 0 <= at < size:
            part = data[: size - at]
            page[at : at + len(part)] = part
            known[at : at + len(part)] = b"\1" * len(part)
    found = _taken_apart(bytes(page), size)
    missing = known.count(0)
    agrees = checksum_words(found).endswith("is right")
    if missing and not agrees:
        first = known.index(0)
        raise LeadlineError(
            "invalid",
            f"{missing} bytes of the page are missing from the dump",
            detail=f"the first missing byte is at {first} (0x{first:x}); with zeros in place of missing bytes: {checksum_words(found)}",
            hint=f"dump the whole page, for example x/{size}bx in gdb",
            where=where,
        )
    found["path"] = where
    found["dump"] = {"tool": form.tool, "missing_bytes": missing}
    return found


def _chunks(text: str) -> tuple[Form | None, list[tuple[int, bytes]]]:
    """The first form that a line has, and all that lines of that form say: (address, bytes), in order, the first dump only."""
    found: Form | None = None
    chunks: list[tuple[int, bytes]] = []
    repeat = False
    for line in text.splitlines():
        if chunks and line.strip() == REPEATED:
            repeat = True
            continue
        form, match = _match(line, found)
        if form is None or match is None:
            continue
        found = form
        address, data = int(match[1], form.base), b"".join(_bytes(match[2], form))
        if chunks and address <= chunks[-1][0]:
            break  # another dump begins
        if repeat and chunks:
            before, same = chunks[-1]
            for at in range(before + len(same), min(address, before + (1 << 20)), max(1, len(same))):
                chunks.append((at, same))
            repeat = False
        chunks.append((address, data))
    return found, chunks


def _match(line: str, found: Form | None) -> tuple[Form | None, re.Match[str] | None]:
    for form in FORMS if found is None else (found,):
        match = form.line.match(line)
        if match:
            return form, match
    return None, None


def _bytes(words: str, form: Form) -> Iterator[bytes]:
    for word in words.split():
        data = bytes.fromhex(word.removeprefix("0x"))
        yield data[::-1] if form.little_endian else data


def _size(chunks: list[tuple[int, bytes]]) -> int:
    """The least size of a page that holds it all."""
    end = chunks[-1][0] + len(chunks[-1][1]) - chunks[0][0]
    return 1 << max(10, min(end - 1, 32767).bit_length())


def _taken_apart(page: bytes, size: int) -> Page:
    with tempfile.NamedTemporaryFile(prefix="leadline-dump-") as file:
        file.write(page)
        file.flush()
        return page_read(file.name, 0, size)


def read_text(path: Path) -> str | None:
    """The text of a file that is one; None of any other file, also of one that cannot be read: reading its page tells why."""
    try:
        if not path.is_file():  # a pipe would wait for somebody who writes
            return None
        with path.open("rb") as file:
            head = file.read(256)
            return (head + file.read(LARGEST_TEXT)).decode(errors="replace") if is_text(head) else None
    except OSError:
        return None
