"""Decodes rows of system catalogs from heap pages on disk: fixed-width leading columns of tuples that look visible.

Knows pages of layout version 4 (PostgreSQL 8.3 and later), 8 to 32 KiB, little-endian. Visibility without a snapshot: hint bits first,
then pg_xact. What the server has not written yet is missing; nothing here is exact while catalogs change.
Sources: bufpage.h, itemid.h, htup_details.h, clog.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

LP_NORMAL = 1
XMIN_COMMITTED, XMIN_INVALID, XMIN_FROZEN = 0x0100, 0x0200, 0x0300
XMAX_COMMITTED, XMAX_INVALID, XMAX_IS_MULTI, XMAX_LOCK_ONLY = 0x0400, 0x0800, 0x1000, 0x0080
IN_PROGRESS, COMMITTED, ABORTED, SUB_COMMITTED = 0, 1, 2, 3
_TUPLE_HEADER = 23
_CLOG_SEGMENT_PAGES = 32  # SLRU_PAGES_PER_SEGMENT; 4 transactions to the byte

Status = Callable[[int], int]


def transaction_status(pg_xact: Path, block_size: int) -> Status:
    """A look-up of transactions in the files of pg_xact: IN_PROGRESS also for those not written there yet."""
    segments: dict[int, bytes] = {}
    segment_bytes = _CLOG_SEGMENT_PAGES * block_size

    def status(xid: int) -> int:
        if xid < 3:  # bootstrap and frozen
            return COMMITTED
        number, offset = divmod(xid // 4, segment_bytes)
        if number not in segments:
            try:
                segments[number] = (pg_xact / f"{number:04X}").read_bytes()
            except OSError:
                segments[number] = b""
        segment = segments[number]
        return segment[offset] >> (xid % 4 * 2) & 3 if offset < len(segment) else IN_PROGRESS

    return status


def live_tuples(data: bytes, status: Status, block_size: int) -> Iterator[bytes]:
    """User data (after t_hoff) of each tuple that looks visible, page by page. Torn or foreign pages give nothing."""
    for start in range(0, len(data) - block_size + 1, block_size):
        yield from _page_tuples(data[start : start + block_size], status)


def _page_tuples(page: bytes, status: Status) -> Iterator[bytes]:
    lower, upper, special, size_version = struct.unpack_from("<4H", page, 12)
    if size_version & 0xFF != 4 or not 24 <= lower <= upper <= special <= len(page):
        return  # never used, or not a heap page
    for (item,) in struct.iter_unpack("<I", page[24 : lower - (lower - 24) % 4]):
        offset, flags, length = item & 0x7FFF, item >> 15 & 3, item >> 17
        if flags != LP_NORMAL or length < _TUPLE_HEADER or offset + length > len(page):
            continue
        xmin, xmax = struct.unpack_from("<II", page, offset)
        infomask, hoff = struct.unpack_from("<HB", page, offset + 20)
        if hoff <= length and _inserted(xmin, infomask, status) and not _deleted(xmax, infomask, status):
            yield page[offset + hoff : offset + length]


def _inserted(xmin: int, infomask: int, status: Status) -> bool:
    if infomask & XMIN_FROZEN == XMIN_FROZEN or infomask & XMIN_COMMITTED:
        return True
    # A running transaction's rows are taken: it may have committed since pg_xact was written.
    return not infomask & XMIN_INVALID and status(xmin) != ABORTED


def _deleted(xmax: int, infomask: int, status: Status) -> bool:
    if xmax == 0 or infomask & (XMAX_INVALID | XMAX_LOCK_ONLY) or infomask & XMAX_IS_MULTI:
        return False  # a multixact with an update in it is rare in catalogs and would need pg_multixact
    return bool(infomask & XMAX_COMMITTED) or status(xmax) == COMMITTED
