"""Logs of runs that ended, compressed: a gzip file that `zcat` reads, of members that say their sizes, so that any part is read at once."""

from __future__ import annotations

import bisect
import io
import os
import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.book.place import Place

MEMBER = 1 << 20  # bytes of the log in one
LARGEST = 16 << 20  # of what is read, whatever a file says
SMALLEST = 4096  # of a log that is worth it: a block of the disk
_HEAD = struct.Struct("<4s6x2s2s2sII")  # gzip with an extra field: its length, its name, the length of its data, packed and plain bytes
_MAGIC, _EXTRA, _NAME, _DATA = b"\x1f\x8b\x08\x04", struct.pack("<H", 12), b"LL", struct.pack("<H", 8)


def pack(place: Place, uid: str) -> int:
    """Compresses the log of a run; by how many bytes it is smaller now. The log itself goes when the other file is whole and equal."""
    log, packed, fresh = place.log_of(uid), place.packed_log_of(uid), place.packed_log_of(uid).with_suffix(".new")
    with suppress(FileNotFoundError):
        fresh.unlink()
    with open(log, "rb") as file:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as out:
            while piece := file.read(MEMBER):
                out.write(_member(piece))
            out.flush()
            os.fsync(fd)
        before, after = file.tell(), fresh.stat().st_size
        if after >= before or not _equal(file, fresh):
            fresh.unlink()
            return 0
    fresh.replace(packed)
    log.unlink()
    return before - after


def _member(piece: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    body = packer.compress(piece) + packer.flush()
    return _HEAD.pack(_MAGIC, _EXTRA, _NAME, _DATA, len(body), len(piece)) + body + struct.pack("<II", zlib.crc32(piece), len(piece))


def _equal(log: BinaryIO, packed: os.PathLike[str]) -> bool:
    log.seek(0)
    with open(packed, "rb") as file:
        plain = Members(file)
        while True:
            one, other = log.read(MEMBER), plain.read(MEMBER)
            if one != other:
                return False
            if not one:
                return True


class Damaged(LeadlineError, OSError):
    """A log that cannot be read, for all who expect that."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__("invalid", "a packed log is damaged", where=str(file.name))


class Members(io.RawIOBase):
    """The plain bytes of a packed log. Raises Damaged."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._at = file, 0
        self._starts, self._places, self.size = list[int](), list[tuple[int, int, int]](), 0
        self._open: tuple[int, bytes] = (-1, b"")
        at, end = 0, os.fstat(file.fileno()).st_size
        while at < end:
            file.seek(at)
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size or not head.startswith(_MAGIC):
                raise Damaged(self._file)
            packed, plain = _HEAD.unpack(head)[4:]
            if not 0 < plain <= LARGEST:
                raise Damaged(self._file)
            self._starts.append(self.size)
            self._places.append((at + _HEAD.size, packed, plain))
            self.size += plain
            at += _HEAD.size + packed + 8

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        number = bisect.bisect_right(self._starts, self._at) - 1
        if self._at >= self.size or number < 0:
            return 0
        piece = memoryview(self._plain(number))[self._at - self._starts[number] :][: len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _plain(self, number: int) -> bytes:
        if self._open[0] != number:
            at, packed, plain = self._places[number]
            self._file.seek(at)
            try:
                # Not more than was said: what is damaged must not fill the memory.
                body = zlib.decompressobj(wbits=-zlib.MAX_WBITS).decompress(self._file.read(packed), plain)
            except zlib.error as e:
                raise Damaged(self._file) from e
            if len(body) != plain:
                raise Damaged(self._file)
            self._open = (number, body)
        return self._open[1]

    def close(self) -> None:
        self._file.close()
        super().close()


def open_log(place: Place, uid: str, *, buffered: bool = True) -> BinaryIO:
    """The bytes of a log, packed or not. Raises FileNotFoundError."""
    try:
        return open(place.log_of(uid), "rb", buffering=-1 if buffered else 0)
    except FileNotFoundError:
        members = Members(open(place.packed_log_of(uid), "rb"))
        return io.BufferedReader(members) if buffered else members  # type: ignore[return-value]


def size_of(file: BinaryIO) -> int:
    """Of a file that `open_log` gave; it may grow."""
    raw = getattr(file, "raw", file)
    return raw.size if isinstance(raw, Members) else os.fstat(file.fileno()).st_size


def log_size(place: Place, uid: str) -> int:
    """0 where there is none."""
    try:
        with open_log(place, uid) as file:
            return size_of(file)
    except OSError:
        return 0
