"""Stacks with their weights: database time by whatever a sample says, or the functions of a trace. What pprof and speedscope show."""

from __future__ import annotations

from dataclasses import dataclass

from leadline.capture.reader import Capture
from leadline.errors import LeadlineError
from leadline.export.window import Span
from leadline.figures import one_line
from leadline.views.flame import KINDS, stacks

DATABASE = "database"
LONGEST = 120  # characters of a statement in a frame: viewers draw boxes of a few hundred pixels
# What a frame can be, and the SQL of it over a sample `s` of db_time and a statement `t`. null: there is no such frame.
FRAMES = {
    "database": "coalesce(nullif(s.database, ''), '(no database)')",
    "user": "coalesce(nullif(s.\"user\", ''), '(no user)')",
    "application": "coalesce(nullif(s.application, ''), '(no application)')",
    "client": "coalesce(nullif(s.client, ''), '(no client)')",
    "backend_type": "coalesce(nullif(s.backend_type, ''), '(no backend type)')",
    "pid": "'pid ' || s.pid",
    "state": "coalesce(s.state, '(no state)')",
    "statement": "s.statement_id",
    "wait_class": "s.wait_class",
    "wait_event": "s.wait_event",
}
DEFAULT = ("database", "application", "statement", "wait_class", "wait_event")
# Name of the values of each kind of stacks of a trace (views/flame.py), as other profilers call them.
VALUES = {"on-cpu": "cpu", "off-cpu": "off_cpu", "waker": "off_cpu", "failed": "failed_calls"}
ON_CPU_HZ = 99


@dataclass(frozen=True)
class Stack:
    """path: the root first. weight: in the profile's unit. samples: 0 where all of the weight comes from a counter."""

    path: tuple[str, ...]
    weight: int
    samples: int


@dataclass(frozen=True)
class Profile:
    """title: what it shows, and of what. value, unit: of the weights. Times in ns; began_ns since 1970, 0 if not known. period_ns: between
    two samples of one session or thread, 0 if there is no such time."""

    title: str
    value: str
    unit: str
    stacks: list[Stack]
    began_ns: int
    duration_ns: int
    period_ns: int

    @property
    def sum(self) -> int:
        return sum(stack.weight for stack in self.stacks)

    @property
    def samples(self) -> int:
        return sum(stack.samples for stack in self.stacks)


def profile(capture: Capture, kind: str, by: tuple[str, ...], pid: int | None, span: Span) -> Profile:
    """kind: DATABASE, or one of views.flame.KINDS. by: the frames of database time, the root first.

    Raises LeadlineError('not_found') when the capture has no such samples.
    """
    target = one_line(capture.manifest.target.name) or capture.path.name
    if kind == DATABASE:
        found = _database_time(capture, by, pid, span)
        title, value, unit = f"Database time of {target}", "database_time", "nanoseconds"
        period_ns = capture.scalar("select min(period_ns) from tick") or 0
    else:
        found = [Stack(tuple(map(one_line, path)), *counts) for path, counts in stacks(capture, kind, pid, span.of("s.ts")).items()]
        title, value = f"{KINDS[kind][1]}: {target}", VALUES[kind]
        unit = "nanoseconds" if KINDS[kind][2] == "ns" else "count"
        period_ns = 10**9 // ON_CPU_HZ if kind == "on-cpu" else 0
    found.sort(key=lambda stack: (-stack.weight, stack.path))
    return Profile(title, value, unit, found, span.began_ns, span.duration_ns, period_ns)


def _database_time(capture: Capture, by: tuple[str, ...], pid: int | None, span: Span) -> list[Stack]:
    if why := capture.unavailable("db_time"):
        with_stacks = capture.unavailable("stack_sample") is None
        hint = "--on-cpu exports the functions of the trace" if with_stacks else "leadline take TARGET --for 60s"
        raise LeadlineError("not_found", "this capture has no sampled sessions", detail=why, hint=hint)
    frames = ", ".join(f"{FRAMES[name]} as frame_{number}" for number, name in enumerate(by))
    one = "true" if pid is None else f"s.pid = {pid}"
    rows = capture.rows(
        f"""select {frames}, sum(s.weight_s)::double as seconds, count(*) filter (not s.from_counter) as samples
        from db_time s where {one} and {span.of("s.ts")} group by all order by all"""
    )
    if not rows:
        raise LeadlineError("not_found", "no database time in this capture", hint=f"leadline show {capture.path}")
    names = statement_names(capture) if "statement" in by else {}
    found = []
    seconds, given = 0.0, 0
    for row in rows:
        path = [_frame(name, row[f"frame_{number}"], names) for number, name in enumerate(by)]
        # Each stack gets what the sum has grown by, in whole ns: the sum over all stacks is that of db_time, rounded once.
        seconds += row["seconds"]
        weight = round(seconds * 1e9) - given
        given += weight
        found.append(Stack(tuple(part for part in path if part), weight, row["samples"]))
    return found


def _frame(name: str, value: str | int | None, names: dict[int, str]) -> str:
    if name == "statement":
        return "(unknown statement)" if value is None else names.get(int(value), f"statement {value}")
    return one_line(str(value)) if value is not None else ""


def statement_names(capture: Capture) -> dict[int, str]:
    """Text of each statement on one line, cut; with its id where two are alike up to there, as a viewer takes equal names for one."""
    rows = capture.rows("select statement_id, min(query) as query from statement group by 1 order by 1")
    names = {row["statement_id"]: shortened(row["query"]) for row in rows}
    seen: dict[str, int] = {}
    for name in names.values():
        seen[name] = seen.get(name, 0) + 1
    return {number: name if seen[name] == 1 else f"{name} [{number}]" for number, name in names.items()}


def shortened(query: str | None) -> str:
    line = one_line(query or "") or "(no text)"
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
