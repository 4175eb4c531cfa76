"""When the findings of the last minutes are evaluated, and what is told of them: in events.jsonl, and as runs of the logbook, for hooks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from leadline.book.place import find_place
from leadline.book.recorder import Recorder as Run
from leadline.recorder.child import Child
from leadline.recorder.incidents import Incident, changes
from leadline.recorder.moments import Moment, as_utc
from leadline.recorder.pieces import Piece
from leadline.recorder.state import EVENTS, WATCHED

WINDOW_S = 180.0  # that is evaluated
LONGEST_S = 180.0  # that an evaluation may take
SHOWN = 20  # events that the state has
LONGEST_EVENTS = 4 << 20  # bytes of events.jsonl, and as much of the file before it
KIND = "finding"  # of the run in the logbook that an event is


class Watch:
    """Of one recorder. every_s: from one evaluation to the next; 0: none. child: begins one."""

    def __init__(self, directory: Path, every_s: float, child: Callable[[str, Sequence[str]], Child]) -> None:
        self.directory, self.every_s = directory, every_s
        self._child = child
        self._running: Child | None = None
        self._began = self._due = 0

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
        first, self._due = self._due == 0, now.boot_ns + round(self.every_s * 1e9)
        if first or not running:  # nothing was recorded yet, or nothing is being recorded
            return changed
        if self._running is not None:
            _count(state, "skipped")
            return True
        begin = now.wall_ns - round(WINDOW_S * 1e9)
        names = [piece.name for piece in known if not piece.span_s and piece.ts_from is not None and piece.wall_to > begin]
        self._began = now.boot_ns
        self._running = self._child("leadline.recorder.watcher", [str(self.directory), str(WINDOW_S), *names, running])
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
        if events:
            state["events"] = [*state.get("events", []), *map(as_line, events)][-SHOWN:]
            _write(self.directory / EVENTS, events)
            for event in events:
                into_the_book(event, self.directory)


def as_line(event: Incident) -> dict[str, Any]:
    """As events.jsonl has it."""
    return asdict(event) | {"at": as_utc(event.at), "since": as_utc(event.since)}


def _count(state: dict[str, Any], what: str) -> None:
    state[what] = state.get(what, 0) + 1


def _write(path: Path, events: Sequence[Incident]) -> None:
    """Appends lines; on a full disk, the state has the last ones."""
    try:
        if path.exists() and path.stat().st_size > LONGEST_EVENTS:
            path.replace(path.with_name(path.name + ".1"))
        with path.open("a", encoding="utf-8") as out:
            out.writelines(json.dumps(as_line(event), ensure_ascii=False) + "\n" for event in events)
            out.flush()
            os.fsync(out.fileno())
    except OSError:
        pass


def into_the_book(event: Incident, directory: Path) -> None:
    """A run that has ended: failed of what is new or worse, ok of what is over. Hooks of the logbook tell of it as of any run."""
    run = Run(find_place())
    if run.place is None:
        return
    labels = {"rule": event.id, "change": event.change, "severity": event.severity, "recorder": str(directory)}
    inputs = {"subject": event.subject, "cost_s": event.cost_s, "window_s": event.window_s, "since": as_utc(event.since)}
    run.begin(KIND, f"{event.id} {event.change}", ["leadline", "record", "--status", str(directory)], labels=labels, inputs=inputs)
    run.summary(f"{event.subject}: {event.statement}")
    run.end(0 if event.change == "over" else 1, fine=event.change == "over")
