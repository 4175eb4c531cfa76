"""leadline show: one capture on the terminal."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from leadline.capture.reader import Capture, open_capture
from leadline.findings import Evaluation, evaluate
from leadline.output import to_json


def as_dict(capture: Capture, evaluation: Evaluation) -> dict[str, Any]:
    """What show prints, as numbers."""
    from leadline.views import lock_tree, spenders, where

    of = where.window(capture)
    return {
        "status": capture.manifest.status,
        "target": dataclasses.asdict(capture.manifest.target),
        "window": dataclasses.asdict(of) | {"aas": of.aas},
        "db_time": [dataclasses.asdict(c) for c in where.by_class(capture)],
        "cpu": dataclasses.asdict(where.cpu_split(capture)),
        "outside_db_time": [dataclasses.asdict(o) for o in where.outside(capture)],
        "statements": [dataclasses.asdict(s) for s in spenders.statements(capture)],
        "sessions": [dataclasses.asdict(s) for s in spenders.sessions(capture)],
        "objects": [dataclasses.asdict(o) for o in spenders.objects(capture)],
        "hot_blocks": [dataclasses.asdict(b) for b in spenders.hot_blocks(capture)],
        "lock_trees": [dataclasses.asdict(t) for t in lock_tree.lock_trees(capture)],
        "findings": [f.as_dict() for f in evaluation.findings],
        "not_evaluated": [{"id": name, "reason": reason} for name, reason in evaluation.not_evaluated],
        "not_measured": [dataclasses.asdict(n) for n in where.not_measured(capture)],
        "self_cost": dataclasses.asdict(capture.manifest.cost),
    }


@click.command(
    "show",
    epilog="\b\nExamples:\n  leadline show demo.leadline\n  leadline show demo.leadline --json | jq .window",
)
@click.argument("capture", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(capture: Path, as_json: bool) -> None:
    """Show where the time of a capture went.

    Database time by wait class, what was outside it, findings, top statements, lock chains, hot blocks, sessions, what
    was not measured, and the tool's own cost.
    """
    opened = open_capture(capture)
    try:
        if opened.manifest.target.kind == "informix":
            _show_informix(opened, as_json=as_json)
            return
        evaluation = evaluate(opened)
        if as_json:
            click.echo(to_json(as_dict(opened, evaluation)))
            return
        from rich.console import Console

        from leadline.views.show import WIDTH, print_capture

        print_capture(opened, evaluation, Console(file=sys.stdout, width=WIDTH, highlight=False))
    finally:
        opened.close()


def _show_informix(capture: Capture, *, as_json: bool) -> None:
    """What `leadline import onstat` printed: such a capture has no time that could be shared out."""
    from leadline.files.informix import contended

    found = contended.as_dict(capture)
    click.echo(to_json(found) if as_json else contended.as_text(found))
