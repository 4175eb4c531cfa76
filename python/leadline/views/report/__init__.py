"""The report: one HTML file of a capture that needs nothing but itself, neither a network nor leadline.

model.py gathers the numbers, template.html.j2 lays them out, charts.py has the charts, markdown.py the texts of the
findings. Everything that comes from a server is escaped by the template.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from markupsafe import Markup

from leadline.book.recorder import current
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.replacing import make_room, write_whole


def write_report(capture_path: str | Path, out_html: str | Path, *, overwrite: bool = False) -> Path:
    """Writes the report of a capture and returns its path. overwrite: replace a file that is there.

    Raises LeadlineError when the capture cannot be read or the report cannot be written.
    """
    out = Path(out_html)
    make_room(out, overwrite=overwrite)
    page = report_of(capture_path)
    current().artifact("report", out)
    return write_whole(out, page, "the report", overwrite=overwrite)


def check_packages(command: str, extra: str) -> None:
    """A host of a database that only records needs no charts. Raises LeadlineError."""
    if importlib.util.find_spec("vl_convert") is None:
        raise LeadlineError("unsupported", f"{command} needs the package vl-convert-python: pip install 'leadline[{extra}]'")


def report_of(capture_path: str | Path) -> str:
    """The report of a capture, as a page. Raises LeadlineError when the capture cannot be read."""
    check_packages("a report", "report")
    from leadline.views.report.model import build

    capture = open_capture(capture_path, hold=True)
    try:
        return render(build(capture, evaluate(capture)))
    finally:
        capture.close()


def breakable(name: str) -> Markup:
    """A name like BufferContent or public.order_items as HTML that may be broken between its words, but not within an address."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z])(?=[A-Z])|(?<=[._])(?!\d)", name))


def render(model: dict[str, Any]) -> str:
    """The page of a model (model.build)."""
    import jinja2

    from leadline import figures, units
    from leadline.version import version
    from leadline.views.report import charts
    from leadline.views.report.model import files
    from leadline.views.wait_classes import ORDER, wait_class

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"seconds": figures.seconds, "percent": figures.percent, "quantity": figures.quantity, "count": figures.count}
    environment.filters["size"] = units.sized
    environment.filters["breakable"] = breakable
    specs = {name: model[name] for name in ("time_chart", "lane_chart") if model.get(name)} | model["charts"]
    parts = files()
    index = {c.name: i for i, c in enumerate(ORDER)}
    light, dark = ([f"--c{i}: {c.dark if night else c.light};" for i, c in enumerate((*ORDER, wait_class("")))] for night in (False, True))
    colours = f":root {{ {' '.join(light)} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {' '.join(dark)} }} }}\n"
    return environment.get_template("template.html.j2").render(
        model,
        version=version(),
        style=colours + parts["style.css"],
        script=parts["page.js"],
        library=charts.library() if specs else "",
        specs=specs,
        stills={name: charts.still(spec) for name, spec in specs.items() if name != "lane_chart"},
        palettes={"light": charts.palette(dark=False), "dark": charts.palette(dark=True)},
        colour=lambda name: f"var(--c{index.get(name, len(ORDER))})",
        meaning=lambda name: wait_class(name).meaning,
    )
