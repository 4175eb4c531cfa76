"""What a command printed: a file of its bytes as they came, and beside it where every 256th line begins and when it came.

The index is a help alone: what it lacks is found by reading on from its last entry. A log has an end: a command that prints for ever
must not fill the disk.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadline.book.place import Place

EVERY = 256
ENTRY = struct.Struct("<QQQ")  # line (the first is 0), offset in the log, ns since 1970
PIECE = 1 << 20
LONGEST_LINE = 64 << 10  # of a longer one, only so much is shown at once
BUDGET_S = 1.0
MOST = 8_000_000_000  # bytes of a log
VARIABLE = "LEADLINE_BOOK_LOG"  # another limit, such as 500MB


class LogWriter:
    """Appends to a log. What cannot be written, or would be too much, is counted: the command goes on."""

    def __init__(self, place: Place | None, uid: str, most: int | None = None) -> None:
        self.lost_bytes, self.size, self._lines = 0, 0, 0
        self.hash = hashlib.sha256()
        self._most, self._full = most_bytes() if most is None else most, False
        self._fd = self._index = -1
        if place is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            with suppress(OSError):
                place.make()
                self._fd = os.open(f"{place.directory}/logs/{uid}.log", flags, 0o600)
                self._index = os.open(f"{place.directory}/logs/{uid}.lines", flags, 0o600)

    def add(self, piece: bytes) -> None:
        kept = b"" if self._full else piece[: self._most - self.size]
        self.lost_bytes += len(piece) - self._write(kept)
        if len(kept) < len(piece) and not self._full:
            self._full = True
            self._write(b"\n[leadline: the log ends here, at %d bytes; the command printed more]\n" % self._most)

    def _write(self, piece: bytes) -> int:
        """How much of it is in the log now."""
        try:
            written = os.write(self._fd, piece) if self._fd >= 0 and piece else 0
        except OSError:
            written = 0
        if written:
            self._note_lines(piece[:written])
            self.hash.update(piece[:written])
            self.size += written
        return written

    def _note_lines(self, piece: bytes) -> None:
        found, left = piece.count(b"\n"), EVERY - self._lines % EVERY
        at, entries = -1, b""
        if found >= left:
            for number in range(1, found + 1):
                at = piece.find(b"\n", at + 1)
                if (self._lines + number) % EVERY == 0:
                    entries += ENTRY.pack(self._lines + number, self.size + at + 1, time.time_ns())
        self._lines += found
        if entries and self._index >= 0:
            with suppress(OSError):
                os.write(self._index, entries)

    def close(self) -> None:
        for fd in (self._fd, self._index):
            if fd >= 0:
                os.close(fd)
        self._fd = self._index = -1


def most_bytes() -> int:
    """The limit of this user; what cannot be read is no limit of his."""
    said = os.environ.get(VARIABLE)
    if not said:
        return MOST
    from leadline.errors import LeadlineError
    from leadline.units import bytes_of

    try:
        return bytes_of(said)
    except LeadlineError:
        return MOST


@dataclass(frozen=True)
class Page:
    """Whole lines of a log. first: number of the first line, from 0; offset and end: where they are in the file."""

    first: int
    offset: int
    end: int
    lines: list[bytes]


class Log:
    """A log to read, also while it is written, or when it is packed. Raises FileNotFoundError."""

    def __init__(self, place: Place, uid: str) -> None:
        from leadline.book.packed import open_log

        self._file = open_log(place, uid)
        try:
            self._index = place.index_of(uid).read_bytes()
        except OSError:
            self._index = b""

    @property
    def size(self) -> int:
        from leadline.book.packed import size_of

        return size_of(self._file)

    def read(self, offset: int, limit: int = PIECE) -> bytes:
        """The bytes from there on; at a line's end where there is one among them."""
        self._file.seek(offset)
        piece = self._file.read(limit)
        if len(piece) == limit and (cut := piece.rfind(b"\n") + 1):
            return piece[:cut]
        return piece

    def pieces(self, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """All of it from there on; length: at most so many bytes."""
        left = self.size - offset if length is None else length
        self._file.seek(max(0, offset))
        while left > 0 and (piece := self._file.read(min(PIECE, left))):
            left -= len(piece)
            yield piece

    def page(self, first: int, count: int) -> Page:
        """Lines by their number. A negative first: so many before the end; the last may still be growing."""
        if first < 0:
            first = max(0, self.line_count() + first)
        line, offset = self._before(first)
        self._file.seek(offset)
        while piece := self._file.read(PIECE):  # where the index has nothing
            if line + piece.count(b"\n") >= first:
                break
            line, offset = line + piece.count(b"\n"), offset + len(piece)
        line, offset = self._at_a_line(line, offset)
        start, lines = offset, list[bytes]()
        self._file.seek(offset)
        while len(lines) < count and (text := self._file.readline()):
            if line >= first:
                lines.append(text[:LONGEST_LINE])
            else:
                start += len(text)
            line += 1
            offset += len(text)
        return Page(min(first, line), start, offset, lines)

    def _at_a_line(self, line: int, offset: int) -> tuple[int, int]:
        """Number and offset of the next line; the same if one begins there."""
        if offset == 0:
            return line, offset
        self._file.seek(offset - 1)
        rest = self._file.readline()
        return (line, offset) if rest == b"\n" else (line + 1, offset - 1 + len(rest))

    def line_at(self, offset: int) -> int:
        """The number of the line that a byte is in."""
        line, start = self._entry(lambda entry: entry[1] <= offset)
        return line + sum(piece.count(b"\n") for piece in self.pieces(start, offset - start))

    def line_count(self) -> int:
        """Lines, with one that has no end yet."""
        line, start = self._entry(lambda entry: True)
        last = b"\n"
        for piece in self.pieces(start):
            line += piece.count(b"\n")
            last = piece[-1:]
        return line + (last != b"\n")

    def grep(self, text: bytes, offset: int = 0, most: int = 100, budget_s: float = BUDGET_S) -> tuple[list[tuple[int, bytes]], int | None]:
        """Lines with a text, each with the offset where it begins; and where to go on, None when all was looked at."""
        until, found = time.monotonic() + budget_s, list[tuple[int, bytes]]()
        size = self.size
        while offset < size:
            piece = self.read(offset)
            at = piece.find(text) if text else -1
            while at >= 0:
                start, end = piece.rfind(b"\n", 0, at) + 1, piece.find(b"\n", at)
                end = len(piece) if end < 0 else end
                found.append((offset + start, piece[start : min(end, start + LONGEST_LINE)]))
                if len(found) >= most:
                    return found, offset + end + 1 if offset + end + 1 < size else None
                at = piece.find(text, end)
            offset += len(piece)
            if not piece or (time.monotonic() > until and offset < size):
                return found, offset
        return found, None

    def _before(self, line: int) -> tuple[int, int]:
        """Number and offset of the last line that the index has and that is not behind this one."""
        return self._entry(lambda entry: entry[0] <= line)

    def _entry(self, fits: Callable[[tuple[int, ...]], bool]) -> tuple[int, int]:
        low, high = 0, len(self._index) // ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if fits(ENTRY.unpack_from(self._index, middle * ENTRY.size)):
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return 0, 0
        line, offset, _ = ENTRY.unpack_from(self._index, (low - 1) * ENTRY.size)
        return (line, offset) if offset <= self.size else (0, 0)

    def close(self) -> None:
        self._file.close()
