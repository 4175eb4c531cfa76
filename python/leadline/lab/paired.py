"""The statistics of an experiment: order of trials, pairs of them, and what may be said of their ratio (signed_rank.py).

Pure functions of numbers; every random choice comes from the generator that is passed in.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
ENOUGH_PAIRS = 6  # with fewer, all of them lie on one side of 1 by chance too often (2 * 0.5**5 = 6 % with five) for a 95 % interval


@dataclass(frozen=True)
class Ratio:
    """with / bare, from signed_rank_ratio. low, high: the ends of its interval; pairs: how many."""

    estimate: float
    low: float
    high: float
    pairs: int


def trial_order(pairs: int, rng: random.Random) -> list[bool]:
    """True for a trial with the variant, False for a bare one; trials 2i and 2i+1 are pair i.

    A coin for each pair says which of its trials comes first. If the variant changes nothing, each ratio of a pair is then as likely the
    one way round as the other, whatever disturbs the machine: a drift, bursts, or something that comes every few trials. The interval
    needs nothing else. (Blocks such as off-on-on-off make two pairs depend on each other; a disturbance with a period of 3 to 5 trials
    then shows a difference that is not there in 10 to 15 % of experiments.)
    """
    order: list[bool] = []
    for _ in range(pairs):
        first = rng.random() < 0.5
        order += [first, not first]
    return order


def block_order(pairs: int, rng: random.Random) -> list[bool]:
    """How orders were drawn before: blocks of off-on-on-off or on-off-off-on. Only to check records of then."""
    order: list[bool] = []
    for _ in range(pairs // 2):
        first = rng.random() < 0.5
        order += [first, not first, not first, first]
    if pairs % 2:
        first = rng.random() < 0.5
        order += [first, not first]
    return order


def pair_up(trials: Sequence[tuple[bool, float]]) -> list[tuple[float, float]]:
    """(bare, with) of each pair, from trials in the order they were run. Raises ValueError when they are not whole pairs."""
    if len(trials) % 2:
        raise ValueError(f"{len(trials)} trials are not whole pairs")
    pairs = []
    for (first_on, first), (second_on, second) in zip(trials[::2], trials[1::2]):
        if first_on == second_on:
            raise ValueError("a pair needs one bare trial and one with the variant")
        pairs.append((second, first) if first_on else (first, second))
    return pairs


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie, interpolated between neighbours."""
    if not ordered:
        raise ValueError("no values")
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def loss_shown(ratio: Ratio) -> bool | None:
    """Whether the whole interval lies below 1: the variant costs throughput. None when there are too few pairs to tell."""
    return None if ratio.pairs < ENOUGH_PAIRS else ratio.high < 1.0


def reading(ratio: Ratio) -> str:
    """What the interval allows to say, in words. An interval with 1 in it is no proof of "no cost": its ends are named."""
    down, up = 100 * (1 - ratio.low), 100 * (ratio.high - 1)
    if ratio.pairs < ENOUGH_PAIRS:
        return f"nothing: {ENOUGH_PAIRS} pairs are the least"
    if loss_shown(ratio):
        return f"loses {100 * (1 - ratio.high):.1f} to {down:.1f} %"
    if ratio.low > 1.0:
        return f"faster by {100 * (ratio.low - 1):.1f} to {up:.1f} %: not a gain, but an effect of the method or of noise"
    return f"no difference shown; a loss above {down:.1f} % is excluded"
