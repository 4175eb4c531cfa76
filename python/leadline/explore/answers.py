"""What the page asks a capture, as values for JSON. Each question has a cursor of its own, so that questions run beside each other."""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from leadline.capture.gaps import gaps
from leadline.capture.manifest import CLIENT, read_manifest
from leadline.capture.reader import Capture, Tell, open_capture, why_unavailable
from leadline.errors import LeadlineError
from leadline.explore import queries
from leadline.explore.marks import marks
from leadline.explore.queries import RANKINGS, Asked, Query
from leadline.findings import Evaluation, evaluate
from leadline.recorder.window import cut
from leadline.views import where
from leadline.views.lock_tree import lock_trees
from leadline.views.wait_classes import ORDER, wait_class

MOST_TREES = 6
SCRATCH = "leadline-explore-{pid}-"  # whose directory it is, if it was killed
RUN_QUEUE = {"name": "run queue", "meaning": "ready to run, and waiting for a CPU", "light": "#93cfa3", "dark": "#1d6b3a"}


def check_explorable(path: Path) -> None:
    """Without opening it. Raises LeadlineError for what is no capture, or one without samples of sessions."""
    if reason := why_unavailable(path, read_manifest(path), "db_time"):
        raise LeadlineError(
            "not_found",
            "the capture has no samples of sessions to explore",
            reason,
            f"leadline show {shlex.quote(str(path))} shows what it has",
            str(path),
        )


def open_explored(path: Path, tell: Tell | None = None) -> Explorer:
    """Raises LeadlineError for a capture without samples of sessions."""
    check_explorable(path)
    return Explorer(open_capture(path, hold=True, tell=tell))


def palette() -> dict[str, Any]:
    """What stacks and rankings are called, and the colours of wait classes."""
    colours = [{"name": c.name, "meaning": c.meaning, "light": c.light, "dark": c.dark} for c in ORDER]
    colours.insert(1, RUN_QUEUE)
    rankings = [{"name": name, "label": label} for name, label in RANKINGS.items()]
    return {"rankings": rankings, "classes": colours, "unknown": asdict(wait_class(""))}


class Explorer:
    """notes: what else the page says of the capture."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.notes: list[str] = []
        self._evaluating = threading.Lock()
        self.window = where.window(capture)
        reach = capture.rows("select min(ts) as first, max(ts + period_ns) as last from tick")[0]
        row = capture.rows("select ts_from, ts_to from capture")[0]
        self.ts_from: int = min(ts for ts in (row["ts_from"], reach["first"], 1 << 62) if ts is not None)
        self.ts_to: int = max(ts for ts in (row["ts_to"], reach["last"], self.ts_from + 1) if ts is not None)
        # Between two readings of the scheduler's counters; 0 without any.
        self.counted_ns = int(capture.scalar("select coalesce(median(dt_ns), 0) from session_delta"))
        capture.prepare("db_time tick statement session lock_wait lock_look lock_chain hot_block session_sample prepared_xact")

    @contextmanager
    def cursor(self) -> Iterator[Capture]:
        cursor = self.capture.db.cursor()
        try:
            yield replace(self.capture, db=cursor)
        finally:
            cursor.close()

    def rows(self, query: Query) -> list[dict[str, Any]]:
        with self.cursor() as capture:
            return capture.rows(query.sql, query.values)

    # -- what does not depend on the window ----------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        of = self.window
        notes = list(gaps(self.capture))
        if self.capture.every_pass > 1:
            notes.append(where.thinned(self.capture.every_pass))
        if (span_s := self.capture.manifest.clock.span_s) is not None:
            notes.append(f"the capture is coarse: {where.coarse_words(span_s)}")
        if unseen := self.capture.unseen(["session_run"]):
            notes.append(unseen)
        if self.capture.interrupted:
            notes.append("the capture was interrupted: it has what was recorded until then")
        if not of.ticks:
            notes.append("no passes were recorded, so no times are known")
        elif not of.db_time_s:
            notes.append("no session was active")
        return palette() | self.named() | {
            "began": of.began.isoformat() if of.began else None,
            "cpu_count": of.cpu_count,
            "rate_hz": of.rate_hz,
            "counted_s": self.counted_ns / 1e9,
            "notes": [*notes, *self.notes],
        }

    def named(self) -> dict[str, Any]:
        path = self.capture.path
        return {"name": path.name, "path": str(path), "window_s": (self.ts_to - self.ts_from) / 1e9}

    def marks(self) -> dict[str, Any]:
        return {"kinds": self._marks}

    @cached_property
    def _marks(self) -> list[dict[str, Any]]:
        with self.cursor() as capture:
            return marks(capture, self.ts_from)

    def findings(self) -> dict[str, Any]:
        """Of the whole capture, most costly first."""
        with self._evaluating:
            return {"findings": self._findings}

    @cached_property
    def _findings(self) -> list[dict[str, Any]]:
        return self._told(evaluate(self.capture))

    def findings_of(self, asked: Asked) -> dict[str, Any]:
        """Of a window, of all sessions: the rules over a copy of its rows. left: rules without the evidence that they need there."""
        with self._evaluating, tempfile.TemporaryDirectory(prefix=SCRATCH.format(pid=os.getpid())) as scratch:
            part = cut(self.capture.path, asked.ts_from, asked.ts_to, Path(scratch) / "window.leadline")
            with closing(open_capture(part, hold=True)) as capture:
                found = evaluate(capture)
        left = [{"id": rule, "why": why} for rule, why in found.not_evaluated]
        return {"findings": self._told(found), "left": left, "clean": len(found.clean)}

    def _told(self, found: Evaluation) -> list[dict[str, Any]]:
        said = ("id", "title", "severity", "statement", "cost_s")
        return [
            {name: getattr(f, name) for name in said} | {"from_s": (f.ts_from - self.ts_from) / 1e9, "to_s": (f.ts_to - self.ts_from) / 1e9}
            for f in found.findings
        ]

    # -- of a window and its filters -----------------------------------------------------------------------------------

    def over_time(self, asked: Asked) -> dict[str, Any]:
        step_ns = self.step_ns(asked)
        spent, seen = queries.over_time(asked, step_ns, self.counted_ns), queries.passes(asked, step_ns)
        return {
            "from_s": (asked.ts_from - self.ts_from) / 1e9,
            "to_s": (asked.ts_to - self.ts_from) / 1e9,
            "step_s": step_ns / 1e9,
            "last": queries.last_step(asked, step_ns),
            "passes": self.rows(seen),
            "rows": self.rows(spent),
            "filters": [{"by": name, "key": str(value), "label": self.label(name, str(value))} for name, value in asked.filters],
            "sql": [spent.shown, seen.shown],
        }

    def step_ns(self, asked: Asked) -> int:
        """A round time: at most MOST_STEPS of them, each of ten passes or more."""
        period_s = 1 / self.window.rate_hz if self.window.rate_hz else 0
        return round(where.time_step((asked.ts_to - asked.ts_from) / 1e9, period_s, queries.MOST_STEPS) * 1e9)

    def ranking(self, asked: Asked, by: str) -> dict[str, Any]:
        query = queries.ranking(asked, by)
        rows = self.rows(query)
        there, total_s = (rows[0]["there"], rows[0]["total_s"]) if rows else (0, 0.0)
        listed = [
            {"key": row["key"], "label": self.label(by, row["key"]), "seconds": row["seconds"], "classes": row["classes"]} for row in rows
        ]
        return {"by": by, "rows": listed, "there": there, "total_s": total_s, "sql": [query.shown]}

    def locks(self, asked: Asked) -> dict[str, Any]:
        """The lock trees of the window; of all sessions, whatever the filters, as a tree without its root says nothing."""
        query = queries.lock_chains(asked)
        with self.cursor() as capture:
            for view in ("lock_chain", "lock_wait", "session_sample"):  # in front of those of the whole capture, for this cursor alone
                schema = capture.db.execute("select current_database()").fetchone()
                whole = f'"{schema[0] if schema else "memory"}".main.{view}'
                capture.db.execute(f"create temp view {view} as from {whole} where ts >= {asked.ts_from:d} and ts < {asked.ts_to:d}")
            trees = [asdict(tree) for tree in lock_trees(capture, MOST_TREES)]
            there = len(capture.rows(query.sql, query.values))
        return {"trees": trees, "there": there, "sql": [query.shown]}

    # -- names ---------------------------------------------------------------------------------------------------------

    def label(self, by: str, key: str) -> str:
        """A value of a dimension for people."""
        if key == "":
            return "(none)" if by != "statement" else "(no statement known)"
        if by == "statement":
            return self.statements.get(key) or "(text not known)"
        if by == "session":
            return self._sessions.get(key) or f"session {key}"
        return key

    @cached_property
    def statements(self) -> dict[str, str]:
        with self.cursor() as capture:
            rows = capture.rows("select statement_id::varchar as key, any_value(query) as query from statement group by statement_id")
        return {row["key"]: " ".join((row["query"] or "").split()) for row in rows}

    @cached_property
    def _sessions(self) -> dict[str, str]:
        with self.cursor() as capture:
            rows = capture.rows(
                "select session_id::varchar as key, any_value(pid) as pid, arg_max(application_name, ts) as application, "
                "any_value(backend_type) as kind from session group by session_id"
            )
        who = {row["key"]: row["application"] if row["kind"] == CLIENT else row["kind"] for row in rows}
        return {row["key"]: f"pid {row['pid']} {who[row['key']] or ''}".strip() for row in rows}
