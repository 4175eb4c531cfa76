"""leadline run: runs a command and records it in the logbook. (The file is not run.py: `leadline.cli.run` is a function.)"""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    "run",
    epilog="\b\nExamples:\n  leadline run -- ./nightly_load.sh\n  leadline run --name load --label release=7.2 -- psql -f load.sql\n"
    "  leadline book log last",
)
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--name", default="", metavar="NAME", help="Name of the run.  [default: that of the program]")
@click.option("--detach", is_flag=True, help="Run in the background, without this terminal. Prints the id of the run.")
@click.option("--pty", is_flag=True, help="Give the command a terminal for its output, so that it prints colours and progress bars.")
@click.option("--json", "as_json", is_flag=True, help="Print the id of a detached run as JSON.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label to find it by; may be given more than once.")
def command(command_line: tuple[str, ...], name: str, detach: bool, pty: bool, as_json: bool, labels: tuple[str, ...]) -> int:
    """Run a command and record it: output, exit code, cost, labels.

    The command behaves as without leadline: its output goes to the same places, leadline exits with its exit code, and signals reach
    it. The only difference is that its output is a pipe, not a terminal; --pty changes that. A separate process records the run, even
    after the terminal is closed.

    Passwords in its arguments are not stored. Its output is stored as it is, readable by you alone. `leadline book` shows the run.
    """
    from leadline.book.command import run_request, start
    from leadline.book.supervisor import Request
    from leadline.cli.book.options import labels_of
    from leadline.output import to_json

    pairs = {key: value or "" for key, value in labels_of(labels)}
    request = Request(list(command_line), name=name, labels=pairs, pty=pty)
    if not detach:
        return run_request(request)
    request.cwd = str(Path.cwd())
    uid = start(request)
    click.echo(to_json({"run": uid}) if as_json else uid)
    click.echo(f"next: leadline book log {uid[:5]} --follow", err=True)
    return 0
