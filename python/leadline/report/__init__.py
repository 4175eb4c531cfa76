"""The report: one HTML file of a capture that needs nothing but itself, neither a network nor leadline.

model.py gathers the numbers, template.html.j2 lays them out, charts.py has the charts, markdown.py the texts of the
findings. Everything that comes from a server is escaped by the template.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from markupsafe import Markup

from leadline.capture import open_capture
from leadline.errors import LeadlineError
from leadline.findings import evaluate

DARK = """
  --paper: #12161b; --card: #1a1f26; --ink: #e3e8ee; --soft: #9aa5b1; --line: #313943; --faint: #252c35;
  --link: #7fb2f5; --critical: #ff8087; --high: #ff9f66; --medium: #e3c04b; --low: #7cc4d8; --info: #9aa5b1;
  --code: #232a33; --warn: #322a15; --warn-line: #6b5820;
"""


def write_report(capture_path: str | Path, out_html: str | Path) -> Path:
    """Writes the report of a capture and returns its path. Raises LeadlineError when it cannot be read or written."""
    from leadline.report.model import build

    capture = open_capture(capture_path)
    try:
        page = render(build(capture, evaluate(capture)))
    finally:
        capture.close()
    out = Path(out_html)
    temporary = out.with_name(out.name + ".tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(out)
    except OSError as e:
        raise LeadlineError("storage", f"the report cannot be written: {e.strerror}", where=str(out)) from e
    return out


def breakable(name: str) -> Markup:
    """A name like BufferContent or public.order_items as HTML that may be broken between its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z])(?=[A-Z])|(?<=[._])", name))


def render(model: dict[str, Any]) -> str:
    """The page of a model (model.build)."""
    import jinja2

    from leadline import figures
    from leadline.cli import version
    from leadline.report import charts
    from leadline.report.model import files
    from leadline.wait_classes import ORDER, wait_class

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"seconds": figures.seconds, "percent": figures.percent, "quantity": figures.quantity, "count": figures.count}
    environment.filters["breakable"] = breakable
    specs = {name: model[name] for name in ("time_chart", "lane_chart") if model[name]}
    parts = files()
    colours = [f"--c{i}: {c.light};" for i, c in enumerate(ORDER)] + ["--cx: #7a828c;"]
    dark_colours = [f"--c{i}: {c.dark};" for i, c in enumerate(ORDER)] + ["--cx: #98a1ad;"]
    index = {c.name: i for i, c in enumerate(ORDER)}
    style = parts["style.css"].replace("DARK", DARK + " ".join(dark_colours)) + "\n:root { " + " ".join(colours) + " }\n"
    return environment.get_template("template.html.j2").render(
        model,
        version=version(),
        style=style,
        script=parts["page.js"],
        library=charts.library() if specs else "",
        specs=specs,
        stills={name: charts.still(spec) for name, spec in specs.items() if name == "time_chart"},
        palettes={"light": charts.palette(dark=False), "dark": charts.palette(dark=True)},
        colour=lambda name: f"var(--c{index.get(name, 'x')})",
        meaning=lambda name: wait_class(name).meaning,
    )
