"""Runs an experiment within a run of the book: registers the design, then runs the legs, each a run of its own, and judges them."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.book.command import Outcome, run_measured
from leadline.book.experiments.design import METRICS, SIDES, Design, pattern_of, seal, words
from leadline.book.experiments.matching import MOST_CPU_S, TooMuch, last_match
from leadline.book.experiments.query import tries_of
from leadline.book.facts import facts, file_event, read_text
from leadline.book.log import Log
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.spool import UID_LENGTH, UID_LETTERS, as_json, new_uid
from leadline.book.supervisor import Request
from leadline.errors import LeadlineError
from leadline.lab.signed_rank import signed_rank_ratio
from leadline.lab.verdict import verdict

JOIN = "LEADLINE_EXPERIMENT"  # in the environment of `leadline experiment`: the uid of the run that it is
MOST_OUTPUT = 4 << 20  # bytes of the end of an output in which a figure is looked for
LONGEST_FIGURE = 60
Tell = Callable[[str], None]


class Events:
    """Appends to the spool of a run that its supervisor records. Unlike there, what cannot be written ends the experiment."""

    def __init__(self, place: Place, uid: str) -> None:
        if len(uid) != UID_LENGTH or set(uid) - set(UID_LETTERS):
            raise LeadlineError("usage", f"{JOIN} names no run")
        self._n = 0
        try:
            self._fd = os.open(place.spool_name(uid), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as e:
            raise LeadlineError("storage", "the design cannot be registered, so no leg is run", detail=e.strerror or "") from e

    def append(self, kind: str, **body: Any) -> None:
        """One whole line, on the disk before this returns."""
        self._n += 1
        line = as_json({"n": self._n, "ts": now_us(), "kind": f"experiment.{kind}"} | body).encode() + b"\n"
        try:
            if os.write(self._fd, line) != len(line):
                raise LeadlineError("storage", "there is no room to record the experiment")
            os.fsync(self._fd)
        except OSError as e:
            raise LeadlineError("storage", "the experiment cannot be recorded", detail=e.strerror or "") from e


@dataclass
class Measured:
    """A leg. value: None with a problem."""

    number: int
    side: str
    uid: str
    value: float | None
    problem: str = ""


def now_us() -> int:
    return time.time_ns() // 1000


class Experiment:
    def __init__(self, design: Design, place: Place, uid: str, name: str, tell: Tell) -> None:
        self.design, self.place, self.uid, self.name, self.tell = design, place, uid, name, tell
        self.events = Events(place, uid)
        self.seal = ""
        self.legs: list[Measured] = []

    def perform(self) -> None:
        """Raises LeadlineError when a leg ends it, and KeyboardInterrupt when it was interrupted."""
        design, before = self.design, fingerprint(self.design)
        self._register()
        for n in range(design.warmup):
            for side in SIDES:
                self._leg("warmup", 2 * n + SIDES.index(side), side)
        order, failed = design.order, None
        for n, letter in enumerate(order):
            if n % 2 == 0:
                self.tell(f"pair {n // 2 + 1} of {design.pairs}")
            leg = self._leg("leg", n, SIDES["BV".index(letter)])
            self.legs.append(leg)
            if leg.problem and not design.keep_going:
                failed = leg
                break
        self._judge(before, failed)
        if failed is not None:
            raise LeadlineError("gone", self._failed(failed), hint=f"leadline book log {failed.uid[:5]}; or --keep-going")

    def _failed(self, leg: Measured) -> str:
        return f"leg {leg.number + 1} of {2 * self.design.pairs} ({leg.side}, run {leg.uid[:5]}) failed: {leg.problem}"

    def _register(self) -> None:
        """Before anything is run. The seal goes into each leg too, so that to forge the design would take to forge all of them."""
        book = Book(self.place)
        try:
            earlier = [row["uid"] for row in tries_of(book.store, self.design.question) if row["uid"] != self.uid]
        finally:
            book.close()
        registered, text = now_us(), self.design.as_text()
        self.seal = seal(self.uid, registered, text)
        self.events.append(
            "design", design=text, question=self.design.question, registered=registered, seal=self.seal, earlier=earlier
        )  # fmt: skip
        self.tell(f"registered {self.seal[:16]} before the first leg, as run {self.uid[:5]}")

    def _leg(self, part: str, n: int, side: str) -> Measured:
        design = self.design
        if design.prepare:
            uid, started = new_uid(), now_us()
            outcome = self._run(uid, "prepare", design.prepare, {"before": f"{part} {n + 1}"})
            problem = _ended(outcome)
            self.events.append("leg", part="prepare", number=self._prepared, side="", leg=uid, started=started, value=None, problem=problem)
            self._prepared += 1
            if problem:
                raise LeadlineError("gone", f"what prepares {part} {n + 1} (run {uid[:5]}) failed: {problem}",
                                    hint=f"leadline book log {uid[:5]}")  # fmt: skip
        uid, started = new_uid(), now_us()
        command = design.baseline if side == "baseline" else design.variant
        outcome = self._run(uid, side, command, {part: n + 1, "side": side})
        value, problem = (None, _ended(outcome)) if part == "warmup" or outcome.code else self._value(uid, outcome)
        self.events.append("leg", part=part, number=n, side=side, leg=uid, started=started, value=value, problem=problem)
        return Measured(n, side, uid, value, problem)

    _prepared = 0

    def _run(self, uid: str, role: str, command: str, inputs: dict[str, Any]) -> Outcome:
        about = {"experiment": self.uid, **inputs, "registered": self.seal}
        request = Request(words(command, role), uid, "leg", f"{self.name}: {role}", inputs=about, parent=self.uid, quiet=True)
        try:
            outcome = run_measured(request)
        except LeadlineError as e:
            return Outcome(127, None, False, e.message)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome

    def _value(self, uid: str, outcome: Outcome) -> tuple[float | None, str]:
        metric = self.design.metric
        if metric not in METRICS:
            return figure_in(self.place, uid, metric)
        if outcome.used is None:
            return None, "its recorder was killed, so what it used is not known"
        found = {"seconds": outcome.used.seconds, "cpu_seconds": outcome.used.cpu_s, "max_rss_bytes": outcome.used.max_rss_bytes}[metric]
        if found is None:
            return None, "it used less memory than what starts it, so the kernel does not tell how much"
        return _positive(float(found))

    def _judge(self, before: dict[str, str], failed: Measured | None) -> None:
        design, values = self.design, {leg.number: leg.value for leg in self.legs}
        pairs = []
        for at in range(0, len(design.order), 2):
            one, other = values.get(at), values.get(at + 1)
            if one is not None and other is not None:
                pairs.append((one, other) if design.order[at] == "B" else (other, one))
        ratio = signed_rank_ratio(pairs) if pairs and failed is None else None
        found = verdict(
            ratio, quantity=design.quantity, margin=design.margin, better=design.better, is_time=design.is_time, pairs=len(pairs)
        )  # fmt: skip
        text = f"no verdict: {self._failed(failed)}" if failed is not None else found.text
        left_out = [leg for leg in self.legs if leg.problem]
        if left_out and failed is None:
            sides = ", ".join(f"{sum(leg.side == side for leg in left_out)} of the {side}" for side in SIDES)
            text += f"; {design.pairs - len(pairs)} of {design.pairs} pairs are left out, in which legs failed ({sides})"
        after = fingerprint(design)
        names = sorted({*before, *after})
        differs = [[name, before.get(name, ""), after.get(name, "")] for name in names if before.get(name) != after.get(name)]
        shown = ratio is not None and ratio.high < float("inf")
        self.events.append(
            "verdict", verdict=found.word, good=found.good, text=text, pairs=len(pairs), differs=differs,
            ratio=ratio.estimate if ratio is not None else None, low=ratio.low if ratio is not None and shown else None,
            high=ratio.high if ratio is not None and shown else None,
        )  # fmt: skip


def _ended(outcome: Outcome) -> str:
    if outcome.said:
        return outcome.said
    return f"exit code {outcome.code}" if outcome.code else ""


def _positive(value: float) -> tuple[float | None, str]:
    return (value, "") if 0 < value < float("inf") else (None, f"{value:g} has no ratio")


def figure_in(place: Place, uid: str, metric: str) -> tuple[float | None, str]:
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
        return _positive(float(text))
    except ValueError:
        return None, f"{text!r} is no number"


def fingerprint(design: Design) -> dict[str, str]:
    """What must not change while the legs run: the host, and the programs and files that the commands name."""
    out = facts()
    model = re.search(r"^model name\s*: (.*)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    if model:
        out["cpu.model"] = model[1]
    named = [words(command, "command") for command in (design.baseline, design.variant, design.prepare) if command]
    paths = {shutil.which(command[0]) or command[0] for command in named} | {word for command in named for word in command[1:]}
    for path in sorted(paths):
        if "\0" not in path and (about := file_event(path)) is not None:
            of = f"sha256 {about['hash'][:16]}" if "hash" in about else f"modified {about['modified']}"
            out[f"file {Path(about['path'])}"] = f"{about['size']} bytes, {of}"
    return out
