"""leadline report: one capture as one HTML file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from leadline.cli import force


def default_output(capture: Path) -> Path:
    """NAME.leadline gives NAME.html beside it."""
    directory = capture.resolve()
    name = directory.name[: -len(".leadline")] if directory.name.endswith(".leadline") else directory.name
    return capture.parent / f"{name}.html"


@click.command(
    "report",
    epilog="\b\nExamples:\n  leadline report demo.leadline\n  leadline report demo.leadline -o report.html --force",
)
@click.argument("capture", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.  [default: NAME.html beside NAME.leadline]")
@force
@click.option("--json", "as_json", is_flag=True, help="Print the path and size of the report as JSON.")
def command(capture: Path, output: Path | None, force: bool, as_json: bool) -> None:
    """Write a capture as one HTML file that opens offline.

    Prints the path of the file.
    """
    from leadline.views.report import write_report

    written = write_report(capture, output or default_output(capture), overwrite=force)
    if as_json:
        click.echo(json.dumps({"report": str(written), "bytes": written.stat().st_size}))
    else:
        click.echo(written)
