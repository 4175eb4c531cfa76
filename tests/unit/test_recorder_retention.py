"""What a recorder keeps and removes: never above its limit, never the piece that is written, and nothing because of a wrong clock."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from leadline.recorder.moments import Moment
from leadline.recorder.pieces import Piece, Pieces, gaps, new_name, read_piece, used_bytes
from leadline.recorder.retention import (
    HOLD_S,
    LEAST_ESTIMATE,
    Level,
    estimate,
    expired,
    held_s,
    in_excess,
    largest_piece,
    step_s,
    to_shrink,
)  # fmt: skip
from leadline.recorder.status import others
from leadline.units import MB
from recorded_pieces import BOOT, TS_0, WALL_0, small_piece

DAY_S = 86_400


def later(seconds: float, *, set_by: float = 0, boot: str = BOOT) -> Moment:
    return Moment(WALL_0 + round((seconds + set_by) * 1e9), TS_0 + round(seconds * 1e9), boot)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for number in range(6):
        small_piece(tmp_path, number + 1, WALL_0 + number * 600 * 10**9, size=(number + 1) * MB)
    return tmp_path


def test_pieces_are_read_in_the_order_in_which_they_were_made(directory: Path) -> None:
    small_piece(directory, 7, WALL_0 - 10**15)  # the clock was set back by days
    found = Pieces(directory).read()
    assert [piece.number for piece in found] == [1, 2, 3, 4, 5, 6, 7] and found[-1].name < found[0].name
    assert found[1].bytes == used_bytes(found[1].path) == pytest.approx(2 * MB, abs=64 << 10)
    assert in_excess(found, 0, 20 * MB)[0].number == 1, "the oldest, not the one with the lowest name"


def test_age_counts_from_the_end_of_a_piece(directory: Path) -> None:
    found = Pieces(directory).read()
    assert [p.number for p in expired(found, later(DAY_S + 1200), DAY_S)] == [1]
    assert [p.number for p in expired(found, later(DAY_S + 1201), DAY_S)] == [1, 2]
    assert expired(found, later(DAY_S), DAY_S) == []


def test_the_oldest_go_until_the_rest_and_the_next_fit(directory: Path) -> None:
    found = Pieces(directory).read()
    assert [p.number for p in in_excess(found, 2 * MB, 30 * MB)] == []
    assert [p.number for p in in_excess(found, 4 * MB, 20 * MB)] == [1, 2, 3]
    assert len(in_excess(found, 50 * MB, 20 * MB)) == 6
    for _ in range(200):
        room, limit = random.randrange(10 * MB), random.randrange(40 * MB)
        gone = in_excess(found, room, limit)
        assert gone == found[: len(gone)]
        assert sum(p.bytes for p in found[len(gone) :]) <= max(0, limit - room)


LEVELS = (Level(1, 6 * 3600), Level(60, 3 * DAY_S))


def three_levels(minutes: int = 2, seconds: int = 3, fine: int = 5) -> list[Piece]:
    """So many pieces of each level: of a day in 3 MB, of an hour in 4 MB, of ten minutes in 5 MB; the first begins with a whole day."""
    found, at, number = list[Piece](), DAY_S * (WALL_0 // 10**9 // DAY_S), 1
    for span_s, lasts, size, many, of in ((60, DAY_S, 3, minutes, 144), (1, 3600, 4, seconds, 6), (0, 600, 5, fine, 1)):
        for _ in range(many):
            begin, end, last = at * 10**9, (at + lasts) * 10**9, number + of - 1
            piece = Piece(
                Path(f"{number}.leadline"), number, begin, end, begin, end, size * MB, "complete", "1@1", BOOT, last=last, span_s=span_s,
            )  # fmt: skip
            found.append(piece)
            at, number = at + lasts, last + 1
    return found


def removed(pieces: list[Piece], room: int, limit: int) -> list[tuple[int, int]]:
    """Span and number of each."""
    return [(piece.span_s, piece.number) for piece in in_excess(pieces, room * MB, limit * MB, LEVELS)]


def test_the_oldest_detail_goes_before_coarse_rows() -> None:
    pieces = three_levels()  # 6 + 12 + 25 MB: numbers 1, 145; 289, 295, 301; 307 to 311
    assert removed(pieces, 0, 43) == []
    assert removed(pieces, 0, 42) == [(0, 307)], "not the oldest piece, which has rows of a minute"
    assert removed(pieces, 2, 36) == [(0, 307), (0, 308)]
    assert removed(pieces, 0, 30) == [(0, 307), (0, 308), (1, 289)], "detail has half of it: rows of a second are next"
    assert removed(pieces, 0, 21) == [(0, 307), (0, 308), (0, 309), (1, 289), (1, 295)]
    assert removed(three_levels(seconds=1), 0, 18) == [(0, 295), (0, 296), (0, 297), (0, 298)]


def test_months_of_coarse_rows_leave_room_for_detail() -> None:
    pieces = three_levels(minutes=30, seconds=1, fine=2)  # 90 + 4 + 10 MB
    assert removed(pieces, 5, 106) == [(60, 1)], "detail, which coarse rows are made of, has less than half"
    assert removed(pieces, 5, 100) == [(60, 1), (60, 145), (60, 289)]


def test_a_level_loses_something_only_while_each_finer_one_has_its_share() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        pieces = three_levels(rng.randrange(12), rng.randrange(12), rng.randrange(12))
        room, limit = rng.randrange(10 * MB), rng.randrange(1 * MB, 60 * MB)
        gone = in_excess(pieces, room, limit, LEVELS)
        left = {span_s: [p for p in pieces if p.span_s == span_s and p not in gone] for span_s in (0, 1, 60)}
        used = {span_s: sum(p.bytes for p in of) for span_s, of in left.items()}
        assert sum(used.values()) <= max(0, limit - room)
        for span_s, of in left.items():
            level = [p for p in pieces if p.span_s == span_s]
            assert of == level[len(level) - len(of) :], "the oldest of each level"
        lost = {p.span_s for p in gone}
        if lost & {1, 60} and left[0]:
            assert used[0] + room <= limit // 2
        if 60 in lost and left[1]:
            assert used[1] <= limit // 4


def test_what_would_soon_be_removed_becomes_coarse_before_its_age() -> None:
    pieces = three_levels()

    def shrunk(room: int, limit: int, apart: tuple[str, ...] = ()) -> tuple[int, list[int]] | None:
        due = to_shrink(pieces, room * MB, limit * MB, LEVELS, apart)
        return None if due is None else (due[0].span_s, [piece.number for piece in due[1]])

    assert shrunk(5, 48) is None, "all fits"
    assert shrunk(5, 47) == (1, [307, 308]), "down to half of it: 25 + 5 MB, of which 23.5 may stay"
    assert shrunk(5, 20) == (1, [307, 308, 309, 310]), "20 MB too much, and the rest"
    assert shrunk(5, 47, ("307.leadline",)) == (1, [308, 309])
    pieces = three_levels(fine=1)
    assert shrunk(5, 27) == (60, [289, 295]), "rows of a second, which have 12 MB of 6.75"
    pieces = three_levels(minutes=9, seconds=1, fine=1)
    assert shrunk(5, 40) is None, "of rows of a minute nothing is coarser: the oldest of them are removed"
    pieces = three_levels(fine=9)
    assert shrunk(5, 30) == (1, [307, 308, 309, 310, 311, 312]), "at most an hour at once"
    assert to_shrink(pieces, 5 * MB, 30 * MB, ()) is None


def test_the_next_piece_is_expected_as_large_as_the_largest_of_the_last(directory: Path) -> None:
    found = Pieces(directory).read()
    assert estimate(found, 600, 1000 * MB) == pytest.approx(6 * MB * 1.25, rel=0.02)
    assert estimate(found, 60, 1000 * MB) == LEAST_ESTIMATE
    assert estimate(found, 6000, 100 * MB) == largest_piece(100 * MB) == 25 * MB
    assert estimate([*found, *three_levels(1, 2, 0)], 600, 1000 * MB) == estimate(found, 600, 1000 * MB), "coarse ones say nothing of it"


@pytest.mark.parametrize("set_by", [3600.0, -3600.0, 10 * 365 * DAY_S])
def test_a_clock_that_is_set_removes_nothing_for_a_day(directory: Path, set_by: float) -> None:
    found = Pieces(directory).read()
    before, after = later(3600), later(3601, set_by=set_by)
    assert step_s(before, after) == pytest.approx(set_by)
    held = held_s(0, before, after, found, DAY_S)
    assert held == HOLD_S
    held = held_s(held, after, later(3601 + HOLD_S / 2, set_by=set_by), found, DAY_S)
    assert held == pytest.approx(HOLD_S / 2)
    assert held_s(held, later(0), later(HOLD_S), found, DAY_S) == 0


def test_a_clock_that_is_slewed_or_a_host_that_sleeps_is_no_step(directory: Path) -> None:
    found = Pieces(directory).read()
    assert held_s(0, later(0), later(600, set_by=2), found, DAY_S) == 0
    assert held_s(0, later(0), later(30 * DAY_S), found, DAY_S) == 0, "suspended: the time has passed"


def test_a_host_that_starts_with_a_wrong_clock_removes_nothing(directory: Path) -> None:
    found = Pieces(directory).read()
    assert held_s(0, later(3600), later(3700, boot="next"), found, DAY_S) == 0
    assert held_s(0, later(3600), later(900 * DAY_S, boot="next"), found, DAY_S) == HOLD_S
    assert held_s(0, None, later(900 * DAY_S), found, DAY_S) == HOLD_S
    assert held_s(HOLD_S, later(0), later(5, boot="next"), found, DAY_S) == HOLD_S, "a restart does not end it"


def test_a_piece_that_is_removed_is_gone_in_one_step(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = Pieces(directory)
    first = pieces.read()[0]

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        pieces.remove(first)
    monkeypatch.undo()
    assert [piece.number for piece in Pieces(directory).read()] == [2, 3, 4, 5, 6]
    assert others(directory) == []
    Pieces(directory).tidy()
    assert len(list(directory.iterdir())) == 5


def test_a_piece_that_somebody_else_removed_is_no_error(directory: Path) -> None:
    pieces = Pieces(directory)
    first = pieces.read()[0]
    shutil.rmtree(first.path)
    pieces.remove(first)
    assert [piece.number for piece in pieces.known()] == [2, 3, 4, 5, 6]


def test_foreign_files_are_named_and_left_alone(directory: Path) -> None:
    (directory / "notes.txt").write_text("mine")
    (directory / "friday.leadline").mkdir()
    (directory / "20261128T030000Z.leadline").write_text("a file")
    (directory / "20261128T040000Z.leadline").symlink_to(directory / "friday.leadline")
    assert others(directory) == ["20261128T030000Z.leadline", "20261128T040000Z.leadline", "friday.leadline", "notes.txt"]
    pieces = Pieces(directory)
    for piece in pieces.read():
        pieces.remove(piece)
    pieces.tidy()
    assert len(list(directory.iterdir())) == 4


def test_a_piece_that_had_not_begun_is_tidied_and_a_damaged_one_is_kept(directory: Path) -> None:
    (directory / "20991128T030000Z.leadline" / "tick").mkdir(parents=True)
    first = Pieces(directory).read()[0]
    (first.path / "manifest.json").write_text("")  # as a full disk leaves it
    Pieces(directory).tidy()
    found = read_piece(first.path)
    assert found.status == "damaged" and found.bytes > MB - 65536
    assert len(Pieces(directory).read()) == 6
    assert in_excess(Pieces(directory).read(), 0, 20 * MB)[0] == found, "it takes room, and goes as the others do"


def test_gaps_are_told_with_their_reason(tmp_path: Path) -> None:
    def at(second: float) -> int:
        return WALL_0 + round(second * 1e9)

    small_piece(tmp_path, 1, at(0), 10)
    small_piece(tmp_path, 2, at(11), 10)
    small_piece(tmp_path, 3, at(30), 10, status="failed", process="2@1")
    small_piece(tmp_path, 4, at(45), 10, process="2@1")
    found = gaps(Pieces(tmp_path).read())
    assert [(round(gap.seconds, 3), gap.switch) for gap in found] == [(1, True), (9, False), (5, False)]
    assert found[1].why == "no recorder ran" and "error" in found[2].why
    killed = [replace(piece, status="interrupted") for piece in Pieces(tmp_path).read()]
    assert {gap.why for gap in gaps(killed)} == {"the recorder was killed"}


def test_a_name_that_is_taken_is_not_used_again() -> None:
    first = new_name(WALL_0, [])
    assert first == "20251009T085320Z.leadline"
    second = new_name(WALL_0 + 5, [first])
    assert second == "20251009T085320Z-2.leadline" and new_name(WALL_0, [first, second]) == "20251009T085320Z-3.leadline"
