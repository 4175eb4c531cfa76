"""When the passes of a sampler that polls are due."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from leadline.probes import pace

PERIOD = 100_000_000


class Clock:
    """A clock that stands unless somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 5_000_000_000
        monkeypatch.setattr(pace.time, "monotonic_ns", lambda: self.now)

    def stop(self) -> Any:
        stop = threading.Event()
        stop.wait = self._wait  # type: ignore[assignment]
        return stop

    def _wait(self, timeout: float | None = None) -> bool:
        self.now += round((timeout or 0) * 1e9) or 1
        return False


def test_each_period_has_one_pass_and_no_phase_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    start = clock.now
    made = list(itertools.islice(pace.passes(start, PERIOD, clock.stop()), 4000))
    assert made[0] == (start, 0)
    assert [(due - start) // PERIOD for due, _ in made] == list(range(4000))
    assert {missed for _, missed in made} == {0}
    phases = [0] * 4  # of a scheduler's tick of 4 ms
    for due, _ in made:
        phases[due % 4_000_000 // 1_000_000] += 1
    assert all(abs(n - 1000) < 140 for n in phases), phases  # five standard deviations


def test_periods_without_a_pass_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    start = clock.now
    seen = []
    for due, missed in itertools.islice(pace.passes(start, PERIOD, clock.stop()), 40):
        seen.append((due, missed))
        if len(seen) == 10:
            clock.now = start + 20 * PERIOD + PERIOD // 2  # the pass of period 9 took until the middle of period 20
    assert sum(missed for _, missed in seen) in (9, 10)  # 10 to 18, and 19 unless one more pass was made for it at once
    assert all(later > earlier for (earlier, _), (later, _) in itertools.pairwise(seen))
    assert (seen[-1][0] - start) // PERIOD == 39 + sum(missed for _, missed in seen)
