"""Rows and values that could not be read: which they are, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline._core.rows import Loss, RowScan, RowsStatus

OF_TABLE = ("ctid", "block", "column", "reason")
OF_PARTITIONED = ("partition", *OF_TABLE)
SHOWN = 20


def place(output: Path) -> Path:
    """The side table of an export."""
    return output.with_name(f"{output.stem}.unreadable.csv")


def write(path: Path, losses: list[Loss]) -> None:
    """The side table; none, not even an old one, where all could be read. Raises LeadlineError."""
    from leadline.errors import cannot_be_written
    from leadline.output import to_csv

    try:
        if losses:
            names = OF_PARTITIONED if any(loss["partition"] for loss in losses) else OF_TABLE
            path.write_text("".join(to_csv(names, ([dict(loss)[name] for name in names] for loss in losses))))
        else:
            path.unlink(missing_ok=True)
    except OSError as e:
        raise cannot_be_written("the list of unreadable data", e, path) from e


def as_rows(scan: RowScan) -> Iterator[dict[str, Any]]:
    """Behind the rows in JSON: ctid, column and `unreadable`, the reason. Asked for when all rows were read."""
    for loss in scan.status()["unreadable"]:
        partition = {"partition": loss["partition"]} if loss["partition"] else {}
        yield {**partition, "ctid": loss["ctid"], "block": loss["block"], "column": loss["column"], "unreadable": loss["reason"]}


def lines(status: RowsStatus) -> Iterator[str]:
    """For people."""
    losses = status["unreadable"]
    for loss in losses[:SHOWN]:
        where = filter(None, (loss["partition"], loss["ctid"] or f"block {loss['block']}", loss["column"]))
        yield f"unreadable: {' '.join(where)}: {loss['reason']}"
    if (more := len(losses) + status["unreadable_left_out"] - SHOWN) > 0:
        yield f"unreadable: {more:,} more: with -o FILE they are listed beside it"
