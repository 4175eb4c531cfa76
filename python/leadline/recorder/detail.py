"""Detail captures of one recorder: bounded in length, in time of an hour and in size, one at a time, apart from the pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.probes.options import Options
from leadline.recorder.asked import forget_requests, take_request
from leadline.recorder.child import Child
from leadline.recorder.detailer import full
from leadline.recorder.moments import Moment, as_utc
from leadline.recorder.pieces import Pieces, new_name
from leadline.recorder.retention import in_excess
from leadline.units import MB

PLACE = "detail"  # below the directory of the recorder
HOUR_NS = 3600 * 10**9
SAME_S = 90.0  # what begins so soon after a capture is told with that one
SHOWN = 20
LONGER_S = 120.0  # than it should, and it is ended: to begin and to end take time on a busy host
LEAST_BYTES = 16 * MB


@dataclass(frozen=True)
class Bounds:
    """for_s: of a capture. budget_s: of all that the recorder begins by itself within an hour; 0: none. max_bytes: of all that are kept."""

    for_s: float = 30.0
    budget_s: float = 300.0
    max_bytes: int = 2000 * MB

    @property
    def largest(self) -> int:
        """One that grows larger is ended early: there is room for it beside those that are kept."""
        return self.max_bytes // 4


class Detail:
    """child: begins a process. free_bytes: what the disk keeps for others."""

    def __init__(self, directory: Path, bounds: Bounds, free_bytes: int, child: Callable[..., Child]) -> None:
        self.directory, self.bounds, self.free_bytes = directory, bounds, free_bytes
        self.place = directory / PLACE
        self._child = child
        self._running: Child | None = None
        self._until = 0

    def tidy(self) -> None:
        """At the start: what a killed recorder left."""
        forget_requests(self.directory)
        if self.place.is_dir():
            Pieces(self.place).tidy()

    def of(self, state: dict[str, Any], now: Moment, options: Options, why: str, free: int) -> str:
        """The capture of what has just begun, as a path below the directory, or why there is none."""
        if self.bounds.budget_s <= 0:
            return ""
        last = state["taken"][-1] if state.get("taken") else None
        if last is not None and 0 <= now.wall_ns - last["at"] < SAME_S * 1e9:
            return str(last["capture"])
        spent = self._spent_s(state, now)
        if spent + self.bounds.for_s > self.bounds.budget_s:
            state["over_budget"] = state.get("over_budget", 0) + 1
            return f"none: {spent:.0f} s of the {self.bounds.budget_s:.0f} s of an hour are used"
        return self._begin(state, now, options, self.bounds.for_s, why, free, by_itself=True)

    def answer(self, state: dict[str, Any], now: Moment, options: Options, free: int) -> bool:
        """Begins what was asked for by hand, which the budget does not limit. Whether somebody asked."""
        if (request := take_request(self.directory)) is None:
            return False
        if self._running is not None:
            state["answer"] = {"id": request["id"], "error": f"a detail capture is being taken: {state['taken'][-1]['capture']}"}
            return True
        made = self._begin(state, now, options, request["for_s"], "by hand", free, by_itself=False)
        state["answer"] = {"id": request["id"], "error" if made.startswith("none") else "capture": made}
        return True

    def look(self, state: dict[str, Any], now: Moment) -> bool:
        """Takes what became of the capture. It never waits for it. Whether the state changed."""
        if self._running is None:
            return False
        if (found := self._running.result()) is None:
            if now.boot_ns <= self._until:
                return False
            self._running.end()
            found = {"error": {"message": "it did not end in time"}}
        self._running = None
        last = state["taken"][-1]
        if error := found.get("error"):
            state["failed"] = state.get("failed", 0) + 1
            last["status"] = "failed: " + ": ".join(filter(None, (error["message"], error.get("detail"))))
        else:
            last["status"] = f"ended early: {found['ended_by']}" if found["ended_by"] else "complete"
            last["for_s"] = found["window_s"]
            last |= {"bytes": found["bytes"], "absent": found["absent"]}
        state["cpu_s"] = round(state.get("cpu_s", 0.0) + found.get("cpu_s", 0.0), 3)
        return True

    def end(self, state: dict[str, Any], now: Moment) -> None:
        """What is being taken is ended, and kept as far as it came."""
        if self._running is not None:
            self._running.stop()
            self.look(state, now)

    def _begin(
        self, state: dict[str, Any], now: Moment, options: Options, for_s: float, why: str, free: int, *, by_itself: bool
    ) -> str:  # fmt: skip
        if self._running is not None:
            return "none: another one is being taken"
        if free < self.free_bytes + LEAST_BYTES:
            return "none: the disk has no room"
        try:
            self.place.mkdir(exist_ok=True)
            pieces = Pieces(self.place)
            for piece in in_excess(pieces.read(), self.bounds.largest, self.bounds.max_bytes):
                pieces.remove(piece)
                state["removed"] = state.get("removed", 0) + 1
            name = new_name(now.wall_ns, pieces.names())
        except OSError as e:
            return f"none: {self.place} cannot be written: {e.strerror}"
        about = {"detail": why, "boot": now.boot}
        wanted = {
            "options": full(options, for_s, self.place / name, about), "most_bytes": self.bounds.largest, "free_bytes": self.free_bytes,
        }  # fmt: skip
        self._running = self._child("leadline.recorder.detailer", [], nice=0, told=json.dumps(wanted))  # as `take`: what it misses is lost
        self._until = now.boot_ns + round((for_s + LONGER_S) * 1e9)
        taken = {"capture": f"{PLACE}/{name}", "at": now.wall_ns, "for_s": for_s, "why": why, "by_itself": by_itself, "status": "running"}
        kept = state.get("taken", [])
        state["spent"] = [[at, s] for at, s in state.get("spent", []) if self._counts(at, now)] + [[now.wall_ns, for_s]] * by_itself
        state["taken"], state["begun"] = [*kept, taken][-SHOWN:], state.get("begun", 0) + 1
        return str(taken["capture"])

    def _spent_s(self, state: dict[str, Any], now: Moment) -> float:
        """As it was begun, also of what ended early: a capture that fails at once must not be tried all the time."""
        return sum(float(seconds) for at, seconds in state.get("spent", []) if self._counts(at, now))

    @staticmethod
    def _counts(at: int, now: Moment) -> bool:
        """Also what seems to come later: the clock was set back meanwhile."""
        return now.wall_ns - at < HOUR_NS


def lines(of: dict[str, Any], bounds: dict[str, Any]) -> list[str]:
    """For --status. of: the state; bounds: the settings."""
    if not of.get("begun"):
        return []
    rest = "".join(
        f", {of[key]} {word}" for key, word in (("failed", "failed"), ("removed", "removed by the limit of size")) if of.get(key)
    )
    if of.get("over_budget"):
        rest += f", {of['over_budget']} not taken for lack of budget ({bounds.get('budget_s', 0.0):.0f} s an hour)"
    found = [f"  detail    {of['begun']} captures{rest}"]
    for taken in of["taken"][-5:]:
        found.append(f"  detail    {as_utc(taken['at'])}: {taken['capture']}, {taken['for_s']:.0f} s, {taken['status']}; {taken['why']}")
        if taken.get("absent"):
            found.append("            without " + "; ".join(f"{name}: {why}" for name, why in taken["absent"].items()))
    return found
