"""What is usual for a quantity at an hour of the day, learned from the days before, and above which value it is not.

Values are counted in classes, each 10 % wide, by hour. An hour that was seen on DAYS days is judged by itself; before that, by the last
values, as many as an hour has, and before there is a quarter of them, not at all. A value above the limit is not learned: an incident,
however long, teaches nothing. But what stays is the new usual: an hour that was mostly above its limit on DAYS days in a row.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

HOURS = 24
DAYS = 3
KEPT = 0.9  # of the weight of a day, when the next one comes
STEP, ZERO = math.log(1.1), 0.1  # width of a class; below ZERO classes are narrow in size, above it in proportion
# The quantile that tells how far values go, and how many times as far the limit is, as logarithms of a value and half of `least`. At first
# it leaves out more: an incident of 20 s may lie in the quarter of an hour of which nothing is known.
HIGH, FURTHER = 0.99, 2.2
HIGH_AT_FIRST, FURTHER_AT_FIRST = 0.97, 3.1
LEAST_RATIO = 1.5
RENEW = 60  # values after which the limit of the last values is computed anew


@dataclass(frozen=True)
class Judgement:
    """limit: None where nothing can be said yet; usual: the median; high: what all but one in a hundred are below, at first three."""

    limit: float | None = None
    usual: float = 0.0
    high: float = 0.0


@dataclass
class Hour:
    """days: seen and learned. counts: the weight of each class, of which a day has 1. strange: days in a row, mostly above the limit.

    coming: the counts that take the place of `counts` when the hour begins again.
    """

    days: int = 0
    counts: dict[int, float] = field(default_factory=dict)
    strange: int = 0
    coming: dict[int, float] = field(default_factory=dict)

    def learn(self, inside: Counter[int], outside: Counter[int]) -> None:
        """One day of it."""
        total = inside.total() + outside.total()
        if outside.total() * 2 <= total:
            self.strange, self.coming = 0, {}
            self.days += 1
            self.counts = {c: weight * KEPT for c, weight in self.counts.items() if weight * KEPT > 1e-4}
            for c, n in inside.items():
                self.counts[c] = self.counts.get(c, 0.0) + n / inside.total()
            return
        self.strange += 1
        if self.strange >= DAYS:
            self.coming = {c: DAYS * n / total for c, n in (inside + outside).items()}

    def begin(self) -> None:
        if self.coming:
            self.days, self.counts, self.strange, self.coming = DAYS, self.coming, 0, {}


class Usual:
    """Of one quantity. least: what is never unusual above the median. recent: values that the judgement needs where the hour is new."""

    def __init__(self, least: float, recent: int) -> None:
        self.least, self.recent = least, recent
        self.hours = [Hour() for _ in range(HOURS)]
        self._last: deque[int] = deque(maxlen=recent)
        self._of_last: Counter[int] = Counter()
        self._inside: Counter[int] = Counter()
        self._outside: Counter[int] = Counter()
        self._known: dict[int, Judgement] = {}  # by hour
        self._by_last, self._age = Judgement(), RENEW

    def judge(self, hour: int, near: int) -> Judgement:
        """near: the hour beside it that is close, or the same one: what begins some minutes earlier than on other days is usual."""
        if self.hours[hour].days < DAYS:
            return self._judge_by_last()
        judged = self._judge_by(hour)
        if near == hour or self.hours[near].days < DAYS:
            return judged
        beside = self._judge_by(near)
        return beside if (beside.limit or 0.0) > (judged.limit or 0.0) else judged

    def learn(self, value: float, judged: Judgement) -> bool:
        """Takes a value of the hour that is running. Whether it is above the limit."""
        c = class_of(value)
        if judged.limit is not None and value > judged.limit:
            self._outside[c] += 1
            return True
        self._inside[c] += 1
        if len(self._last) == self.recent:
            self._of_last[self._last[0]] -= 1
        self._last.append(c)
        self._of_last[c] += 1
        self._age += 1
        return False

    def end_hour(self, hour: int, following: int) -> None:
        """The hour is over, and another one begins. Of less than a twelfth of an hour, nothing is learned."""
        if (self._inside.total() + self._outside.total()) * 12 >= self.recent:
            self.hours[hour].learn(self._inside, self._outside)
        self._inside, self._outside = Counter(), Counter()
        self.hours[following].begin()
        self._known.clear()

    def as_new(self) -> Usual:
        """For a quantity that comes for the first time: it was nothing whenever this one was seen."""
        made = Usual(self.least, self.recent)
        made.hours = [Hour(hour.days, {0: float(hour.days)} if hour.days else {}) for hour in self.hours]
        made._last.extend([0] * len(self._last))
        made._of_last[0] = len(self._last)
        made._inside[0] = (self._inside + self._outside).total()
        return made

    def as_dict(self) -> list[dict[str, Any]]:
        return [
            {"days": h.days, "strange": h.strange, "counts": _as_text(h.counts), "coming": _as_text(h.coming)} for h in self.hours
        ]  # fmt: skip

    @staticmethod
    def read(stored: Iterable[Mapping[str, Any]], least: float, recent: int) -> Usual:
        """Raises ValueError, TypeError or KeyError for what as_dict did not make."""
        found = Usual(least, recent)
        found.hours = [Hour(int(h["days"]), _as_counts(h["counts"]), int(h["strange"]), _as_counts(h["coming"])) for h in stored]
        if len(found.hours) != HOURS or any(hour.days > 0 and not hour.counts for hour in found.hours):
            raise ValueError("not the hours of a day")
        return found

    def _judge_by(self, hour: int) -> Judgement:
        if hour not in self._known:
            self._known[hour] = judgement(self.hours[hour].counts, self.least, HIGH, FURTHER)
        return self._known[hour]

    def _judge_by_last(self) -> Judgement:
        if len(self._last) * 4 < self.recent:
            return Judgement()
        if self._age >= RENEW:
            self._by_last, self._age = judgement(self._of_last, self.least, HIGH_AT_FIRST, FURTHER_AT_FIRST), 0
        return self._by_last


def _as_text(counts: Mapping[int, float]) -> dict[str, float]:
    return {str(c): round(weight, 5) for c, weight in counts.items()}


def _as_counts(stored: Mapping[str, Any]) -> dict[int, float]:
    return {int(c): float(weight) for c, weight in stored.items()}


def class_of(value: float) -> int:
    return int(math.log1p(max(0.0, value) / ZERO) / STEP)


def value_of(c: int) -> float:
    """The middle of a class; of the first one nothing."""
    return ZERO * math.expm1((c + 0.5) * STEP) if c else 0.0


def judgement(counts: Mapping[int, float], least: float, share: float, further: float) -> Judgement:
    """counts: the weight of each class. Values that are often twice the median are rarely four times it: so the limit is a power."""
    values = sorted((value_of(c), weight) for c, weight in counts.items() if weight > 0)
    usual, high = quantile(values, 0.5), quantile(values, share)
    few = least / 2  # below it, values are too few to be far from each other in proportion
    ratio = max(((high + few) / (usual + few)) ** further, LEAST_RATIO)
    return Judgement(max((usual + few) * ratio - few, usual + least), usual, high)


def quantile(values: list[tuple[float, float]], share: float) -> float:
    """values: with their weights, in order."""
    wanted = share * sum(weight for _, weight in values)
    for value, weight in values:
        wanted -= weight
        if wanted <= 0:
            return value
    return values[-1][0] if values else 0.0
