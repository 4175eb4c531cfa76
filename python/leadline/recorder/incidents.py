"""What is new, worse or over among the findings of one minute and the next.

A finding begins when it is medium or more severe, and is the same one as long as its rule finds anything about its subject, whatever the
severity. It is over when the rule has found nothing about it in OVER evaluations in a row. So a value that goes to and fro around a
threshold is one finding. It is worse when its severity rises, or its cost doubles, above all that was said of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SEVERITIES = ("info", "low", "medium", "high", "critical")
BEGINS = SEVERITIES.index("medium")
OVER = 5  # evaluations without it
WORSE = 2.0  # times the cost that was said last
MOST = 20  # that begin in one evaluation: a storm of pids is no list of events


@dataclass(frozen=True)
class Incident:
    """One event. change: new, worse or over. at, since: ns since 1970. cost_s: seconds lost in the window of the evaluation; of one that is
    over the most that was said. measured: of what is unusual (unusual.py), its value and what is usual. capture: the detail capture of it,
    or why there is none.
    """

    change: str
    at: int
    since: int
    id: str
    subject: str
    severity: str
    cost_s: float | None
    window_s: float
    statement: str
    measured: dict[str, float] | None = None
    capture: str = ""


def changes(
    known: Mapping[str, dict[str, Any]], found: Sequence[Mapping[str, Any]], at: int, window_s: float
) -> tuple[dict[str, dict[str, Any]], list[Incident], int]:
    """What is open after this evaluation, what has changed, and how many that began were too many to tell.

    known: what was open before, by rule and subject; found: findings as dictionaries.
    """
    now: dict[str, dict[str, Any]] = {}
    events: list[Incident] = []
    untold = 0
    for finding in found:
        key = f"{finding['id']} {finding['subject']}"
        rank, cost = SEVERITIES.index(finding["severity"]), finding["cost_s"]
        if key in now:
            continue
        if (before := known.get(key)) is None:
            if rank < BEGINS:
                continue
            if sum(event.change == "new" for event in events) >= MOST:
                untold += 1
                continue
            now[key] = {"since": at, "severity": finding["severity"], "cost_s": cost, "missing": 0, "window_s": window_s}
            events.append(_event("new", at, at, finding, window_s))
            continue
        now[key] = before | {"missing": 0}
        said = before["cost_s"] or 0.0
        dearer = cost is not None and cost / max(window_s, 1.0) >= WORSE * said / max(before["window_s"], 1.0) and cost > said > 0
        if rank > SEVERITIES.index(before["severity"]) or (dearer and rank >= BEGINS):
            severity = max(finding["severity"], before["severity"], key=SEVERITIES.index)
            now[key] |= {"severity": severity, "cost_s": max(cost or 0.0, said) or None, "window_s": window_s}
            events.append(_event("worse", at, before["since"], finding, window_s))
    for key, before in known.items():
        if key in now:
            continue
        if before["missing"] + 1 < OVER:
            now[key] = before | {"missing": before["missing"] + 1}
            continue
        rule, _, subject = key.partition(" ")
        text = f"nothing of it in {OVER} evaluations in a row"
        events.append(Incident("over", at, before["since"], rule, subject, before["severity"], before["cost_s"], before["window_s"], text))
    return now, events, untold


def _event(change: str, at: int, since: int, finding: Mapping[str, Any], window_s: float) -> Incident:
    cost = finding["cost_s"]
    return Incident(
        change, at, since, finding["id"], finding["subject"], finding["severity"], None if cost is None else round(cost, 3), window_s,
        finding["statement"],
    )  # fmt: skip
