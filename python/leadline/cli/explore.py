"""leadline explore: one capture over time, in a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.capture.reader import Tell

HOW_TO_COMPARE = "leadline explore DIR shows a recorder, and compares windows of it; with --with B, with capture B"


@click.command(
    "explore",
    epilog="\b\nExamples:\n  leadline explore demo.leadline\n  leadline explore demo.leadline --port 8080 --no-browser\n"
    "  leadline explore after.leadline --with before.leadline --factor work_mem\n"
    "  leadline explore /var/lib/leadline/shop",
)
@click.argument("capture", type=click.Path(path_type=Path))
@click.option("--with", "other", type=click.Path(path_type=Path), metavar="B", help="Another capture to compare windows with.")
@click.option("--factor", "factors", multiple=True, metavar="NAME", help="What was changed on purpose between the two; repeatable.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port on loopback.  [default: a free one]")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--json", "as_json", is_flag=True, help="Print address and process as JSON.")
def command(capture: Path, other: Path | None, factors: tuple[str, ...], port: int, no_browser: bool, as_json: bool) -> None:
    """Look into a capture over time, in a browser.

    Prints an address on the loopback interface, and opens it in the browser if there is a desktop. The page shows the sessions active
    over time by wait class, and ranks statements, sessions and other things by their database time in the window that is chosen. Marks
    below the axis say what else happened. A window can be compared with another one, or with one of capture B: what grew. Only the
    user who started it can open it. Ctrl-C ends it.

    CAPTURE may be the directory of leadline record: the page shows all its pieces over time, and opens any window of them, also beside
    another one: yesterday's, last week's, the one before a release.
    """
    try:
        from leadline.explore.app import serve, serve_recorder
        from leadline.explore.shown import Shown
    except ImportError as e:
        if (e.name or "").startswith("leadline"):
            raise
        raise LeadlineError(
            "unsupported", f"the page needs packages that are not installed ({e.name})", hint="pip install 'leadline[web]'"
        ) from None
    from leadline.explore.answers import check_explorable, open_explored
    from leadline.explore.overview import is_recorder
    from leadline.output import to_json
    from leadline.recorder.state import check_one

    if factors and other is None:
        raise LeadlineError("usage", "a factor is what differs between two captures", hint="--with B", where="--factor")
    check_one(capture)
    if other is not None and is_recorder(other):
        message = "a recorder cannot be what is compared with: which window of it is not said"
        raise LeadlineError("usage", message, hint=HOW_TO_COMPARE, where="--with")

    def ready(url: str) -> None:
        click.echo(to_json({"url": url, "pid": os.getpid()}) if as_json else url)
        click.echo("Ctrl-C ends it", err=True)
        if not no_browser and _has_desktop():
            import webbrowser

            webbrowser.open(url)

    if is_recorder(capture):
        if other is not None:
            check_explorable(other)
        serve_recorder(capture, port, ready, other, factors)
        return
    for path in filter(None, (capture, other)):
        check_explorable(path)

    def make(tell: Tell) -> Shown:
        explorer = open_explored(capture, tell)
        return Shown.of(explorer, open_explored(other, tell) if other is not None else None, factors)

    serve(make, port, ready)


def _has_desktop() -> bool:
    """Without one, a browser of text would take the terminal over."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
