"""When the findings of the last minutes are evaluated, and what is told of them: in events.jsonl, and as runs of the logbook, for hooks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.recorder.child import Child
from leadline.recorder.events import tell
from leadline.recorder.incidents import changes
from leadline.recorder.moments import Moment
from leadline.recorder.pieces import Piece
from leadline.recorder.state import WATCHED

WINDOW_S = 180.0  # that is evaluated
AGAIN_S = 30.0  # after an evaluation that was brought forward
AGAIN_WINDOW_S = 60.0  # that is evaluated then: an incident some minutes before would lower the share of what has just happened
LONGEST_S = 180.0  # that an evaluation may take


@dataclass(frozen=True)
class Costs:
    """What each rule has found in an evaluation, in seconds lost a second of the window. window_s: shorter after a start or a gap."""

    window_s: float
    rules: dict[str, float]


class Watch:
    """Of one recorder. every_s: from one evaluation to the next; 0: none. child: begins one."""

    def __init__(self, directory: Path, every_s: float, child: Callable[[str, Sequence[str]], Child]) -> None:
        self.directory, self.every_s = directory, every_s
        self._child = child
        self._running: Child | None = None
        self._began = self._due = 0
        self._again = self._is_second = False  # the next evaluation is followed by one soon after; the next one is that one
        self._window_s = WINDOW_S  # of the one that runs
        self._costs: Costs | None = None

    def soon(self) -> None:
        """Something has just happened: an evaluation begins with the next look, and one more soon after."""
        if self._running is None:
            self._due, self._again = min(self._due, 1), True

    def costs(self) -> Costs | None:
        """Of the last evaluation; once."""
        found, self._costs = self._costs, None
        return found

    def look(self, state: dict[str, Any], now: Moment, known: Sequence[Piece], running: str) -> bool:
        """Takes what an evaluation has found, and begins the next one when it is due. It never waits for one. Whether the state changed."""
        if self.every_s <= 0:
            return False
        changed = False
        if self._running is not None:
            if (found := self._running.result()) is not None:
                self._running, changed = None, True
                self._found(state, found, now)
            elif now.boot_ns - self._began > LONGEST_S * 1e9:
                self.end()
                _count(state, "failed")
                changed = True
        if now.boot_ns < self._due:
            return changed
        first, self._due = self._due == 0, now.boot_ns + round((min(AGAIN_S, self.every_s) if self._again else self.every_s) * 1e9)
        is_second, self._is_second, self._again = self._is_second, self._again, False
        if first or not running:  # nothing was recorded yet, or nothing is being recorded
            return changed
        if self._running is not None:
            _count(state, "skipped")
            return True
        self._window_s = AGAIN_WINDOW_S if is_second else WINDOW_S
        begin = now.wall_ns - round(self._window_s * 1e9)
        names = [piece.name for piece in known if not piece.span_s and piece.ts_from is not None and piece.wall_to > begin]
        self._began = now.boot_ns
        self._running = self._child("leadline.recorder.watcher", [str(self.directory), str(self._window_s), *names, running])
        return changed

    def end(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None
            shutil.rmtree(self.directory / WATCHED, ignore_errors=True)

    def _found(self, state: dict[str, Any], found: dict[str, Any], now: Moment) -> None:
        for key in ("cpu_s", "lasted_s"):
            state[key] = round(state.get(key, 0.0) + found.get(key, 0.0), 3)
        state["longest_s"] = round(max(state.get("longest_s", 0.0), found.get("lasted_s", 0.0)), 3)
        if error := found.get("error"):
            _count(state, "failed")
            state["last_error"] = ": ".join(filter(None, (error["message"], error.get("detail"))))
            return
        if not found["window_s"]:
            return
        _count(state, "evaluated")
        state["open"], events, untold = changes(state.get("open", {}), found["findings"], now.wall_ns, found["window_s"])
        if untold:
            state["untold"] = state.get("untold", 0) + untold
        if self._window_s == WINDOW_S:  # what is usual was learned of such windows
            self._costs = Costs(found["window_s"], {})
            for finding in found["findings"]:
                rule, cost_s = finding["id"], finding["cost_s"] or 0.0
                self._costs.rules[rule] = self._costs.rules.get(rule, 0.0) + cost_s / found["window_s"]
        tell(state, events, self.directory)


def _count(state: dict[str, Any], what: str) -> None:
    state[what] = state.get(what, 0) + 1
