"""leadline show: one capture on the terminal."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError

COMPARE = "leadline compare A B shows what differs between two, and where the time moved"


def print_view(capture: Capture, *, as_json: bool, about: dict[str, str] | None = None) -> None:
    """The sections of a capture on stdout: as text, or one JSON object, with what `about` has at its head."""
    from leadline.findings import evaluate

    evaluation = evaluate(capture)
    if as_json:
        from leadline.output import to_json
        from leadline.views.as_json import as_dict

        click.echo(to_json((about or {}) | as_dict(capture, evaluation)))
        return
    from rich.console import Console

    from leadline.output import WIDTH
    from leadline.views.show import print_capture

    print_capture(capture, evaluation, Console(file=sys.stdout, width=WIDTH, highlight=False))


@click.command(
    "show",
    epilog="\b\nExamples:\n  leadline show demo.leadline\n  leadline show demo.leadline --json | jq .window",
)
@click.argument("captures", metavar="CAPTURE", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(captures: tuple[Path, ...], as_json: bool) -> None:
    """Show what is in a capture: where the time went, and why.

    For a server: database time by wait class, findings, top statements, lock chains, hot blocks and sessions. For a host: CPU,
    pressure, devices and processes. For WAL or files: the kinds of records and pages. Always: what was not measured, and
    what leadline itself used: CPU time and bytes written.
    """
    if len(captures) > 1:
        raise LeadlineError("usage", f"show takes one capture, and {len(captures)} were given", hint=COMPARE)
    opened = open_capture(captures[0], hold=True, meanwhile=None if as_json else _load)
    print_view(opened, as_json=as_json)  # not closed: the process ends, and to free its tables takes time


def _load() -> None:
    """Imports what prints a view, and reads the rules."""
    from leadline.findings import all_findings
    from leadline.views.sections import all_sections

    for module in ("rich.console", "leadline.views.show"):
        importlib.import_module(module)
    all_findings()
    all_sections()
