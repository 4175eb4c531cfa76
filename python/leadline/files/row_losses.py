"""What `leadline rows` says of a table beside its rows: what is lost of it, and what is not certain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leadline.figures import count, unconverted
from leadline.files import condition, unreadable

if TYPE_CHECKING:
    from leadline._core.datadir import Condition
    from leadline._core.rows import RowsDescription, RowsStatus

UNLOGGED = {
    True: "CHECKPOINT does not write it, so its file may be out of date while the server runs",
    False: "the server was not shut down and will empty it when it starts",
}
# What is counted in the status: of which things, and what is so of them. The result is then less than the table, or not certain.
LOSSES = {
    "lost_partitions": ("partition", "missing with all rows in them, because their files are: {lost_names}"),
    "foreign_partitions": ("partition", "left out, because another server has the rows of foreign tables: {foreign_names}"),
    "undefined_partitions": ("partition", "left out, because the catalog does not have all of their columns: {undefined_names}"),
    "missing_blocks": ("block", "missing from the middle of the table, with all rows in them"),
    "cut_off_blocks": ("block", "missing from the end of the table, by {cut_off_by}"),
    "gone_blocks": ("block", "gone, so rows may be missing: the file was truncated while it was being read"),
    "invalid_values": ("value", "not valid for the type: printed as bytes in hex, or as a missing enum label"),
    "torn_pages": ("torn page", "skipped: the server was writing them each time they were read"),
    "wrong_checksums": ("page", "with a wrong checksum; the rows in them are printed as stored"),
    "toast_checksums": ("TOAST page", "with a wrong checksum; the values in them are printed as stored"),
    "undecided_rows": ("row", "in the result although a value that the condition needs could not be read"),
    "unknown_rows": ("row", "of unknown status: whether they are visible is not known"),
    "future_rows": ("row", "of transactions later than the next one: a server does not show them"),
    "unread_pages": ("page", "could not be read; run leadline page check for details"),
    "unread_rows": ("row", "could not be read"),
    "unread_values": ("value", "could not be read"),
}


def is_whole(status: RowsStatus) -> bool:
    """Whether the rows are all there is, and all of them are certain."""
    return not status["catalog_damage"] and not any(_number(status, key) for key in LOSSES)


def _number(status: RowsStatus, key: str) -> int:
    return int(status[key])  # type: ignore[literal-required]


def losses(status: RowsStatus) -> list[str]:
    """What is lost of the table itself, a line each."""
    return [_loss(status, key) for key in LOSSES if _number(status, key)]


def _loss(status: RowsStatus, key: str) -> str:
    thing, what = LOSSES[key]
    return f"{count(_number(status, key), thing)} {what.format_map(status)}"


def lines(about: RowsDescription, status: RowsStatus, around: Condition | None) -> Iterator[str]:
    """For stderr."""
    for remark in around["remarks"] if around else []:
        yield condition.text(remark)
    if about["unknown"]:
        yield f"note: printed as hex, because the type is unknown: {', '.join(about['unknown'])}"
    if (number := status["unconverted_characters"]) and about["encoding"]:
        yield f"warning: {unconverted(number, about['encoding'])}"
    if about["virtual"]:
        yield f"note: omitted, because virtual generated columns are not stored: {', '.join(about['virtual'])}"
    if about["unlogged"] and around and around["server"] != "stopped":
        yield f"note: this is an unlogged table: {UNLOGGED[around['server'] == 'running']}"
    for line in status["catalog_damage"]:
        yield f"warning: the catalog is damaged: {line}"
    for key in LOSSES:
        if _number(status, key):
            yield f"warning: {_loss(status, key)}"
            if key == "unknown_rows":
                yield from (f"  reason: {why}" for why in status["unknown_why"])
    if number := status["zero_pages"]:  # a server that did not stop may just not have written them yet
        yield f"note: {count(number, 'page')} of only zeros before pages in use: never used, or lost ({status['zeros_at']})"
    yield from unreadable.lines(status)
    if number := status["vacuumed_values"]:
        yield f"note: {count(number, 'TOAST value')} of dead rows have already been removed by VACUUM"
