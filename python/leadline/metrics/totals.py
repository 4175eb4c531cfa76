"""Sums since the recorder was started, over all pieces, with a bounded number of series.

The waits of a server have names of its own, some 260; extensions make up more. The first MOST_WAITS names that come have series of their
own. The time of the others is in the event `other` of their class, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from leadline.recorder.evidence import Increase

MOST_WAITS = 400
MOST_EXPECTED = 300  # the others have room
NO_WAIT = ("CPU", "CPU")
MOST_CLASSES = 20
MOST_STATES = 20
LONGEST_NAME = 100
OTHER = "other"
MOST_OTHERS = 10_000  # names that are counted one by one


@dataclass
class Totals(Increase):
    """others: the waits that are part of `other`."""

    others: set[tuple[str, str]] = field(default_factory=set)

    def add(self, more: Increase) -> None:
        self.passes += more.passes
        self.missed += more.missed
        self.observed_ns += more.observed_ns
        self.cpu.update(more.cpu)
        for state, ns in more.states.items():
            self.states[state if state in self.states or len(self.states) < MOST_STATES else OTHER] += ns
        for wait, ns in sorted(more.waits.items()):
            self.waits[self._series(wait)] += ns

    def expect(self, waits: Iterable[tuple[str, str]]) -> None:
        """Has series for waits that may come. Prometheus takes the first value of a series for its start: what it holds is in no rate."""
        for wait_class, event in (NO_WAIT, *sorted(waits)):
            if len(self.waits) < MOST_EXPECTED:
                self.waits[self._series((wait_class, event))] += 0

    def _series(self, wait: tuple[str, str]) -> tuple[str, str]:
        """Its own, or the one for the rest of its class, or that for all the rest."""
        wait_class, event = wait[0][:LONGEST_NAME], wait[1][:LONGEST_NAME]
        if (wait_class, event) in self.waits:
            return wait_class, event
        classes = {known for known, _ in self.waits} - {OTHER}
        known_class = wait_class in classes or len(classes) < MOST_CLASSES
        if known_class and len(self.waits) - self._folded() < MOST_WAITS:
            return wait_class, event
        if len(self.others) < MOST_OTHERS:
            self.others.add((wait_class, event))
        return wait_class if known_class else OTHER, OTHER

    def _folded(self) -> int:
        """Series that are for the rest of a class."""
        return sum(event == OTHER for _, event in self.waits)


# Of waits and states, with those that are for the rest; all other labels are words of leadline.
MOST_SERIES = MOST_WAITS + MOST_CLASSES + 1 + MOST_STATES + 1
