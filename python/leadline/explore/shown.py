"""A capture as the page shows it: what each question is answered with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline.explore.address import State, read_state, wrong
from leadline.explore.answers import Explorer
from leadline.explore.growth import Growth


@dataclass(frozen=True)
class Shown:
    """A capture that the page shows, and what its windows are compared with. earlier: of a window of a recorder, others that it can be
    compared with, in words, and the names of both. shift_ns: how much later the same moment lies in what it is compared with."""

    explorer: Explorer
    growth: Growth
    earlier: Sequence[tuple[str, str]] = ()
    shift_ns: int = 0

    @classmethod
    def of(cls, explorer: Explorer, other: Explorer | None = None, factors: Sequence[str] = ()) -> Shown:
        growth = Growth(explorer, other or explorer, factors)
        if factors:
            growth.check_factors()
        return cls(explorer, growth)

    def close(self) -> None:
        self.explorer.capture.close()
        if self.growth.is_other:
            self.growth.there.capture.close()

    def state(self, query: str) -> State:
        here, there = self.explorer, self.growth.there
        return read_state(query, here.ts_from, here.ts_to, (there.ts_from, there.ts_to), self.shift_ns)

    def about(self, _query: str) -> dict[str, Any]:
        other = self.growth.there.named() if self.growth.is_other else None
        earlier = [{"words": words, "window": window} for words, window in self.earlier]
        return self.explorer.about() | {"other": other, "earlier": earlier}

    def ranking(self, query: str) -> dict[str, Any]:
        state = self.state(query)
        return self.explorer.ranking(state.asked, state.by)

    def compare(self, query: str) -> dict[str, Any]:
        state = self.state(query)
        if state.versus is None:
            raise wrong("no window to compare with is given", "vs=12.5-30")
        return self.growth.between(state.asked, state.by, state.versus)


ANSWERS: Mapping[str, Callable[[Shown, str], Any]] = {
    "about": Shown.about,
    "marks": lambda shown, query: shown.explorer.marks(),
    "findings": lambda shown, query: shown.explorer.findings(),
    "findings-of": lambda shown, query: shown.explorer.findings_of(shown.state(query).asked),
    "time": lambda shown, query: shown.explorer.over_time(shown.state(query).asked),
    "ranking": Shown.ranking,
    "compare": Shown.compare,
    "locks": lambda shown, query: shown.explorer.locks(shown.state(query).asked),
}
