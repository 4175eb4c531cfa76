"""Looks whether what the sessions do and what findings cost is usual, tells when it is not, and has a detail capture taken of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.probes.options import Options
from leadline.recorder.detail import Detail
from leadline.recorder.events import tell
from leadline.recorder.incidents import Incident
from leadline.recorder.load import Load
from leadline.recorder.moments import Moment
from leadline.recorder.state import State
from leadline.recorder.unusual import FINDINGS, LOGINS, SESSIONS, STEP_S, Unusual, read_baseline, write_baseline
from leadline.recorder.watch import Watch


@dataclass(frozen=True)
class Now:
    """What the recorder does at a look. piece: the one that is written. free: bytes of the disk."""

    moment: Moment
    options: Options
    piece: Path
    free: int


class Attention:
    """Of one recorder. watches: whether it looks for what is unusual; else it only answers who asks by hand."""

    def __init__(self, directory: Path, detail: Detail, watch: Watch, say: Callable[[str], None], *, watches: bool) -> None:
        self.directory, self.watches = directory, watches
        self.detail, self._watch, self._say = detail, watch, say
        self._load = Load(STEP_S, SESSIONS.total)
        self._sessions, self._logins, self._findings = self._kinds = [Unusual(kind) for kind in (SESSIONS, LOGINS, FINDINGS)]
        self._hour: tuple[int, int] | None = None  # the one after which it was written

    def begin(self) -> None:
        """With the lock of the directory."""
        self.detail.tidy()
        try:
            read_baseline(self.directory, self._kinds)
        except LeadlineError as e:
            self._say(f"note: {e.message}: it is learned anew")

    def look(self, state: State, now: Now) -> bool:
        """Never waits. Whether the state changed."""
        changed = self.detail.look(state.detail, now.moment)
        changed |= self.detail.answer(state.detail, now.moment, now.options, now.free)
        if self.watches and state.held_s <= 0:  # else the hour of the day is in doubt
            if not now.options.host:
                changed |= self._look_at_sessions(state, now)
            changed |= self._look_at_findings(state, now)
            if self._hour != self._sessions.hour:
                self._hour = self._sessions.hour
                self._write()
        return changed

    def end(self, state: State, moment: Moment) -> None:
        self.detail.end(state.detail, moment)
        self._load.close()
        self._write()

    def _look_at_sessions(self, state: State, now: Now) -> bool:
        step = self._load.look(now.piece)
        state.unusual["cpu_s"] = round(state.unusual.get("cpu_s", 0.0) + self._load.spent_s(), 4)
        if step is None:
            return False
        events = []
        for kind, values in ((self._sessions, step.values), (self._logins, {LOGINS.total: step.begun})):
            events += kind.look(state.unusual.setdefault(kind.kind.name, {}), values, now.moment.wall_ns, step.seconds)
        if any(event.change != "over" for event in events):
            self._watch.soon()
        return self._tell(state, now, events)

    def _look_at_findings(self, state: State, now: Now) -> bool:
        if (costs := self._watch.costs()) is None:
            return False
        values = {f"cost of {rule}": cost for rule, cost in costs.rules.items()} | {FINDINGS.total: sum(costs.rules.values())}
        opened = state.unusual.setdefault(FINDINGS.name, {})
        events = self._findings.look(opened, values, now.moment.wall_ns, costs.window_s)
        return self._tell(state, now, events)

    def _tell(self, state: State, now: Now, events: list[Incident]) -> bool:
        told = []
        for event in events:
            capture = ""
            if event.change != "over":
                why = f"{event.subject}: {event.statement}"
                capture = self.detail.of(state.detail, now.moment, now.options, why, now.free)
            told.append(replace(event, capture=capture))
        tell(state.findings, told, self.directory)
        return bool(told)

    def _write(self) -> None:
        if not self.watches:
            return
        try:
            write_baseline(self.directory, self._kinds)
        except OSError as e:  # on a full disk: it is written again in an hour
            self._say(f"note: what is usual cannot be written: {e.strerror}")
