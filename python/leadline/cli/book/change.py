"""leadline book label, pin, prune: what changes the book."""

from __future__ import annotations

import time

import click

from leadline.cli.book.options import ago_us, as_json, labels_of
from leadline.figures import count, quantity


@click.command("label")
@click.argument("run")
@click.argument("labels", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--remove", is_flag=True, help="Remove these keys instead.")
def label(run: str, labels: tuple[str, ...], remove: bool) -> None:
    """Put labels on a run."""
    from leadline.book.query import SHORT, Book

    book = Book()
    pairs = [(key, None if remove else value or "") for key, value in labels_of(labels)]
    found = book.find(run)
    book.label(found, pairs)
    said = " ".join(f"{key}={value}" for key, value in book.details(found)["labels"].items())
    click.echo(f"{found['uid'][:SHORT]}: {said or 'no labels'}")


@click.command("pin")
@click.argument("run")
@click.option("--off", is_flag=True, help="Let it be removed again.")
def pin(run: str, off: bool) -> None:
    """Keep a run whatever `prune` removes."""
    from leadline.book.query import SHORT, Book

    book = Book()
    found = book.find(run)
    book.pin(found, not off)
    click.echo(f"{found['uid'][:SHORT]} is {'not ' if off else ''}pinned")


@click.command("cancel")
@click.argument("run")
@click.option("--wait", is_flag=True, help="Return when it has ended.")
def cancel(run: str, wait: bool) -> None:
    """End a running command with all that it has started.

    It is asked to end (SIGTERM). After 10 s all of its processes are asked, and after 2 s more they are killed. A command of leadline
    itself ends as by Ctrl-C.
    """
    from leadline.book.command import cancel as ask
    from leadline.book.query import SHORT, Book
    from leadline.errors import LeadlineError

    book = Book()
    found = book.find(run)
    if not ask(found):
        raise LeadlineError("usage", f"run {found['uid']} is not running on this host", hint=f"leadline book show {found['uid'][:SHORT]}")
    while wait and found["status"] == "running":
        time.sleep(0.1)
        book.refresh()
        found = book.find(found["uid"])
    click.echo(f"{found['uid'][:SHORT]} is {found['status'] if wait else 'asked to end'}")


@click.command("prune")
@click.option("--older", required=True, metavar="TIME", help="Remove runs that began longer ago than this: 12h, 90d.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@as_json
def prune(older: str, dry_run: bool, as_json: bool) -> None:
    """Remove old runs with their output. Pinned and running ones stay."""
    from leadline.book.query import Book
    from leadline.output import to_json

    book = Book()
    runs, size = book.prune(ago_us(older), really=not dry_run)
    if as_json:
        click.echo(to_json({"removed": 0 if dry_run else runs, "would_remove": runs, "log_bytes": size}))
    else:
        click.echo(f"{count(runs, 'run')} and {quantity(size, 'B')} of output {'would be' if dry_run else 'were'} removed")
