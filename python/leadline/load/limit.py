"""The highest rate at which a promise about latency holds: rates are tried, and the bounds come together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from leadline.errors import LeadlineError
from leadline.load.plan import Phase, Plan
from leadline.load.run import TIMEOUT_S, run
from leadline.net.login import Server

START_SHARE = 0.5  # of what a closed loop does
GROWTH = 1.5
MOST_TRIALS = 40


class Tried(Protocol):
    """A rate that was tried. kept: what is asked of it held."""

    @property
    def rate(self) -> float: ...
    @property
    def kept(self) -> bool: ...


T = TypeVar("T", bound=Tried)


@dataclass(frozen=True)
class Trial:
    """A rate that was tried. kept: the promise held."""

    rate: float
    per_second: float
    p99_ns: float | None
    not_begun: int
    failed: int
    kept: bool


@dataclass(frozen=True)
class Promise:
    """quantile: 0.99. within_s: the latency that is promised. width: how near the bounds come, as a share."""

    within_s: float
    width: float = 0.03


def judge(rate: float, found: dict[str, Any], promise: Promise) -> Trial:
    """Whether the promise held. What did not end, or was not begun, would have been late."""
    phase = next(phase for phase in found["phases"] if not phase["warm_up"])
    p99 = phase["latency"]["p99_ns"]
    left = found["not_begun"] + found["unfinished"]
    kept = p99 is not None and p99 <= promise.within_s * 1e9 and left <= phase["due"] / 100 and not found["clients_gone"]
    return Trial(rate, phase["per_second"], p99, left, phase["failed"], kept)


def find(start: float, width: float, attempt: Callable[[float], T]) -> list[T]:
    """Trials, until the highest rate that was kept and the lowest that was not are near each other: within `width`, as a share. Each bound
    has been tried twice, and a third time where the first two differ: one disturbed trial decides nothing."""
    trials: list[T] = []
    rate = start
    while len(trials) < MOST_TRIALS:
        trials.append(attempt(rate))
        low, high = bounds(trials)
        if low is None and high is not None:
            rate = high / GROWTH
            if rate < 0.01:
                break
        elif high is None and low is not None:
            rate = low * GROWTH
        elif low is not None and high is not None:
            if high / low - 1 <= width:
                unsure = [bound for bound in (low, high) if len(_tries(trials, bound)) < 2 or _is_tied(trials, bound)]
                if not unsure:
                    break
                rate = unsure[0]
            else:
                rate = (low * high) ** 0.5
    return trials


def bounds(trials: Sequence[Tried]) -> tuple[float | None, float | None]:
    """The highest rate that was kept, below the lowest that was not; and that one. The majority of its trials decides for a rate; until
    there is one, it was not kept."""
    rates = {trial.rate for trial in trials}
    kept = {rate for rate in rates if 2 * sum(_tries(trials, rate)) > len(_tries(trials, rate))}
    high = min(rates - kept, default=None)
    return max((rate for rate in kept if high is None or rate < high), default=None), high


def outliers(trials: Sequence[T]) -> list[T]:
    """Trials that were not kept, at the limit or below it."""
    low, _ = bounds(trials)
    return [trial for trial in trials if not trial.kept and low is not None and trial.rate <= low]


def _tries(trials: Sequence[Tried], rate: float) -> list[bool]:
    return [trial.kept for trial in trials if trial.rate == rate]


def _is_tied(trials: Sequence[Tried], rate: float) -> bool:
    tries = _tries(trials, rate)
    return 2 * sum(tries) == len(tries)


def find_limit(
    server: Server,
    plan: Plan,
    promise: Promise,
    *,
    scale: int | None,
    for_s: float,
    warm_up_s: float,
    start: float | None = None,
    tell: Callable[[Trial], None] | None = None,
) -> dict[str, Any]:
    """The trials, and between which rates the limit lies. start: the first rate; None: half of what a closed loop does."""

    def load(rate: float | None, seconds: float) -> dict[str, Any]:
        phases = [Phase(rate, warm_up_s, warm_up=True)] if warm_up_s > 0 else []
        return run(server, replace(plan, phases=[*phases, Phase(rate, seconds)], drain_s=max(TIMEOUT_S, 2 * promise.within_s)), scale=scale)

    def attempt(rate: float) -> Trial:
        found = load(rate, for_s)
        if found["interrupted"]:
            raise KeyboardInterrupt
        trial = judge(rate, found, promise)
        if tell is not None:
            tell(trial)
        return trial

    closed = None
    if start is None:
        found = load(None, min(for_s, 5.0))
        closed = found["phases"][-1]["per_second"]
        if not closed or found["clients_gone"]:
            errors = [error["message"] for phase in found["phases"] for error in phase["errors"]]
            hint = "try the script with `leadline load run`"
            raise LeadlineError("invalid", "no transaction ended well", detail="; ".join(errors[:3]), hint=hint)
        start = closed * START_SHARE
    trials = find(start, promise.width, attempt)
    low, high = bounds(trials)
    return {
        "server": str(server),
        "p99_ms": promise.within_s * 1e3,
        "limit": low,
        "between": [low, high],
        "closed_loop": closed,
        "not_kept_below": len(outliers(trials)),
        "trials": [vars(trial) for trial in trials],
    }
