"""Whether what sessions do now is usual for the hour of the day; each time that it begins, gets much worse and is over is an event.

A quantity is unusual when IN_A_ROW values in a row are above its limit (usual.py), and it is over when nothing was unusual in QUIET values.
Quantities that are unusual together are one event, which names the one that has grown most; one that joins them later is told once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError
from leadline.recorder.incidents import Incident
from leadline.recorder.usual import Judgement, Usual
from leadline.replacing import write_durably

BASELINE = "baseline.json"
FORMAT = 1
ID = "UNUSUAL"
WORSE = 2.0  # times what was said last
MOST = 60  # quantities: the rest of them is in the total
BESIDE = 15  # minutes: so close to an hour, its limit holds too


@dataclass(frozen=True)
class Kind:
    """Quantities that are looked at together. total: the one that is named only if no part of it is unusual. least: of a limit above the
    median. an_hour: values in an hour. in_a_row: of values above the limit. quiet: so many below it in a row, and it is over. is_time:
    what is more than usual is time that was lost.
    """

    name: str
    total: str
    unit: str
    least: float
    an_hour: int
    in_a_row: int
    quiet: int
    is_time: bool = True


SESSIONS = Kind("sessions", "active sessions", "sessions", least=2.0, an_hour=720, in_a_row=2, quiet=12)
LOGINS = Kind("logins", "new sessions", "new sessions a second", least=2.0, an_hour=720, in_a_row=2, quiet=12, is_time=False)
FINDINGS = Kind("findings", "cost of all findings", "s lost a second", least=0.2, an_hour=60, in_a_row=1, quiet=5)
STEP_S = 5.0  # of SESSIONS and LOGINS


@dataclass
class Row:
    """Values of one quantity above its limit, without one below it in between."""

    values: list[float] = field(default_factory=list)
    judged: Judgement = field(default_factory=Judgement)

    @property
    def value(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def excess(self) -> float:
        return self.value - self.judged.usual


class Unusual:
    """Of one kind of quantities."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.known: dict[str, Usual] = {}
        self.hour: tuple[int, int] | None = None  # the day and hour of the last value
        self._rows: dict[str, Row] = {}
        self._quiet = 0

    def look(self, state: dict[str, Any], values: Mapping[str, float], at_ns: int, seconds: float) -> list[Incident]:
        """state: what is open, kept by the caller. values: of the time up to now, `seconds` long; a quantity that is not there is 0."""
        hour, near = self._begin_hour(at_ns)
        outside = False
        for name in self._names(values):
            value, usual = values.get(name, 0.0), self.known[name]
            judged = usual.judge(hour, near)
            if not usual.learn(value, judged):
                self._rows.pop(name, None)
                continue
            outside = True
            row = self._rows.setdefault(name, Row())
            row.values, row.judged = [*row.values, value][-self.kind.in_a_row :], judged
        return self._changes(state, at_ns, seconds, outside=outside)

    def _changes(self, state: dict[str, Any], at_ns: int, seconds: float, *, outside: bool) -> list[Incident]:
        sure = {name: row for name, row in self._rows.items() if len(row.values) >= self.kind.in_a_row}
        if sure:
            self._quiet = 0
            told = state.get("told", {})
            more = [name for name, row in sure.items() if self._is_news(name, row, told)]
            if not more:
                return []
            name = max(more, key=lambda name: (name != self.kind.total, sure[name].excess))
            change = "worse" if state else "new"
            since = state.get("since", at_ns - round(seconds * self.kind.in_a_row * 1e9))
            told = told | {name: max(row.excess, told.get(name, 0.0)) for name, row in sure.items()}
            state.update({"since": since, "subject": name, "cost_s": self._cost_s(sure[name], seconds), "told": told})
            return [self._event(change, at_ns, since, name, sure, seconds)]
        self._quiet = 0 if outside else self._quiet + 1
        if not state or self._quiet < self.kind.quiet:
            return []
        text = f"nothing was above its limit {self.kind.quiet} times in a row"
        window_s = round(seconds * self.kind.in_a_row, 3)
        event = Incident("over", at_ns, state["since"], ID, state["subject"], "medium", state["cost_s"], window_s, text)
        state.clear()
        return [event]

    def _is_news(self, name: str, row: Row, told: Mapping[str, float]) -> bool:
        """What was not told of the incident, or is twice that; the total only where nothing was told of it."""
        if name in told:
            return row.excess >= WORSE * told[name]
        return name != self.kind.total or not told

    def _event(self, change: str, at_ns: int, since: int, name: str, sure: Mapping[str, Row], seconds: float) -> Incident:
        row, window_s = sure[name], round(seconds * self.kind.in_a_row, 3)
        text = f"{row.value:.1f} {self.kind.unit} in the last {window_s:.0f} s; {_usual(row.judged)}"
        if others := [
            f"{other} {row.value:.1f} (usual: {row.judged.usual:.1f})" for other, row in sorted(sure.items()) if other != name
        ]:
            text += "; also " + ", ".join(others)
        measured = {key: round(value or 0.0, 3) for key, value in asdict(row.judged).items()} | {"value": round(row.value, 3)}
        return Incident(change, at_ns, since, ID, name, "medium", self._cost_s(row, seconds), window_s, text, measured)

    def _cost_s(self, row: Row, seconds: float) -> float | None:
        return round(row.excess * seconds * self.kind.in_a_row, 3) if self.kind.is_time else None

    def _begin_hour(self, at_ns: int) -> tuple[int, int]:
        """The hour of the day by the zone of this host, and the one beside it that is close."""
        at = datetime.fromtimestamp(at_ns / 1e9)
        now = at.toordinal(), at.hour
        if self.hour is not None and now != self.hour:
            for usual in self.known.values():
                usual.end_hour(self.hour[1], at.hour)
        self.hour = now
        return at.hour, (at.hour + (at.minute >= 60 - BESIDE) - (at.minute < BESIDE)) % 24

    def _names(self, values: Mapping[str, float]) -> list[str]:
        """All that are known, with those that come for the first time."""
        total = self.known.setdefault(self.kind.total, Usual(self.kind.least, self.kind.an_hour))
        for name in values:
            if name not in self.known and len(self.known) < MOST:
                self.known[name] = total.as_new()
        return sorted(self.known)


def _usual(judged: Judgement) -> str:
    return f"usual at this hour: {judged.usual:.1f}, at most {judged.high:.1f}; unusual above {judged.limit or 0.0:.1f}"


def write_baseline(directory: Path, kinds: list[Unusual]) -> None:
    """Raises OSError."""
    content = {kind.kind.name: {name: usual.as_dict() for name, usual in kind.known.items()} for kind in kinds}
    write_durably(directory / BASELINE, json.dumps({"format_version": FORMAT} | content, ensure_ascii=False).encode())


def read_baseline(directory: Path, kinds: list[Unusual]) -> None:
    """Into the kinds, if there is one. Raises LeadlineError('invalid') if it is damaged."""
    path = directory / BASELINE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format_version"] != FORMAT:
            raise ValueError(f"format_version is {content['format_version']!r}")
        for kind in kinds:
            found = {name: Usual.read(hours, kind.kind.least, kind.kind.an_hour) for name, hours in content.get(kind.kind.name, {}).items()}
            kind.known = dict(list(found.items())[:MOST])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise LeadlineError("invalid", "what the recorder has learned to be usual is damaged", repr(e), where=str(path)) from e
