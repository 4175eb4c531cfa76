"""Runs a scenario on one major, and judges what was found by what was planted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import CopiedServer, Fetched, Server, fetched_or_skip, in_memory
from leadline.capture.reader import open_capture
from leadline.findings import SEVERITIES, Evaluation, Finding, all_findings, evaluate
from leadline.probes.take import take
from leadline.progress import Silent

from matrix.ground import Ground
from matrix.scenario import COST_WITHIN, Expected, Scenario

SETTINGS = {"shared_buffers": "32MB", "max_connections": 60, "max_prepared_transactions": 5, "max_wal_size": "1GB"}
ABOVE_LOW = SEVERITIES[: SEVERITIES.index("low")]
OF_OTHERS = {d.id for d in all_findings() if d.domain == "host"} | {"CPU-STARVED"}
"""What else runs on the host decides. A clean load is not judged by them."""


@dataclass
class Judged:
    """One thing planted, and what came of it. wrong: empty when it was found, as it must be."""

    rule: str
    subject: str
    found: bool
    cost_s: float | None
    truth_s: float | None
    wrong: list[str]

    @property
    def ratio(self) -> float | None:
        return self.cost_s / self.truth_s if self.cost_s is not None and self.truth_s else None


@dataclass
class Result:
    """A scenario on one major. others: findings above low on something else than what was planted. error: why it could not be run.

    left_out: what this host lacks for it. at: when it began, in UTC.
    """

    scenario: str
    major: int
    loops: bool
    clean: bool = False
    judged: list[Judged] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    error: str = ""
    left_out: str = ""
    at: str = ""
    took_s: float = 0.0

    @property
    def faults(self) -> list[str]:
        return [*([self.error] if self.error else []), *self.wrong, *(text for j in self.judged for text in j.wrong)]


class _Begun(Silent):
    """Tells the ground when the window has begun."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    def update(self, elapsed_s: float, total_s: float, seen: str) -> None:
        self.ground.begun.set()


@contextmanager
def fresh(fetched: Fetched, settings: dict[str, Any], loopback: bool = False) -> Iterator[Server]:
    """A server of its own, which takes less time to copy than an old one to clean. Durable, but in memory where there is room."""
    with ExitStack() as stack:
        with in_memory():
            private = stack.enter_context(CopiedServer(fetched.bin_dir, settings=SETTINGS | settings, loopback=loopback))
        yield Server(private, fetched)


def run(scenario: Scenario, major: int, loops: bool = False, window_s: float | None = None) -> Result:
    """Plants, captures, evaluates all rules, judges. What goes wrong with that is in the result."""
    result = Result(scenario.name, major, loops, scenario.clean, at=f"{datetime.now(UTC):%Y-%m-%d %H:%M}")
    begun = time.monotonic()
    try:
        _run(scenario, result, window_s or scenario.window_s)
    except pytest.skip.Exception as e:
        result.left_out = str(e)
    except (Exception, pytest.fail.Exception) as e:
        result.error = f"{type(e).__name__}: {e}".strip()
    result.took_s = time.monotonic() - begun
    return result


def _run(scenario: Scenario, result: Result, window_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="matrix-") as name, ExitStack() as stack:
        folder = Path(name)
        fetched = (scenario.fetched or fetched_or_skip)(result.major)
        server = stack.enter_context(fresh(fetched, dict(scenario.settings), scenario.loopback))
        ground = Ground(server, folder, stack)
        truth = stack.enter_context(scenario.plant(ground))
        where = {"dsn": ground.target.dsn, "pid": ground.target.pid}
        path = take(**where, for_s=window_s, out=folder / "x.leadline", tier=scenario.tier, progress=_Begun(ground), **ground.options)
        capture = open_capture(path)
        try:
            ground.captured(capture)
            expected = truth()
            evaluation = evaluate(capture, thresholds=scenario.thresholds)
        finally:
            capture.close()
    judge(scenario, result, expected, evaluation)


def judge(scenario: Scenario, result: Result, expected: list[Expected], evaluation: Evaluation) -> None:
    left = list(evaluation.findings)
    for wanted in expected:
        finding = next((f for f in left if (f.id, f.subject) == (wanted.rule, wanted.subject)), None)
        if finding is not None:
            left.remove(finding)
        result.judged.append(_judged(wanted, finding, evaluation))
    loud = [f for f in left if f.severity in ABOVE_LOW]
    rules, subjects = {wanted.rule for wanted in expected}, {wanted.subject for wanted in expected}
    explained = scenario.beside | OF_OTHERS
    loud = [f for f in loud if f.id not in explained and f.subject not in subjects]
    result.others = [f"{f.id} {f.severity} {f.subject}: {f.statement}" for f in loud]
    if scenario.clean:
        result.wrong += [f"above low: {text}" for text in result.others]
    result.wrong += [f"must not fire: {f.id} {f.subject}: {f.statement}" for f in left if f.id in scenario.never and f.id not in rules]


def _judged(wanted: Expected, finding: Finding | None, evaluation: Evaluation) -> Judged:
    name = f"{wanted.rule} {wanted.subject}"
    if finding is None:
        same = [f.subject for f in evaluation.findings if f.id == wanted.rule]
        why = [reason for rule, reason in evaluation.not_evaluated if rule == wanted.rule]
        wrong = [f"{name}: not found{f', but {same}' if same else ''}{f' ({why[0]})' if why else ''}"]
        return Judged(wanted.rule, wanted.subject, False, None, wanted.cost_s, wrong)
    wrong = [f"{name}: does not say {text!r}: {finding.statement}" for text in wanted.says if text not in finding.statement]
    if SEVERITIES.index(finding.severity) > SEVERITIES.index(wanted.severity):
        wrong.append(f"{name}: severity {finding.severity}, at least {wanted.severity} wanted")
    figures: dict[str, tuple[float | None, float]] = {}
    if wanted.cost_s is not None:
        figures["cost_s"] = (finding.cost_s, wanted.cost_s)
    figures |= {key: (finding.evidence[0].get(key) if finding.evidence else None, true) for key, true in wanted.figures.items()}
    for key, (said, true) in figures.items():
        if said is None or abs(said - true) > COST_WITHIN * abs(true):
            wrong.append(f"{name}: {key} {said if said is None else round(said, 3)}, truth {true:.3f}")
    return Judged(wanted.rule, wanted.subject, True, finding.cost_s, wanted.cost_s, wrong)
