"""leadline demo: the whole way from a loaded server to its report, with nothing to configure."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from leadline.cli.recorded import summarise

HOT_PAGES = "select object, block, page_kind, waiters, wait_s from page_wait order by wait_s desc"


def next_steps(capture: Path, report: Path) -> str:
    """What to look at next, as commands that can be pasted."""
    name = shlex.quote(str(capture))
    return "\n".join(
        [
            f"capture: {capture}",
            f"report:  {report}   (open it in a browser)",
            f"next:    leadline findings {name}",
            f'         leadline sql {name} "{HOT_PAGES}"',
            *_in_the_book(),
        ]
    )


def _in_the_book() -> list[str]:
    """The command that shows this run in the logbook; none where it is off."""
    from leadline.book.place import VARIABLE
    from leadline.book.recorder import current

    run = current()
    if run.place is None:
        return []
    named = f"{VARIABLE}={shlex.quote(run.place.variable)} " if os.environ.get(VARIABLE) else ""
    return [f"logbook: {named}leadline book show {run.uid[:5]}"]


@click.command(
    "demo",
    epilog="""\b
Examples:
  leadline demo
  leadline demo --major 16 --seconds 10 -o /tmp
  leadline demo --pg-bin /usr/lib/postgresql/15/bin
  leadline demo --json | jq '.findings[].statement'""",
)
@click.option("--pg-bin", type=click.Path(path_type=Path), metavar="DIR", help="Use postgres and initdb from this directory.")
@click.option("--major", type=int, metavar="N", help="PostgreSQL major version.  [default: newest found]")
@click.option("--seconds", type=click.FloatRange(2, 120), default=20.0, show_default=True, help="Length of the capture.")
@click.option("--rate", type=click.FloatRange(1, 1000), default=100.0, show_default=True, help="Samples per second.")
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="DIR", help="Create leadline-demo/ in DIR.  [default: here]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
def command(pg_bin: Path | None, major: int | None, seconds: float, rate: float, out: Path | None, as_json: bool) -> None:
    """Try leadline on a private PostgreSQL with planted problems.

    The server listens only on a unix socket in a temporary directory and never runs as root. A small shop with 23 clients
    runs on it. leadline measures it from outside for 20 seconds, prints where the time went and what is wrong, and
    writes leadline-demo/capture.leadline and leadline-demo/report.html. It removes everything else, even after Ctrl-C.
    """
    from leadline.capture.reader import open_capture
    from leadline.cli.show import print_view
    from leadline.demo.run import DIRECTORY, run_demo
    from leadline.progress import TerminalLine

    directory = (out or Path()) / DIRECTORY
    progress = TerminalLine(sys.stderr)
    result = run_demo(directory, pg_bin=pg_bin, major=major, seconds=seconds, rate_hz=rate, announce=progress.note, progress=progress)
    opened = open_capture(result.capture, hold=True)
    try:
        about = {"capture": str(result.capture), "report": str(result.report)} if as_json else None
        print_view(opened, as_json=as_json, about=about)
        if not as_json:
            click.echo()
    finally:
        opened.close()
    sys.stdout.flush()
    summarise(f"a shop with 23 clients, watched for {seconds:g} s")
    click.echo(next_steps(result.capture, result.report), err=True)
