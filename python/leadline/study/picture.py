"""Plots as one SVG file that stands alone, for a page of text: one below the other, and below them what they were measured on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any

from leadline.book.experiments.drawing import drawings
from leadline.book.experiments.studies import cell_names
from leadline.capture.manifest import MANIFEST, read_manifest
from leadline.errors import LeadlineError
from leadline.figures import count
from leadline.study.curves import WIDTH, Bar, bars
from leadline.study.loads import server_capture
from leadline.study.loopback import where

GAP, LINE, PER_LETTER = 12, 16, 6.2
# As in a report by day: the file is shown on a page of which it knows nothing.
STYLE = (
    "text{fill:#1b1f24;font:12px system-ui,sans-serif}.below{fill:#5b6470;font-size:11px}.one{stroke:#5b6470}.margin{fill:#2563a81a}"
    ".interval{stroke:#2563a8;stroke-width:3}circle{fill:#2563a8}"
)
_SIZE = re.compile(r'<svg viewBox="0 0 (\d+) (\d+)"')


def picture(plots: Sequence[str], below: Sequence[str]) -> str:
    """plots: HTML, of which the drawings are taken. below: paragraphs."""
    out, y, widest = list[str](), GAP, WIDTH
    for plot in plots:
        if size := _SIZE.match(plot):
            width, height = int(size[1]), int(size[2])
            out.append(f'<svg x="0" y="{y}" width="{width}" height="{height}"{plot[len("<svg") :]}')
            y, widest = y + height + GAP, max(width, widest)
    for line in [line for text in below for line in wrap(text, int(widest / PER_LETTER))]:
        y += LINE
        out.append(f'<text class="below" x="4" y="{y - 4}">{escape(line)}</text>')
    height = y + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{widest}" height="{height}" viewBox="0 0 {widest} {height}">'
    return f'{head}<style>{STYLE}</style><rect width="{widest}" height="{height}" fill="#fff"/>{"".join(out)}</svg>\n'


def of_study(found: Mapping[str, Any], plots: Sequence[str], over_time: Sequence[str], run: str, directory: Path) -> str:
    """found: of studies.study. plots: of its report; where there are none, the ratios with their intervals; where there are too few blocks
    for these, the figures of each cell. over_time: come after them. directory: of the study. Raises LeadlineError for a study that says
    nothing yet."""
    shown = [plot for plot in plots if _SIZE.match(plot)]
    if not shown and found["judged"] is not None:
        shown = drawings(found["judged"]["effects"], found["design"]) or figures(found)
    shown += over_time
    if not shown:
        detail = "it has no verdict yet, or no trial has ended well"
        raise LeadlineError("usage", "the study has no plot", detail=detail, hint=f"leadline study show {run}")
    return picture(shown, [*on_what(found, directory), f"Study {found['design']['name']}, run {run}."])


def figures(found: Mapping[str, Any]) -> list[str]:
    """Of each metric that is compared: the median of each cell, from the least to the most of its trials."""
    design, out = found["design"], []
    names = dict(zip(cell_names(dict(design)), (", ".join(cell) for cell in design["cells"])))
    for metric in design["metrics"]:
        rows = [row for row in found["rows"] if row["metric"] == metric["name"]]
        values = {cell: [row[cell] for row in rows if row[cell] is not None] for cell in names}
        shown = [Bar(names[cell], median(of), min(of), max(of)) for cell, of in values.items() if of]
        if metric.get("compared", True):
            out.append(bars(f"{metric['name']}, by {', '.join(factor['name'] for factor in design['factors'])}", shown))
    return [one for one in out if one]


def on_what(found: Mapping[str, Any], directory: Path) -> list[str]:
    """The pair, its version and settings, the seed and the day."""
    design = found["design"]
    server = design["server"]
    on = f"On {where(found)}." if server.get("standby") else ""
    manifests = (server_capture(directory, one["n"], one["run"]) for one in found["legs"])
    target = next((read_manifest(path).target for path in manifests if (path / MANIFEST).is_file()), None)
    facts = [f"PostgreSQL {target.version}", f"{target.cpu_count} CPUs"] if target is not None else []
    facts += [count(design["repetitions"], "block"), f"seed {design['seed']}"]
    facts.append(datetime.fromtimestamp(found["registered"] / 1e6, UTC).strftime("%Y-%m-%d"))
    said = {name: server.get(name, {}) for name in ("settings", "standby_settings")}
    settings = [f"{setting} = {value}" for of in said.values() for setting, value in of.items()]
    return [" ".join(filter(None, [on, f"{', '.join(facts)}.", f"{', '.join(settings)}." if settings else ""]))]
