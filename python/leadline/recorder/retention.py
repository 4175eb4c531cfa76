"""What of the pieces is removed: whole ones, by age the oldest first, by size the oldest detail first; never the one that is being written.

By age nothing is removed while the wall clock is in doubt. One wrong reading would make everything look old at once, and what was removed
cannot be had again: a day is left to notice and to set the clock right. The limit of size holds all the time.

Each level has a share of the size: the finest half, the next half of the rest, the coarsest what is left. What does not fit comes from the
finest level above its share. Without shares, months of coarse rows would leave no room for the detail that coarse rows are made of.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from leadline.recorder.moments import Moment
from leadline.recorder.pieces import Piece, is_switch
from leadline.units import MB

SECOND_S, MINUTE_S = 1, 60  # spans of the levels
GROUPS_S = {SECOND_S: 3600.0, MINUTE_S: 86_400.0}  # what becomes one piece: an hour, a day
PART = 6  # and never more than this part of the age at which it becomes coarse, which it would else pass by far
FIRST_ESTIMATE = 16 * MB  # of ten minutes at 100 Hz: nothing is known yet
LEAST_ESTIMATE = 1 * MB
MARGIN = 1.25
STEP_S = 60.0  # a clock that is set by less removes nothing that was not about to go
HOLD_S = 86_400.0


@dataclass(frozen=True)
class Level:
    """Pieces that ended longer than after_s ago become coarse, with one row for each span; those that begin in one group_s become one."""

    span_s: int
    after_s: float

    @property
    def group_s(self) -> float:
        return min(GROUPS_S[self.span_s], self.after_s / PART)


@dataclass(frozen=True)
class Limits:
    """keep_s: age of what is removed. max_bytes: of all pieces. free_bytes: what others on the disk shall have. levels: finest first."""

    keep_s: float
    max_bytes: int
    free_bytes: int
    levels: tuple[Level, ...] = ()


def estimate(pieces: Sequence[Piece], piece_s: float, max_bytes: int) -> int:
    """What the next piece will take: as much in its time as the largest of the last three, and a quarter more."""
    last = [piece for piece in pieces if not piece.span_s][-3:]
    rates = [p.bytes / (p.wall_to - p.wall_from) * 1e9 for p in last if p.wall_to - p.wall_from >= 1e9]
    expected = max(rates) * piece_s * MARGIN if rates else FIRST_ESTIMATE
    return min(max(LEAST_ESTIMATE, int(expected)), largest_piece(max_bytes))


def largest_piece(max_bytes: int) -> int:
    """A piece that grows larger is ended early: it could only be removed as a whole."""
    return max_bytes // 4


def expired(pieces: Sequence[Piece], now: Moment, keep_s: float) -> list[Piece]:
    """Those that ended longer ago than keep_s."""
    return [piece for piece in pieces if piece.wall_to < now.wall_ns - keep_s * 1e9]


def in_excess(pieces: Sequence[Piece], room: int, max_bytes: int, levels: Sequence[Level] = ()) -> list[Piece]:
    """The oldest detail, until what is left and `room` for the one that is being written fit into max_bytes."""
    left, found = list(pieces), list[Piece]()
    total = _total(left) + room
    while left and total > max_bytes:
        span_s, _ = _yielding(left, room, max_bytes, levels)
        gone = next(piece for piece in left if piece.span_s == span_s)
        left.remove(gone)
        found.append(gone)
        total -= gone.bytes
    return found


def to_shrink(
    pieces: Sequence[Piece], room: int, max_bytes: int, levels: Sequence[Level], apart: Collection[str] = ()
) -> tuple[Level, list[Piece]] | None:
    """What becomes coarse before its age, as it would soon be removed: the oldest group of the level that yields, down to its share.

    room: of what is being written, and of what comes next. apart: names of those that cannot become coarse.
    """
    if not pieces or _total(pieces) + room <= max_bytes:
        return None
    span_s, above = _yielding(pieces, room, max_bytes, levels)
    level = dict(zip((0, *(level.span_s for level in levels)), levels)).get(span_s)
    if level is None:  # the coarsest
        return None
    group = list[Piece]()
    for piece in _oldest_group([piece for piece in pieces if piece.name not in apart], span_s, level, math.inf):
        if _total(group) >= above:
            break
        group.append(piece)
    return (level, group) if group else None


def _yielding(pieces: Sequence[Piece], room: int, max_bytes: int, levels: Sequence[Level]) -> tuple[int, int]:
    """The span of the level that gives what does not fit, and by how much it is above its share. There is a piece of it."""
    used = dict.fromkeys(sorted({0, *(level.span_s for level in levels), *(piece.span_s for piece in pieces)}), 0)
    for piece in pieces:
        used[piece.span_s] += piece.bytes
    there, share = {piece.span_s for piece in pieces}, max_bytes
    used[0] += room
    for span_s in list(used)[:-1]:
        share //= 2
        if span_s in there and used[span_s] > share:
            return span_s, used[span_s] - share
    return max(there), max(0, used[max(there)] - share)


def _total(pieces: Sequence[Piece]) -> int:
    return sum(piece.bytes for piece in pieces)


def to_coarsen(pieces: Sequence[Piece], now: Moment, levels: Sequence[Level]) -> tuple[Level, list[Piece]] | None:
    """The oldest group of pieces that is old enough for the next level, as a whole; None if there is none."""
    finer = 0
    for level in levels:
        if group := _oldest_group(pieces, finer, level, now.wall_ns - level.after_s * 1e9):
            return level, group
        finer = level.span_s
    return None


def _oldest_group(pieces: Sequence[Piece], finer: int, level: Level, limit: float) -> list[Piece]:
    """Of the pieces with rows of `finer` that follow each other, those of one group_s that is over at `limit`.

    Gaps that are more than the change of a piece stay gaps between pieces, which --status lists.
    """
    group_ns, group = round(level.group_s * 1e9), list[Piece]()
    for piece in pieces:
        fits = piece.span_s == finer and piece.number > 0 and piece.ts_from is not None and piece.wall_to < limit
        if group and not (fits and is_switch(group[-1], piece) and _slot(piece, group_ns) == _slot(group[-1], group_ns)):
            break
        if fits and (_slot(piece, group_ns) + 1) * group_ns <= limit:
            group.append(piece)
    return group


def _slot(piece: Piece, group_ns: int) -> int:
    return piece.wall_from // max(1, group_ns)


def step_s(before: Moment, now: Moment) -> float:
    """By how much the wall clock was set between the two; 0 when that cannot be told, as over a restart of the host."""
    if not before.boot or before.boot != now.boot:
        return 0.0
    return ((now.wall_ns - before.wall_ns) - (now.boot_ns - before.boot_ns)) / 1e9


def held_s(left_s: float, before: Moment | None, now: Moment, pieces: Sequence[Piece], keep_s: float) -> float:
    """For how long nothing is removed by age. left_s: what was left of it at `before`, the look before this one; it counts down by itself.

    The clock is in doubt when it was set, and when all pieces would go at once: after a start of the host with a wrong clock.
    """
    if before is not None and abs(step_s(before, now)) > STEP_S:
        return HOLD_S
    if before is not None and left_s > 0:
        passed = (now.boot_ns - before.boot_ns) / 1e9 if before.boot == now.boot else 0.0
        return max(0.0, left_s - max(0.0, passed))
    if (before is None or before.boot != now.boot) and len(pieces) > 1 and len(expired(pieces, now, keep_s)) == len(pieces):
        return HOLD_S
    return 0.0
