"""onstat -X, -B and -b: the buffers in use and who waits for them, as onstat prints them.

Rows of -X were seen on a real server. Of -B and -b only the line of column names was (manuals of 10.00 and 12.10): their rows
are taken by these names, and a row that does not have exactly that many words is reported as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leadline.engines.informix.text import INT32, INT64, Unknown, lines, number
from leadline.errors import LeadlineError

# The line of column names, and the option of onstat that prints it.
LISTINGS = {
    ("address", "owner", "flags", "pagenum", "memaddr", "nslots", "pgflgs", "scount", "waiter"): "X",
    ("address", "userthread", "flgs", "pagenum", "memaddr", "nslots", "pgflgs", "xflgs", "owner", "waitlist"): "B",
}
TITLES = ("Buffers (Access)", "Buffers")
BANNER = re.compile(r"(?:.* )?Version (\S+)\s+-- (.+?) -- Up (?:(\d{1,6}) days? )?(\d{1,3}):(\d\d):(\d\d) -- \d+ Kbytes")
POOL = re.compile(r"Buffer pool page size: (\d{1,9})")
TOTAL = re.compile(r"\d+ modified, .*\b\d+ total, \d+ hash buckets, \d+ buffer size\.?")


@dataclass
class Sample:
    """One listing of buffers: onstat repeated (-r) prints several into one file. uptime_s: of the server, by the line above it."""

    file: str
    listing: str
    version: str | None
    uptime_s: float | None


@dataclass(frozen=True)
class Buffer:
    """One line. Addresses and flags as printed; chunk and page are the two halves of pagenum.

    flags: those of the access (xflgs of -B). waiter: the thread that waits (of -B the first one); "0" for none.
    """

    pool_page_size: int | None
    address: str
    userthread: str | None
    owner: str
    flgs: int | None
    flags: int
    chunk: int
    page: int
    memaddr: str
    nslots: int
    pgflgs: int
    scount: int | None
    waiter: str


@dataclass
class Listing:
    """Reads one file. Iterate over it: a Sample, then its buffers, then the next Sample."""

    path: Path
    unknown: Unknown = field(default_factory=Unknown)

    def __iter__(self) -> Iterator[Sample | Buffer]:
        """Raises LeadlineError('invalid') when the file has no listing of buffers at all."""
        names: tuple[str, ...] | None = None
        version: str | None = None
        uptime_s: float | None = None
        pool: int | None = None
        for at, line in lines(self.path):
            words = line.split()
            text = " ".join(words)
            if not words or text in TITLES or TOTAL.fullmatch(text):
                continue
            if banner := BANNER.fullmatch(line.strip()):
                version, days = banner[1], int(banner[3] or 0)
                uptime_s = float(((days * 24 + int(banner[4])) * 60 + int(banner[5])) * 60 + int(banner[6]))
            elif tuple(words) in LISTINGS:
                names, pool = tuple(words), None
                yield Sample(str(self.path), LISTINGS[names], version, uptime_s)
            elif (size := POOL.fullmatch(text)) and (bytes_ := int(size[1])):
                pool = bytes_
            elif names is not None and (buffer := _buffer(names, words, pool)):
                yield buffer
            else:
                self.unknown.add(at, line)
        if names is None:
            raise LeadlineError(
                "invalid",
                "not the output of onstat -X, -B or -b",
                detail="no column header line found: " + " ".join(next(iter(LISTINGS))),
                hint="run on the server: onstat -X > FILE",
                where=str(self.path),
            )


def _buffer(names: tuple[str, ...], words: list[str], pool: int | None) -> Buffer | None:
    """One row; None when it does not have the form that the names say."""
    if len(words) != len(names):
        return None
    row = dict(zip(names, words))
    chunk_text, colon, page_text = row["pagenum"].partition(":")
    chunk, page = number(chunk_text, INT32), number(page_text, INT64)
    nslots, pgflgs = number(row["nslots"], INT32), number(row["pgflgs"], 0x10000, 16)
    flags, flgs = number(row.get("flags", row.get("xflgs", "")), INT32, 16), number(row.get("flgs", "0"), INT32, 16)
    scount = number(row.get("scount", "0"), INT32)
    waiter = row.get("waiter", row.get("waitlist", ""))
    addresses = (row["address"], row["owner"], row["memaddr"], waiter, row.get("userthread", "0"))
    if not colon or chunk is None or page is None or any(number(address, 2**64, 16) is None for address in addresses):
        return None
    if nslots is None or pgflgs is None or flags is None or flgs is None or scount is None:
        return None
    return Buffer(
        pool_page_size=pool,
        address=row["address"],
        userthread=row.get("userthread"),
        owner=row["owner"],
        flgs=flgs if "flgs" in row else None,
        flags=flags,
        chunk=chunk,
        page=page,
        memaddr=row["memaddr"],
        nslots=nslots,
        pgflgs=pgflgs,
        scount=scount if "scount" in row else None,
        waiter=waiter,
    )
