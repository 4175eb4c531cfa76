"""Everything the report shows, as one dictionary for the template: numbers are formatted there, not here."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from leadline.capture.manifest import Manifest
from leadline.capture.reader import Capture
from leadline.figures import cell
from leadline.findings import Evaluation, Finding, all_findings
from leadline.views import where
from leadline.views.grid import Grid
from leadline.views.lock_tree import count_roots
from leadline.views.report import charts
from leadline.views.report.markdown import to_html
from leadline.views.sections import Context
from leadline.views.sections.frame import cost_parts, facts, is_watched, title
from leadline.views.spenders import hot_blocks
from leadline.views.where import Window

MOST_EVIDENCE = 20
SMALL_TREE = 0.05  # of the seconds lost in the worst lock chain: smaller ones are folded away


def build(capture: Capture, evaluation: Evaluation) -> dict[str, Any]:
    at = Context(capture, evaluation)
    shown = [section for section in at.sections() if section.in_html]
    data = {section.key: at.data(section) for section in shown}
    tiles = [tile for section in shown if section.tiles for tile in section.tiles(at, data[section.key])]
    pictures = {key: grid.picture for key, grid in data.items() if isinstance(grid, Grid) and grid.picture and grid.picture.values}
    m, of = capture.manifest, at.window
    model = {
        "name": capture.path.resolve().name,
        "title": title(at),
        "sections": shown,
        "data_of": data,
        "tiles": tiles,
        "charts": {f"{key}_chart": charts.chart(picture) for key, picture in pictures.items()},
        "window": replace(of, began=m.clock.began),
        "how": _how(m) if is_watched(m.target.kind) else "; ".join(text for label, text in facts(at) if label not in ("tables", "window")),
        **_manifest(m),
        "interrupted": capture.interrupted,
        "findings": [_finding(f, of) for f in evaluation.findings],
        "not_evaluated": evaluation.not_evaluated,
        "clean": evaluation.clean,
        "not_measured": data["not_measured"],
        **data.get("target_facts", {}),
    }
    return model | (_sessions(at, data) if "db_time" in data else {})


def _sessions(at: Context, data: dict[str, Any]) -> dict[str, Any]:
    """What the sections of a server's sessions share."""
    capture, of = at.capture, at.window
    slices = where.over_time(capture, of)
    trees = data["lock_trees"]
    pictures = {"time_chart": charts.time_chart(slices, of) if slices else None, "lane_chart": _lane_chart(capture, of)}
    return pictures | {
        "classes": data["db_time"],
        "cpu": where.cpu_split(capture),
        "outside": where.outside(capture),
        "statements": data["statements"],
        "objects": data["objects"],
        "blocks": hot_blocks(capture),
        "unseen": {table: capture.unavailable(table) for table in ("lock_wait", "buffer_wait")},
        "sessions_seen": data["sessions"],
        "trees": trees,
        "large_trees": sum(t.seconds >= SMALL_TREE * trees[0].seconds for t in trees),
        "roots": count_roots(capture),
    }


def _how(m: Manifest) -> str:
    """How and how often it was looked at."""
    ways = {"shm": "read from shared memory", "sql": "read over SQL", "procfs": "read from /proc"}
    for probe in (m.probe("sessions"), m.probe("host")):
        if probe.looked and probe.rate_hz:
            return f"{ways.get(probe.tier or '', probe.tier)} at {probe.rate_hz:g} Hz"
    return ""


def _manifest(m: Manifest) -> dict[str, Any]:
    """The parts of the manifest the page shows, each with every key: an interrupted capture has few of them."""
    sessions = m.probe("sessions")
    server = {"kind": m.target.kind, "server_version": m.target.version or "of unknown version", "max_connections": None, "data_dir": ""}
    access = {"shared_memory": "not read", "private_memory": False, "why": ""}
    return {
        "error": m.error,
        "target": server | {name: value for name, value in m.target.detail.items() if value is not None},
        "host": m.host,
        "access": access | sessions.access if sessions.looked else None,
        "layout_checks": sessions.detail.get("layout_checks", []),
        "loss": sessions.loss,
        "cost_parts": cost_parts(m),
    }


def _lane_chart(capture: Capture, of: Window) -> dict[str, Any] | None:
    lanes = where.lanes(capture, of)
    if not lanes:
        return None
    rows = []
    for x in lanes:
        label = f"{x.pid} {x.application_name}".strip()
        rows.append({"session": label, "from": x.from_s, "to": x.to_s, "class": x.wait_class, "part": round(x.part, 3)})
    by_application = sorted(lanes, key=lambda x: (x.application_name, x.pid))
    order = list(dict.fromkeys(f"{x.pid} {x.application_name}".strip() for x in by_application))
    return charts.session_chart(rows, order, of)


def _finding(finding: Finding, of: Window) -> dict[str, Any]:
    """A finding with its texts as HTML, its evidence as a table, and where in the window it lies (0 to 1)."""
    rule = next(d for d in all_findings() if d.id == finding.id)
    columns, rows = evidence_table(finding.evidence, of.ts_from)
    from_s, to_s = (finding.ts_from - of.ts_from) / 1e9, (finding.ts_to - of.ts_from) / 1e9
    length = of.window_s or 1.0
    return asdict(finding) | {
        "from_s": from_s,
        "to_s": to_s,
        "begins": min(max(from_s / length, 0.0), 1.0),
        "lasts": min(max((to_s - from_s) / length, 0.004), 1.0),
        "action": to_html(finding.action),
        "verify": to_html(finding.verify),
        "shows": to_html(rule.sections["What it shows"]),
        "why": to_html(rule.sections["Why it matters"]),
        "wrong_when": to_html(rule.sections["Wrong when"]),
        "columns": columns,
        "rows": rows[:MOST_EVIDENCE],
        "more_rows": max(len(rows) - MOST_EVIDENCE, 0),
    }


def evidence_table(evidence: list[dict[str, Any]], ts_from: int) -> tuple[list[tuple[str, bool]], list[list[str]]]:
    """(name, numeric) per column in the order of first use, and the rows as text; a ts becomes seconds from the start."""
    names = list(dict.fromkeys(name for row in evidence for name in row))
    clock = {name for name in names if re.fullmatch(r"ts|ts_\w+|\w+_ts", name)}
    columns = []
    for name in names:
        found = [row.get(name) for row in evidence]
        numeric = any(isinstance(v, int | float) for v in found) and not any(isinstance(v, str | bool) for v in found)
        columns.append((f"{name} [s]" if name in clock and numeric else name, numeric))
    rows = []
    for row in evidence:
        values: list[str] = []
        for name, (_, numeric) in zip(names, columns):
            value = row.get(name)
            if name in clock and numeric and value is not None:
                value = round((value - ts_from) / 1e9, 3)
            values.append(cell(value))
        rows.append(values)
    return columns, rows


def files() -> dict[str, str]:
    """The texts beside this file that the template takes in."""
    directory = Path(__file__).parent
    return {name: (directory / name).read_text(encoding="utf-8") for name in ("style.css", "page.js")}
