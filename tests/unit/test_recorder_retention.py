"""What a recorder keeps and removes: never above its limit, never the piece that is written, and nothing because of a wrong clock."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from leadline.recorder.moments import Moment
from leadline.recorder.pieces import Pieces, gaps, new_name, read_piece, used_bytes
from leadline.recorder.retention import HOLD_S, LEAST_ESTIMATE, estimate, expired, held_s, in_excess, largest_piece, step_s
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


def test_the_next_piece_is_expected_as_large_as_the_largest_of_the_last(directory: Path) -> None:
    found = Pieces(directory).read()
    assert estimate(found, 600, 1000 * MB) == pytest.approx(6 * MB * 1.25, rel=0.02)
    assert estimate(found, 60, 1000 * MB) == LEAST_ESTIMATE
    assert estimate(found, 6000, 100 * MB) == largest_piece(100 * MB) == 25 * MB


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
