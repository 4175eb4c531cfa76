"""In which order old rows are rewritten, so that as many as can stay on their page (HOT): numbers only, no server.

A row stays on its page when the page has room for it. What an update leaves behind becomes room again once no snapshot sees it
and the server prunes the page. So a few rows of each page are rewritten, as many as fit, then the next few of each; where nothing
fits, some move to other pages first and make room for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

LINE_POINTER = 4
MOVED_SHARE = 8  # where there is no room, one row in so many leaves its page
Rows = list[tuple[int, int, int, int]]  # (line pointer, bits of reasons, bytes, about its bytes rewritten)


@dataclass
class Page:
    """A page with old rows. room: bytes for tuples and line pointers. rows: those still to be rewritten."""

    block: int
    room: int
    rows: Rows
    moved_at_once: int = field(init=False)

    def __post_init__(self) -> None:
        self.moved_at_once = max(1, -(-len(self.rows) // MOVED_SHARE))


def aligned(size: int) -> int:
    return -(-size // 8) * 8


def take(page: Page, *, can_prune: bool) -> list[int]:
    """The next rows of a page to be rewritten: what fits; where nothing does, some, or all when no room will come back."""
    taken = 0
    while taken < len(page.rows) and page.room >= (need := aligned(page.rows[taken][3]) + LINE_POINTER):
        page.room -= need
        taken += 1
    if taken == 0:
        taken = page.moved_at_once if can_prune else len(page.rows)
    now, page.rows = page.rows[:taken], page.rows[taken:]
    if can_prune:
        page.room += sum(aligned(size) for _, _, size, _ in now)
    return [row[0] for row in now]


def passes(pages: list[Page], *, can_prune: bool) -> Iterator[list[tuple[int, int]]]:
    """Row after row of some pages, as (block, line pointer): each pass visits each page with old rows once."""
    while left := [page for page in pages if page.rows]:
        yield [(page.block, lp) for page in left for lp in take(page, can_prune=can_prune)]


def blocks_between(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The blocks of some rows as ranges, first and last of each."""
    ranges: list[tuple[int, int]] = []
    for block in sorted({block for block, _ in rows}):
        if ranges and ranges[-1][1] == block - 1:
            ranges[-1] = (ranges[-1][0], block)
        else:
            ranges.append((block, block))
    return ranges
