"""Many logins: how many fail, why, and what that says of the rate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from leadline.net.interval import clean_runs_needed, interval, upper_bound
from leadline.net.login import Server
from leadline.net.logins import Logins

HOPELESS = 5  # so many failures before the first success end it: a wrong password is not tried hundreds of times
PHASES = ("resolve_ns", "connect_ns", "tls_ns", "login_ns")


@dataclass(frozen=True)
class Rule:
    """When it ends, and how fast it goes. logins: None for as many as show the rate if none fails."""

    confidence: float = 0.95
    max_rate: float = 0.01
    logins: int | None = None
    until_failure: bool = False
    for_s: float | None = None
    parallel: int = 1
    pause_s: float = 0.0

    @property
    def planned(self) -> int:
        return self.logins or clean_runs_needed(self.max_rate, self.confidence)


@dataclass
class Cause:
    """Failures with one cause in one phase. first: number of the login, from 1."""

    phase: str
    cause: str
    text: str
    first: int
    count: int = 0


@dataclass
class Outcome:
    rule: Rule
    logins: int = 0
    causes: dict[tuple[str, str], Cause] = field(default_factory=dict)
    times: dict[str, list[int]] = field(default_factory=dict)
    method: str | None = None
    encrypted: bool | None = None
    ended: str = ""
    seconds: float = 0.0

    @property
    def failures(self) -> int:
        return sum(cause.count for cause in self.causes.values())

    def as_dict(self) -> dict[str, Any]:
        rate = self.failures / self.logins if self.logins else None
        low, high = interval(self.failures, self.logins, self.rule.confidence) if self.logins else (0.0, 1.0)
        bound = upper_bound(self.failures, self.logins, self.rule.confidence) if self.logins else 1.0
        return {
            "logins": self.logins,
            "planned": self.rule.planned,
            "parallel": self.rule.parallel,
            "pause_s": self.rule.pause_s,
            "seconds": self.seconds,
            "per_second": self.logins / self.seconds if self.seconds else None,
            "failures": self.failures,
            "rate": rate,
            "confidence": self.rule.confidence,
            "interval": [low, high],
            "upper_bound": bound,
            "max_rate": self.rule.max_rate,
            "below_max_rate": bound <= self.rule.max_rate,
            "ended": self.ended,
            "causes": [vars(cause) for cause in sorted(self.causes.values(), key=lambda c: -c.count)],
            "method": self.method,
            "encrypted": self.encrypted,
            "times": {name: _summary(values) for name, values in self.times.items()},
        }


def run(server: Server, rule: Rule, timeout_s: float, progress: Callable[[int, int], None]) -> Outcome:
    """progress: called with the logins and failures so far."""
    logins = Logins(server.login(timeout_s), rule.planned, rule.parallel, rule.pause_s)
    found, began = Outcome(rule), time.monotonic()
    for text in logins.each():  # those that were under way when it ended count too
        found.logins += 1
        _note(found, json.loads(text))
        found.seconds = time.monotonic() - began
        found.ended = found.ended or _why_ended(found, found.seconds)
        if found.ended:
            logins.stop()
        progress(found.logins, found.failures)
    found.ended = found.ended or "interrupted"
    return found


def _note(found: Outcome, told: dict[str, Any]) -> None:
    if fault := told.get("fault"):
        key = (fault["phase"], fault["cause"])
        found.causes.setdefault(key, Cause(*key, fault["text"], found.logins)).count += 1
        return
    found.method, found.encrypted = told["method"], told["encrypted"]
    for name in PHASES:
        if told[name] is not None:
            found.times.setdefault(name, []).append(told[name])


def _why_ended(found: Outcome, elapsed_s: float) -> str:
    rule = found.rule
    if rule.until_failure and found.failures:
        return "a login failed"
    if found.logins == found.failures == HOPELESS < rule.planned:
        return f"none of the first {HOPELESS} logins succeeded"
    if found.logins >= rule.planned:
        return "all planned logins were made"
    return "the time was over" if rule.for_s is not None and elapsed_s >= rule.for_s else ""


def _summary(values: list[int]) -> dict[str, int]:
    ordered = sorted(values)
    at = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "max_ns": 1.0}
    return {"count": len(ordered), **{name: ordered[min(int(share * len(ordered)), len(ordered) - 1)] for name, share in at.items()}}
