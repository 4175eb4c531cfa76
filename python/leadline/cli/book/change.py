"""leadline book label, pin, cancel, prune, compress: what changes the book."""

from __future__ import annotations

import time

import click

from leadline.cli.book.options import ago_us, as_json, labels_of, stored_kind
from leadline.figures import count
from leadline.output import to_json
from leadline.units import bytes_of, sized


@click.command("label", epilog="\b\nExamples:\n  leadline book label last ticket=4711\n  leadline book label 4k7q2 ticket --remove")
@click.argument("run")
@click.argument("labels", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--remove", is_flag=True, help="Remove these keys instead.")
@as_json
def label(run: str, labels: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Put labels on a run."""
    from leadline.book.query import SHORT, Book

    book = Book()
    pairs = [(key, None if remove else value or "") for key, value in labels_of(labels)]
    found = book.find(run)
    book.label(found, pairs)
    now = book.details(found)["labels"]
    said = " ".join(f"{key}={value}" for key, value in now.items())
    click.echo(to_json({"run": found["uid"], "labels": now}) if as_json else f"{found['uid'][:SHORT]}: {said or 'no labels'}")


@click.command("pin", epilog="\b\nExamples:\n  leadline book pin last\n  leadline book pin last --off")
@click.argument("run")
@click.option("--off", is_flag=True, help="Unpin the run.")
@as_json
def pin(run: str, off: bool, as_json: bool) -> None:
    """Protect a run from `prune`."""
    from leadline.book.query import SHORT, Book

    book = Book()
    found = book.find(run)
    book.pin(found, not off)
    said = f"{found['uid'][:SHORT]} is {'not ' if off else ''}pinned"
    click.echo(to_json({"run": found["uid"], "pinned": not off}) if as_json else said)


@click.command("cancel", epilog="\b\nExamples:\n  leadline book cancel 4k7q2 --wait")
@click.argument("run")
@click.option("--wait", is_flag=True, help="Wait until the command has ended.")
@as_json
def cancel(run: str, wait: bool, as_json: bool) -> None:
    """Cancel a running command and all processes that it has started.

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
    said = f"{found['uid'][:SHORT]} is {found['status'] if wait else 'asked to end'}"
    click.echo(to_json({"run": found["uid"], "status": found["status"]}) if as_json else said)


@click.command("prune", epilog="\b\nExamples:\n  leadline book prune --older 90d --dry-run\n  leadline book prune --keep 10000 --size 5GB\n"
               "  leadline book prune --kind trial --older 7d")  # fmt: skip
@click.option("--older", metavar="TIME", help="Remove runs that began longer ago than this: 12h, 90d.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Remove all but the newest N runs.")
@click.option("--size", metavar="BYTES", help="Remove the oldest runs until the outputs of the others take at most this: 500MB, 2GB.")
@click.option("--keep-failed", is_flag=True, help="Keep runs that failed or were lost.")
@click.option(
    "--kind", callback=stored_kind, metavar="KIND",
    help="Look only at runs of this kind: leadline, command, experiment, study, trial, ansible, template.",
)  # fmt: skip
@click.option("--project", metavar="NAME", help="Look only at runs of this project.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, without removing it.")
@as_json
def prune(
    older: str | None, keep: int | None, size: str | None, keep_failed: bool, kind: str | None, project: str | None, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Remove old runs with their output. Keeps pinned and running runs, baselines, captures and reports."""
    from leadline.book.query import Book
    from leadline.book.retention import Retention
    from leadline.book.retention import prune as remove

    if older is None and keep is None and size is None:
        raise click.UsageError("say what to remove: --older, --keep or --size")
    before, most_bytes = None if older is None else ago_us(older), None if size is None else bytes_of(size)
    wanted = Retention(before, keep, most_bytes, keep_failed, kind, project)
    done = remove(Book(), wanted, really=not dry_run)
    if as_json:
        done_runs = 0 if dry_run else done.runs
        click.echo(to_json({"removed": done_runs, "would_remove": done.runs, "log_bytes": done.log_bytes, "freed_bytes": done.freed_bytes}))
    else:
        verb, gives = ("would be", "would free") if dry_run else ("were", "freed")
        runs = count(done.runs, "run")
        click.echo(f"{runs} and {sized(done.log_bytes)} of output {verb} removed; that {gives} {sized(done.freed_bytes)}")


@click.command("compress", epilog="\b\nExamples:\n  leadline book compress\n  leadline book compress --older 7d --dry-run")
@click.option("--older", default="1d", show_default=True, metavar="TIME", help="Outputs of runs that ended longer ago than this: 12h, 7d.")
@click.option("--dry-run", is_flag=True, help="Show what would be compressed, without compressing it.")
@as_json
def compress(older: str, dry_run: bool, as_json: bool) -> None:
    """Compress the outputs of old runs. All commands read them as before."""
    from leadline.book.query import Book
    from leadline.book.retention import pack_logs

    done = pack_logs(Book(), ago_us(older), really=not dry_run)
    if as_json:
        click.echo(to_json({"compressed": 0 if dry_run else done.runs, "would_compress": done.runs, "log_bytes": done.log_bytes,
                            "freed_bytes": done.freed_bytes}))  # fmt: skip
    else:
        outputs = f"{count(done.runs, 'output')} of {sized(done.log_bytes)}"
        freed = sized(done.freed_bytes)
        click.echo(f"{outputs} would be compressed" if dry_run else f"{outputs} were compressed; that freed {freed}")
