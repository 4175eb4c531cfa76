"""Runs pairs of legs, one bare and one with the variant, in the order of paired.leg_order, and compares what they measured."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from leadline.lab.paired import Ratio, leg_order, pair_up
from leadline.lab.signed_rank import signed_rank_ratio

T = TypeVar("T")


@dataclass(frozen=True)
class Leg(Generic[T]):
    """One run. number: from 0, in the order they were run; legs 2i and 2i+1 are pair i. on: with the variant."""

    number: int
    on: bool
    result: T

    @property
    def pair(self) -> int:
        return self.number // 2


@dataclass(frozen=True)
class Comparison:
    """Medians of the bare legs and of those with the variant, and the ratio of variant to bare over the pairs."""

    bare: float
    variant: float
    ratio: Ratio


def legs(bare: Callable[[], T], variant: Callable[[], T], pairs: int, rng: random.Random) -> Iterator[Leg[T]]:
    """Runs them one after the other, each as it is asked for. What a leg raises ends the experiment."""
    for number, on in enumerate(leg_order(pairs, rng)):
        yield Leg(number, on, variant() if on else bare())


def compare(run: Sequence[Leg[T]], measure: Callable[[T], float]) -> Comparison:
    """What `measure` says of each leg. Raises ValueError when the legs are not whole pairs, or one measures 0."""
    values = [(leg.on, measure(leg.result)) for leg in sorted(run, key=lambda leg: leg.number)]
    pairs = pair_up(values)
    bare, variant = (median(column) for column in zip(*pairs))
    return Comparison(bare, variant, signed_rank_ratio(pairs))
