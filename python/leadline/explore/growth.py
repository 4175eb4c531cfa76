"""Two windows beside each other: the sessions active on average in each, by a dimension, and what may be said of the difference.

Both are averages over the seconds that were observed, so that windows of other lengths and captures of other rates have one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from leadline.compare import conditions
from leadline.compare.environment import Side, of_opened
from leadline.compare.text import said
from leadline.explore import queries
from leadline.explore.answers import Explorer
from leadline.explore.queries import Asked, OneOf, Value

OTHER_SESSIONS = "sessions are numbered anew in each capture: those of the two cannot be told to be the same"


class Growth:
    """there: what windows of `here` are compared with: the same capture, or another. factors: what was meant to differ."""

    def __init__(self, here: Explorer, there: Explorer, factors: Sequence[str] = ()) -> None:
        self.here, self.there, self.factors = here, there, factors
        self.is_other = there is not here

    def check_factors(self) -> None:
        """Raises LeadlineError for a factor that names no fact of either."""
        here, there = self._sides
        conditions(here, there, self.factors)

    def between(self, asked: Asked, by: str, window: tuple[int, int]) -> dict[str, Any]:
        """window: of `there`, on its clock."""
        other = Asked(*window, tuple((name, self._there(name, value)) for name, value in asked.filters))
        why = OTHER_SESSIONS if self.is_other and "session" in (by, *(name for name, _ in asked.filters)) else ""
        wholes = [queries.whole(asked), queries.whole(other)]
        sums = [explorer.rows(query)[0] for explorer, query in zip((self.here, self.there), wholes)]
        if not why and not all(of["observed_s"] for of in sums):
            why = "one of the two windows was not seen: no pass was made in it"
        asked_both = [queries.active(asked, by), queries.active(other, by)]
        rows = [] if why else self._rows(by, asked_both)
        listed = sorted(rows, key=lambda row: (-abs(row["change"]), row["label"]))[: queries.MOST_ROWS]
        one, two = (replace(side, seconds=of["observed_s"]) for side, of in zip(self._sides, sums))
        under = conditions(one, two, self.factors)
        refusing = [each for each in under.environment if each.refuses]
        both = ((self.here, asked, sums[0]), (self.there, other, sums[1]))
        return {
            "by": by,
            "windows": [_window(explorer, of, whole) for explorer, of, whole in both],
            "rows": sorted(listed, key=lambda row: (-row["change"], row["label"])),
            "there": len(rows),
            "why": why,
            "overlap": not self.is_other and asked.ts_from < other.ts_to and other.ts_from < asked.ts_to,
            "comparable": under.comparable,
            "text": under.text,
            "must_agree": list(said(refusing)),
            "measured": [*under.measured, *under.notes],
            "outline": self._outline(asked, other) if not why else None,
            "sql": [query.shown for query in asked_both],
        }

    def _outline(self, asked: Asked, other: Asked) -> dict[str, Any]:
        """The other window in the steps of this one, from its begin on, as far as this one reaches."""
        step_ns = self.here.step_ns(asked)
        until = min(other.ts_to, other.ts_from + asked.ts_to - asked.ts_from)
        part = replace(other, ts_to=until)
        spent, seen = queries.over_time(part, step_ns, self.there.counted_ns), queries.passes(part, step_ns)
        return {
            "length_s": (until - other.ts_from) / 1e9, "last": queries.last_step(part, step_ns), "passes": self.there.rows(seen),
            "rows": self.there.rows(spent), "sql": [spent.shown, seen.shown],
        }  # fmt: skip

    def _rows(self, by: str, both: list[queries.Query]) -> list[dict[str, Any]]:
        """Every value of either. Statements of two captures are the same if their texts are; a row has the key of this capture."""
        by_text = self.is_other and by == "statement"
        found: dict[str, dict[str, Any]] = {}
        for side, (explorer, query) in (("a", (self.here, both[0])), ("b", (self.there, both[1]))):
            for row in explorer.rows(query):
                label = explorer.label(by, row["key"])
                of = found.setdefault(label if by_text else row["key"], {"key": None, "label": label, "a": 0.0, "b": 0.0})
                of[side] += row["sessions"]
                if explorer is self.here:
                    of["key"] = row["key"]
        return [of | {"change": of["a"] - of["b"]} for of in found.values()]

    def _there(self, name: str, value: Value | OneOf) -> Value | OneOf:
        """The value of a filter in the numbers of the other capture."""
        if not self.is_other or name != "statement" or value == "":
            return value
        text = self.here.statements.get(str(value))
        return tuple(int(key) for key, other in self.there.statements.items() if text and other == text)

    @cached_property
    def _sides(self) -> list[Side]:
        sides = []
        for explorer in (self.here, self.there):
            with explorer.cursor() as capture:
                side = replace(of_opened(capture), capture=None)
            # Two windows of one capture: one host and one server, also in what is not known of them.
            sides.append(side if self.is_other else replace(side, facts={}, kinds=set()))
        return sides


def _window(explorer: Explorer, asked: Asked, whole: dict[str, Any]) -> dict[str, Any]:
    observed_s = whole["observed_s"]
    return {
        "name": explorer.capture.path.name,
        "from_s": (asked.ts_from - explorer.ts_from) / 1e9, "to_s": (asked.ts_to - explorer.ts_from) / 1e9,
        "observed_s": observed_s, "sessions": whole["seconds"] / observed_s if observed_s else None,
    }  # fmt: skip
