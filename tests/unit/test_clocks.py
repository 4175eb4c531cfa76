"""Wall times and boot times join to ts across a step and a slew of the wall clock, on a double of the clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.clocks import pieces, ts_of
from leadline.capture.reader import Capture

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
START = 5_000 * SECOND  # CLOCK_MONOTONIC
WALL = 1_760_000_000 * SECOND


@dataclass
class DoubleOfTheClock:
    """A wall clock that is set by `step` at moment `step_at`, and runs faster by `slew` from the start on. Suspended `asleep` ns there."""

    step: int = 0
    step_at: int = 0
    slew: float = 0.0
    asleep: int = 0

    def wall(self, ts: int) -> int:
        return WALL + ts - START + round((ts - START) * self.slew) + (self.step if ts >= self.step_at else 0)

    def boot(self, ts: int) -> int:
        return ts + 77 * SECOND + (self.asleep if ts >= self.step_at else 0)

    def capture(self, tmp_path: Path) -> SyntheticCapture:
        cap = SyntheticCapture(tmp_path)
        for second in range(61):
            ts = START + second * SECOND + second % 7 * 1_000_000  # rows are not exactly a second apart
            cap.add("clock", ts=ts, realtime_ns=self.wall(ts), boottime_ns=self.boot(ts), uncertainty_ns=100)
        return cap


def moments(clock: DoubleOfTheClock) -> list[int]:
    """Events all over the window, some before it and after it, none in the very second of the step."""
    found = [START - 90 * SECOND, START + 75 * SECOND, *(START + k * 1_370_000_003 for k in range(43))]
    return [ts for ts in found if not clock.step_at - SECOND <= ts <= clock.step_at + SECOND]


def in_sql(capture: Capture, walls: list[int]) -> dict[int, set[int]]:
    """The moments that the view gives for each wall time, as the meaning of its columns says."""
    rows = capture.rows(
        """select w, (ts_from + (w::hugeint - at_from) * (ts_to - ts_from) // (at_to - at_from))::bigint as ts
           from (select unnest(?::bigint[]) as w) join clock_piece on w >= at_from and w < at_to where clock = 'realtime'""",
        [walls],
    )
    found: dict[int, set[int]] = {wall: set() for wall in walls}
    for row in rows:
        found[row["w"]].add(row["ts"])
    return found


@pytest.mark.parametrize("slew", [0.0, 0.0005, -0.0005])
@pytest.mark.parametrize("step", [0, HOUR, -HOUR, SECOND // 4, -SECOND // 4])
def test_wall_times_join_across_a_step_and_a_slew(tmp_path: Path, step: int, slew: float) -> None:
    clock = DoubleOfTheClock(step, START + 30 * SECOND + 400_000_000 if step else 0, slew)
    worst = 0
    with clock.capture(tmp_path).open() as capture:
        known = pieces(capture, "realtime")
        of_view = in_sql(capture, [clock.wall(ts) for ts in moments(clock)])
        for ts in moments(clock):
            wall = clock.wall(ts)
            found = ts_of(known, wall, near_ts=ts - SECOND // 100)
            assert found is not None
            inside = START <= ts <= START + 60 * SECOND
            worst = max(worst, abs(found - ts)) if inside else worst
            assert any(abs(other - found) <= 1 for other in of_view[wall])
    assert worst <= 2, "ns, inside the window"


def test_a_time_that_the_wall_clock_never_showed_is_no_moment(tmp_path: Path) -> None:
    clock = DoubleOfTheClock(HOUR, START + 30 * SECOND)
    with clock.capture(tmp_path).open() as capture:
        known = pieces(capture, "realtime")
        jumped_over = WALL + 30 * SECOND + HOUR // 2
        assert ts_of([piece for piece in known if piece.ts_to - piece.ts_from < HOUR], jumped_over) is None


def test_a_time_shown_twice_is_decided_by_what_is_near(tmp_path: Path) -> None:
    clock = DoubleOfTheClock(-10 * SECOND, START + 30 * SECOND + 500_000_000)
    first, again = START + 25 * SECOND, START + 35 * SECOND
    assert clock.wall(first) == clock.wall(again)
    with clock.capture(tmp_path).open() as capture:
        known = pieces(capture, "realtime")
        assert [ts_of(known, clock.wall(first), near_ts=near) for near in (first - SECOND, again + SECOND)] == [first, again]
        assert ts_of(known, clock.wall(first)) == first
        assert in_sql(capture, [clock.wall(first)])[clock.wall(first)] >= {first, again}


def test_boot_times_join_across_a_suspend(tmp_path: Path) -> None:
    clock = DoubleOfTheClock(step_at=START + 30 * SECOND + 400_000_000, asleep=8 * HOUR)
    with clock.capture(tmp_path).open() as capture:
        known = pieces(capture, "boottime")
        for ts in moments(clock):
            assert ts_of(known, clock.boot(ts), near_ts=ts) == ts


