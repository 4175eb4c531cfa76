"""Runs pairs of trials, one bare and one with the variant, in the order of paired.trial_order, and compares what they measured."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from leadline.lab.paired import Ratio, pair_up, trial_order
from leadline.lab.signed_rank import signed_rank_ratio

T = TypeVar("T")


@dataclass(frozen=True)
class Trial(Generic[T]):
    """One run. number: from 0, in the order they were run; trials 2i and 2i+1 are pair i. on: with the variant."""

    number: int
    on: bool
    result: T

    @property
    def pair(self) -> int:
        return self.number // 2


@dataclass(frozen=True)
class Comparison:
    """Medians of the bare trials and of those with the variant, and the ratio of variant to bare over the pairs."""

    bare: float
    variant: float
    ratio: Ratio


def trials(bare: Callable[[], T], variant: Callable[[], T], pairs: int, rng: random.Random) -> Iterator[Trial[T]]:
    """Runs them one after the other, each as it is asked for. What a trial raises ends the experiment."""
    for number, on in enumerate(trial_order(pairs, rng)):
        yield Trial(number, on, variant() if on else bare())


def compare(run: Sequence[Trial[T]], measure: Callable[[T], float]) -> Comparison:
    """What `measure` says of each trial. Raises ValueError when the trials are not whole pairs, or one measures 0."""
    values = [(trial.on, measure(trial.result)) for trial in sorted(run, key=lambda trial: trial.number)]
    pairs = pair_up(values)
    bare, variant = (median(column) for column in zip(*pairs))
    return Comparison(bare, variant, signed_rank_ratio(pairs))
