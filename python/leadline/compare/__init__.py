"""`leadline compare`: two captures, or two runs of the logbook, side by side; first what they were measured on, then where the time moved.

environment.py finds the facts of each, leadline.lab.comparable says which of them must agree, moved.py has the figures, text.py prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from leadline.compare.environment import Side
from leadline.compare.moved import Moved, moved
from leadline.errors import LeadlineError
from leadline.figures import count
from leadline.lab.comparable import Difference, differences, is_named

NOT_COMPARABLE, NONE = "not comparable", "none"
HOW_TO_PROVE = "leadline experiment and leadline study repeat both in random order"


@dataclass(frozen=True)
class Conditions:
    """environment: what is not alike, most important first. measured: what was measured in another way, a sentence each. notes: about the
    factors. word: why there is no verdict, which one measurement of each never allows."""

    environment: tuple[Difference, ...]
    measured: tuple[str, ...]
    notes: tuple[str, ...]
    word: str
    text: str

    @property
    def comparable(self) -> bool:
        return self.word != NOT_COMPARABLE

    def as_dict(self) -> dict[str, Any]:
        return {
            "comparable": self.comparable,
            "environment": [asdict(each) | {"refuses": each.refuses, "text": each.text} for each in self.environment],
            "measured_differently": list(self.measured), "notes": list(self.notes), "verdict": {"word": self.word, "text": self.text},
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison(Conditions):
    one: Side
    other: Side
    tables: tuple[Moved, ...]

    def as_dict(self) -> dict[str, Any]:
        tables = {table.key: table.grid.as_dicts() for table in self.tables}
        return {"one": self.one.as_dict(), "other": self.other.as_dict(), **super().as_dict(), "tables": tables}


def compare(one: Side, other: Side, factors: Sequence[str] = ()) -> Comparison:
    """factors: what was meant to differ. Raises LeadlineError for a factor that names no fact of either."""
    under = conditions(one, other, factors)
    return Comparison(under.environment, under.measured, under.notes, under.word, under.text, one, other, tuple(moved(one, other)))


def conditions(one: Side, other: Side, factors: Sequence[str] = ()) -> Conditions:
    """What may be said of the two, whatever their figures are. Raises LeadlineError as compare does."""
    known = {*one.facts, *other.facts}
    notes = []
    found = differences(one.facts, other.facts, one.kinds | other.kinds, factors)
    for factor in factors:
        named = [name for name in {*known, *(each.name for each in found)} if is_named(name, factor)]
        if not named:
            hint = "name a fact as it is printed (storage.data, cpu.model, kernel.release), or a setting (work_mem)"
            raise LeadlineError("usage", f"there is no fact {factor}", hint=hint, where="--factor")
        if not any(each.is_factor and is_named(each.name, factor) for each in found):
            notes.append(f"the factor {factor} does not differ")
    refusing = [each for each in found if each.refuses]
    word, text = NONE, f"no verdict: one measurement of each shows where the time moved, not that it would again; {HOW_TO_PROVE}"
    if refusing:
        word = NOT_COMPARABLE
        facts, do = count(len(refusing), "fact"), "does" if len(refusing) == 1 else "do"
        text = f"not comparable, so no verdict: {facts} that must agree {do} not. What was changed on purpose: --factor NAME"
    order = sorted(found, key=lambda each: not each.refuses)
    return Conditions(tuple(order), tuple(_measured(one, other)), tuple(notes), word, text)


def _measured(one: Side, other: Side) -> list[str]:
    """What was not measured in the same way."""
    out = []
    for name in dict.fromkeys((*one.measured, *other.measured)):
        a, b = one.measured.get(name, "none"), other.measured.get(name, "none")
        if a != b:
            out.append(f"{name}: {a} against {b}")
    lengths = [side.seconds for side in (one, other)]
    if all(lengths) and max(lengths) > 1.1 * min(lengths):
        out.append(f"length: {lengths[0]:,.3g} s against {lengths[1]:,.3g} s: what happens seldom may be in one of them alone")
    return out
