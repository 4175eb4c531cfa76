"""What every experiment and study does: registers its design, then runs trials, each a run of the book, and takes their figures."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leadline.book.command import Outcome, run_measured
from leadline.book.experiments.design import METRICS, pattern_of, seal
from leadline.book.experiments.matching import MOST_CPU_S, TooMuch, last_match
from leadline.book.experiments.query import tries_of
from leadline.book.facts import evidence, facts, file_event
from leadline.book.log import Log
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.recorder import as_event
from leadline.book.spool import UID_LENGTH, UID_LETTERS, as_json
from leadline.book.supervisor import Request
from leadline.errors import LeadlineError

JOIN = "LEADLINE_EXPERIMENT"  # in the environment of an experiment or study: the uid of the run that it is
MOST_OUTPUT = 4 << 20  # bytes of the end of an output in which a figure is looked for
LONGEST_FIGURE = 60
Tell = Callable[[str], None]
Check = Callable[[float], tuple[float | None, str]]  # gives the figure, or why it is none


class Events:
    """Appends to the spool of a run that its supervisor records. Unlike there, what cannot be written ends the experiment."""

    def __init__(self, place: Place, uid: str, part: str = "experiment") -> None:
        if len(uid) != UID_LENGTH or set(uid) - set(UID_LETTERS):
            raise LeadlineError("usage", f"{JOIN} names no run")
        self._n, self._part = 0, part
        try:
            self._fd = os.open(place.spool_name(uid), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as e:
            raise LeadlineError("storage", "the design cannot be registered, so no trial is run", detail=e.strerror or "") from e

    def append(self, kind: str, **body: Any) -> None:
        """One whole line, on the disk before this returns."""
        self._append(f"{self._part}.{kind}", body)

    def made(self, kind: str, path: Path) -> None:
        """What was made beside a trial, as evidence."""
        self._append("artifact", {"artifact_kind": kind, "path": str(path.absolute())} | as_event(evidence(str(path))))

    def _append(self, kind: str, body: Mapping[str, Any]) -> None:
        self._n += 1
        line = as_json({"n": self._n, "ts": now_us(), "kind": kind} | dict(body)).encode() + b"\n"
        try:
            if os.write(self._fd, line) != len(line):
                raise LeadlineError("storage", "there is no room to record the experiment")
            os.fsync(self._fd)
            unlinked = os.fstat(self._fd).st_nlink == 0
        except OSError as e:
            raise LeadlineError("storage", "the experiment cannot be recorded", detail=e.strerror or "") from e
        if unlinked:  # who looked at the book found the supervisor gone, and closed the record
            raise LeadlineError("gone", "what records this run was killed, so it cannot go on")


def now_us() -> int:
    return time.time_ns() // 1000


class Registered:
    """A run of the book with a design that is on the disk before its first trial begins. part: experiment or study, of its events."""

    def __init__(self, place: Place, uid: str, name: str, tell: Tell, part: str) -> None:
        self.place, self.uid, self.name, self.tell = place, uid, name, tell
        self.events = Events(place, uid, part)
        self.seal = ""

    def register(self, text: str, question: str) -> None:
        """Before anything is run. The seal goes into each trial too, so that to forge the design would take to forge all of them."""
        book = Book(self.place)
        try:
            tries = {row["seal"]: row["uid"] for row in reversed(tries_of(book.store, question)) if row["uid"] != self.uid}
            earlier = list(reversed(tries.values()))  # of the parts of one study, its first
        finally:
            book.close()
        registered = now_us()
        self.seal = seal(self.uid, registered, text)
        self.events.append("design", design=text, question=question, registered=registered, seal=self.seal, earlier=earlier)
        self.tell(f"registered {self.seal[:16]} before the first trial, as run {self.uid[:5]}")

    def run_trial(
        self, uid: str, role: str, argv: Sequence[str], inputs: Mapping[str, Any], *, env: Mapping[str, str] | None = None,
        shown: Sequence[str] = (), makes: Mapping[str, str] | None = None,
    ) -> Outcome:  # fmt: skip
        """As a run of its own below this one. Raises KeyboardInterrupt if somebody asked us to end meanwhile."""
        about = {"experiment": self.uid, **inputs, "registered": self.seal}
        request = Request(
            list(argv), uid, "leg", f"{self.name}: {role}", inputs=about, parent=self.uid, quiet=True, env=dict(env or {}),
            shown=list(shown), makes=dict(makes or {}),
        )  # fmt: skip
        try:
            outcome = run_measured(request)
        except LeadlineError as e:
            return Outcome(127, None, False, e.message)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome

    def value(self, metric: str, uid: str, outcome: Outcome) -> tuple[float | None, str]:
        """Of a trial that has ended well: what it used, or the figure in its output; or why there is none."""
        if metric not in METRICS:
            return figure_in(self.place, uid, metric)
        if outcome.used is None:
            return None, "its recorder was killed, so what it used is not known"
        found = {"seconds": outcome.used.seconds, "cpu_seconds": outcome.used.cpu_s, "max_rss_bytes": outcome.used.max_rss_bytes}[metric]
        if found is None:
            return None, "it used less memory than what starts it, so the kernel does not tell how much"
        return positive(float(found))


def ended(outcome: Outcome) -> str:
    if outcome.said:
        return outcome.said
    return f"exit code {outcome.code}" if outcome.code else ""


def positive(value: float) -> tuple[float | None, str]:
    return (value, "") if 0 < value < float("inf") else (None, f"{value:g} has no ratio")


def finite(value: float) -> tuple[float | None, str]:
    """Of a metric that is not compared."""
    return (value, "") if math.isfinite(value) else (None, f"{value:g} is no figure")


def check_of(compared: bool) -> Check:
    """compared: whether levels are compared by the metric."""
    return positive if compared else finite


def figure_in(place: Place, uid: str, metric: str, check: Check = positive) -> tuple[float | None, str]:
    """The figure that an output has last, or why there is none."""
    try:
        log = Log(place, uid)
    except OSError:
        return None, "it printed nothing"
    try:
        start = max(0, log.size - MOST_OUTPUT)
        output = b"".join(log.pieces(start, MOST_OUTPUT))
    finally:
        log.close()
    try:
        text = last_match(pattern_of(metric).pattern, output)
    except TooMuch:
        return None, f"to look for the metric in the output takes more than {MOST_CPU_S} s"
    if text is None:
        return None, "the metric is not in the output"
    if not re.fullmatch(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?", text) or len(text) > LONGEST_FIGURE:
        return None, f"{text[:40]!r} is no number"
    try:
        return check(float(text))
    except ValueError:
        return None, f"{text!r} is no number"


def fingerprint(commands: Sequence[Sequence[str]]) -> dict[str, str]:
    """What must not change while the trials run: the host, and the programs and files that the commands name."""
    out = facts()
    paths = {shutil.which(command[0]) or command[0] for command in commands} | {word for command in commands for word in command[1:]}
    for path in sorted(paths):
        if "\0" not in path and (about := file_event(path)) is not None:
            of = f"sha256 {about['hash'][:16]}" if "hash" in about else f"modified {about['modified']}"
            out[f"file {Path(about['path'])}"] = f"{about['size']} bytes, {of}"
    return out
