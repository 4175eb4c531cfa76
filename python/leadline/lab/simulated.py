"""Studies whose truth is known, on a host that drifts, has runs of slow trials, outliers and two modes: does what is said of them hold?

bench/truth.py asks that of many, tests/unit/test_lab_blocks.py of some.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leadline.lab.blocks import Metric, block_orders

Disturbance = Callable[[int, random.Random], list[float]]


def _drift(trials: int, rng: random.Random) -> list[float]:
    """Up to a fifth slower or faster by the end, at an even or a growing pace."""
    end, power = rng.uniform(-0.2, 0.2), rng.choice((1, 2))
    return [1 + end * (at / max(1, trials - 1)) ** power for at in range(trials)]


def _autocorrelated(trials: int, rng: random.Random) -> list[float]:
    """Each trial keeps a share of what the one before had too much."""
    share, at, out = rng.uniform(0.3, 0.98), rng.gauss(0, 0.05), list[float]()
    for _ in range(trials):
        at = share * at + rng.gauss(0, 0.03)
        out.append(math.exp(at))
    return out


def _outliers(trials: int, rng: random.Random) -> list[float]:
    often, most = rng.uniform(0.02, 0.15), rng.uniform(1.2, 5)
    return [rng.uniform(1, most) if rng.random() < often else 1.0 for _ in range(trials)]


def _two_modes(trials: int, rng: random.Random) -> list[float]:
    """A fast and a slow mode, which lasts for some trials: another plan, a warm cache, a neighbour."""
    factor, change, slow, out = rng.uniform(1.1, 1.7), rng.uniform(0.05, 0.5), rng.random() < 0.5, list[float]()
    for _ in range(trials):
        slow ^= rng.random() < change
        out.append(factor if slow else 1.0)
    return out


DISTURBANCES: Mapping[str, Disturbance] = {
    "drift": _drift, "autocorrelation": _autocorrelated, "outliers": _outliers, "two modes": _two_modes,
}  # fmt: skip


@dataclass(frozen=True)
class Truth:
    """effects: for each level beside the baseline, how many times as long it takes. noise: spread of the logarithm of each trial.

    stalls: chance that a trial takes half the baseline's time longer, whatever its level: this adds, where all else multiplies. uneven: how
    many times as much noise the other levels have. What is said of ratios does not promise anything of either.
    """

    effects: Mapping[str, float]
    noise: float = 0.02
    disturbances: tuple[str, ...] = tuple(DISTURBANCES)
    stalls: float = 0.0
    uneven: float = 1.0


BASELINE = "baseline"


def simulate(truth: Truth, blocks: int, rng: random.Random, name: str = "seconds", margin: float = 0.02) -> Metric:
    """Runs the study: what the trials take, in the order that block_orders draws."""
    order = [level for block in block_orders([BASELINE, *truth.effects], blocks, rng) for level in block]
    took = [math.exp(rng.gauss(0, truth.noise * (truth.uneven if level in truth.effects else 1.0))) for level in order]
    for disturbance in truth.disturbances:
        took = [a * b for a, b in zip(took, DISTURBANCES[disturbance](len(order), rng))]
    values: dict[str, list[float | None]] = {level: [] for level in (BASELINE, *truth.effects)}
    for level, time in zip(order, took):
        stall = 0.5 if truth.stalls and rng.random() < truth.stalls else 0.0
        values[level].append(time * truth.effects.get(level, 1.0) + stall)
    return Metric(name, values, margin=margin, is_time=True)
