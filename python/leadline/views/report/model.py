"""Everything the report shows, as one dictionary for the template: numbers are formatted there, not here."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from leadline.capture.manifest import Manifest
from leadline.capture.reader import Capture
from leadline.figures import cell, quantity
from leadline.findings import Evaluation, Finding, all_findings
from leadline.views import where
from leadline.views.lock_tree import count_roots, lock_trees
from leadline.views.report import charts
from leadline.views.report.markdown import to_html
from leadline.views.spenders import hot_blocks, objects, sessions, statements
from leadline.views.where import Window

MOST_EVIDENCE = 20
SMALL_TREE = 0.05  # of the seconds lost in the worst lock chain: smaller ones are folded away


def build(capture: Capture, evaluation: Evaluation) -> dict[str, Any]:
    of = where.window(capture)
    classes = where.by_class(capture)
    slices = where.over_time(capture, of)
    trees = lock_trees(capture, 6)
    return {
        "name": capture.path.resolve().name,
        **_manifest(capture.manifest),
        "interrupted": capture.interrupted,
        "window": of,
        "classes": classes,
        "cpu": where.cpu_split(capture),
        "outside": where.outside(capture),
        "time_chart": charts.time_chart(slices, of) if slices else None,
        "lane_chart": _lane_chart(capture, of),
        "statements": statements(capture),
        "objects": objects(capture),
        "blocks": hot_blocks(capture),
        "unseen": {table: capture.unavailable(table) for table in ("lock_wait", "buffer_wait")},
        "sessions": sessions(capture),
        "trees": trees,
        "large_trees": sum(t.seconds >= SMALL_TREE * trees[0].seconds for t in trees),
        "roots": count_roots(capture),
        "findings": [_finding(f, of) for f in evaluation.findings],
        "not_evaluated": evaluation.not_evaluated,
        "clean": evaluation.clean,
        "not_measured": where.not_measured(capture),
        "facts": [(row["name"], _fact(row["name"], row["value"])) for row in capture.rows("from host_fact order by name")],
        "settings": _settings(capture),
        "mounts": capture.rows("select * from mount where holds <> '' order by mount_point"),
        "devices": capture.rows("select * from block_device order by name"),
    }


def _manifest(m: Manifest) -> dict[str, Any]:
    """The parts of the manifest the page shows, each with every key: an interrupted capture has few of them."""
    sessions = m.probe("sessions")
    server = {"server_version": m.target.version or "of unknown version", "max_connections": None, "data_dir": ""}
    access = {"shared_memory": "not read", "private_memory": False, "why": ""}
    return {
        "error": m.error,
        "target": server | {name: value for name, value in m.target.detail.items() if value is not None},
        "host": m.host,
        "access": access | sessions.access,
        "layout_checks": sessions.detail.get("layout_checks", []),
        "loss": sessions.loss,
        "cost": m.cost,
    }


def _fact(name: str, value: str) -> str:
    """Bytes for people; other values as the kernel prints them."""
    return quantity(int(value), "B") if name.endswith("_bytes") and value.isdigit() else value


def _settings(capture: Capture) -> list[dict[str, Any]]:
    """Settings that are not the built-in default. What leadline's own connection set for itself is left out."""
    rows = capture.rows(
        """
        select * from setting
        where source not in ('default', 'override', 'client', 'session') and (setting is distinct from boot_val or pending_restart)
        order by name
        """
    )
    return [row | {"value": setting(row["setting"], row["unit"]), "default": setting(row["boot_val"], row["unit"])} for row in rows]


def setting(value: str, unit: str) -> str:
    """16384 in units of 8kB is 128 MB; a value that is no number, or means off, stays as it is."""
    match = re.fullmatch(r"(\d*)(B|kB|MB|GB)", unit or "")
    if not match or not value.isdigit():
        return f"{value} {unit}".strip() if value.isdigit() else value
    size = int(value) * int(match[1] or 1) * 1024 ** ("B", "kB", "MB", "GB").index(match[2])
    for factor, name in ((1024**3, "GB"), (1024**2, "MB"), (1024, "kB")):
        if size and size % factor == 0:
            return f"{size // factor} {name}"
    return f"{size} B"


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
    folder = Path(__file__).parent
    return {name: (folder / name).read_text(encoding="utf-8") for name in ("style.css", "page.js")}
