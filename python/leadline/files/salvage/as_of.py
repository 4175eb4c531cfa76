"""The time of the past that rows are wanted of: a transaction, or a time where the server kept the times of commits."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.files.salvage.catalog import AsOf
from leadline.files.salvage.control import control

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
FIRST_NORMAL = 3
TIME_BYTES = 10  # of a transaction in pg_commit_ts
PAGES = 32  # of a file of it


def resolve(text: str, data_dir: Path) -> AsOf:
    """`text`: the last transaction that counts, or a time, of UTC unless it says otherwise. Raises LeadlineError."""
    fields = control(data_dir)
    wrapped = int(fields["nextXid"]) >> 32 > 0
    if text.isdigit():
        if int(text) < FIRST_NORMAL or int(text) >= 1 << 32:
            raise LeadlineError("usage", f"--as-of {text}: transactions are numbered from {FIRST_NORMAL} to {(1 << 32) - 1}")
        return int(text), wrapped
    try:
        time = datetime.fromisoformat(text)
    except ValueError as e:
        hint = "write a number, or a time such as 2026-11-28T12:00:00Z"
        raise LeadlineError("usage", f"--as-of {text}: not a transaction and not a time", hint=hint) from e
    at = (time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH
    oldest = int(fields["oldestCommitTsXid"])
    first = _time_of(data_dir, oldest) if oldest else None
    if first is None:
        raise LeadlineError(
            "unsupported", "the files have no times of commits",
            detail="the server kept none: track_commit_timestamp was off, or it has not committed anything since",
            hint="give --as-of a transaction", where=str(data_dir),
        )  # fmt: skip
    if at // timedelta(microseconds=1) < first:
        since = (EPOCH + timedelta(microseconds=first)).isoformat()
        raise LeadlineError("usage", f"--as-of {text}: times of commits are kept since {since}", where=str(data_dir))
    return at // timedelta(microseconds=1), oldest, wrapped


def _time_of(data_dir: Path, xid: int) -> int | None:
    """When the first transaction from this one on committed that has a time, in microseconds since 2000."""
    block = int(control(data_dir)["blcksz"])
    page, place = divmod(xid, block // TIME_BYTES)
    try:
        content = (data_dir / "pg_commit_ts" / f"{page // PAGES:04X}").read_bytes()[page % PAGES * block :]
    except OSError:
        return None
    for start in range(0, len(content), block):
        for at in range(start + place * TIME_BYTES, min(start + block, len(content)) - TIME_BYTES + 1, TIME_BYTES):
            if time := int(struct.unpack_from("<q", content, at)[0]):
                return time
        place = 0
    return None
