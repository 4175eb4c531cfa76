"""leadline book list, show, search, diff: what does not change the book."""

from __future__ import annotations

import shlex
import time
from itertools import islice
from pathlib import Path
from typing import Any

import click

from leadline.cli import force
from leadline.cli.book.options import ago_us, as_json, ended, labels_of, limit, stored_kind, when
from leadline.cli.forms import form, printed
from leadline.errors import LeadlineError
from leadline.units import duration

MOST_EXPORTED = 1000


def _short(run: dict[str, Any]) -> str:
    from leadline.book.query import SHORT

    return str(run["uid"])[:SHORT]


def _table(runs: list[dict[str, Any]], last: str, of: str) -> str:
    from leadline.output import to_table

    rows = [[_short(r), when(r["started"]), r["name"], ended(r), duration(r["duration_s"]), r[of]] for r in runs]
    return to_table(["id", "started", "name", "status", "took", last], rows)


def _next(text: str) -> None:
    click.echo(f"next: {text}", err=True)


@click.command(
    "list", epilog="\b\nExamples:\n  leadline book list --status failed --since 7d\n  leadline book list --name load --label release=7.2"
)
@click.option(
    "--kind", callback=stored_kind, metavar="KIND",
    help="leadline (its own commands), command (of `leadline run`), experiment, study, trial, ansible.",
)  # fmt: skip
@click.option("--name", metavar="NAME", help="Runs of this name, such as take or load.")
@click.option("--status", type=click.Choice(["running", "ok", "failed", "cancelled", "lost"]), help="Runs with this status.")
@click.option("--label", "labels", multiple=True, metavar="KEY[=VALUE]", help="Runs with this label. If repeated: with all of them.")
@click.option("--since", metavar="TIME", help="Runs that began within this time: 30m, 12h, 7d.")
@click.option("--words", default="", metavar="TEXT", help="Runs whose name, command or summary has words that begin with TEXT.")
@limit
@form()
def list_runs(
    kind: str | None, name: str | None, status: str | None, labels: tuple[str, ...], since: str | None, words: str, limit: int,
    form: str | None,
) -> None:  # fmt: skip
    """List runs, newest first. Trials of experiments are left out, unless a filter such as --kind trial asks for them."""
    from leadline.book.query import Book, Filter, each_newest
    from leadline.output import MOST_COUNTED, more_than

    book = Book()
    wanted = Filter(kind, name, status, since=None if since is None else ago_us(since), labels=tuple(labels_of(labels)), words=words,
                    trials=bool(kind or name or labels or words))  # fmt: skip
    runs = book.runs(wanted, limit + 1)
    more, runs = len(runs) > limit, runs[:limit]
    if printed(form, runs, {"runs": runs}):
        return
    if not runs:
        click.echo("no such run in the book", err=True)
        return
    click.echo(_table(runs, "summary", "summary"))
    if more:
        counted = sum(1 for _ in islice(each_newest(book.store, wanted), limit + MOST_COUNTED))
        said = more_than(limit, counted, "--limit lists more; --since, --name, --status choose", most=MOST_COUNTED)
        click.echo(said, err=True)
    _next(f"leadline book show {_short(runs[0])}")


@click.command("days", epilog="\b\nExamples:\n  leadline book days\n  leadline book days --days 365")
@click.option("--days", type=click.IntRange(1, 36_500), default=30, show_default=True, metavar="N", help="Number of days, up to today.")
@form()
def days(days: int, form: str | None) -> None:
    """Count the runs of each day (UTC) by how they ended."""
    from leadline.book.query import STATUSES, Book, by_day
    from leadline.output import to_table

    found = by_day(Book().store, days, time.time_ns() // 1000)
    if printed(form, found, {"days": found}):
        return
    if found:
        click.echo(to_table(["day", "runs", *STATUSES], [[row["day"], *(row[name] for name in ("runs", *STATUSES))] for row in found]))
        _next(f"leadline book list --since {days}d")
    else:
        click.echo("no run in these days", err=True)


@click.command("show", epilog="\b\nExamples:\n  leadline book show last\n  leadline book show 4k7q2 --json\n"
               "  leadline book show last --file /srv/load.sh")  # fmt: skip
@click.argument("run", default="last")
@click.option("--file", metavar="PATH", help="Print this file's text as it was when the run began.")
@as_json
def show(run: str, file: str | None, as_json: bool) -> None:
    """Show one run: command, host, status, files it made, cost."""
    from leadline.book.ansible import query as of_ansible
    from leadline.book.experiments.query import experiment
    from leadline.book.experiments.studies import study
    from leadline.book.experiments.study_text import lines as study_lines
    from leadline.book.experiments.text import lines as experiment_lines
    from leadline.book.packed import log_size
    from leadline.book.query import Book, printable
    from leadline.output import to_json

    book = Book()
    found = book.details(book.find(run))
    if file is not None:
        _print_file(book, found, file, as_json)
        return
    asked = experiment(book.store, found) if found["kind"] == "experiment" else None
    of_study = study(book.store, found)
    if as_json:
        more = {name: one for name, one in (("experiment", asked), ("study", of_study)) if one is not None}
        click.echo(to_json(found | more))
        return
    took = f", took {duration(found['duration_s'])}" if found["duration_s"] is not None else ""
    facts = found["facts"]
    told = (("os.name", "{}"), ("kernel.release", "Linux {}"), ("cpu.usable", "{} CPUs"))
    host = [form.format(facts[name]) for name, form in told if facts.get(name)]
    lines = {
        "run": f"{found['uid']}{', pinned' if found['pinned'] else ''}",
        "name": found["name"],
        "command": shlex.join(found["argv"]),
        "status": ended(found),
        "summary": found["summary"],
        "started": f"{when(found['started'])}{took}",
        "directory": found["cwd"],
        "by": _by(found),
        "host": ", ".join(host),
        "leadline": found["version"],
        "part of": found["parent"] or "",
        "parts": ", ".join(found["children"]),
        "labels": ", ".join(f"{key}={value}" for key, value in found["labels"].items()),
    }
    lines |= {artifact["kind"]: artifact["path"] for artifact in found["artifacts"]}
    if found["kind"] == "ansible":
        lines["values"] = ", ".join(f"{one['key']}={of_ansible.text_of(one['value'])}" for one in of_ansible.records(book, found))
    lines |= {name: f"{value:,.4g}" for name, value in found["metrics"].items() if name != "wall_s"}
    if size := log_size(book.place, found["uid"]):
        lines["output"] = f"{size:,} bytes"
    if found["log_lost_bytes"]:
        lines["not kept"] = f"{found['log_lost_bytes']:,} bytes of output"
    if found["events_lost"]:
        lines["lost"] = f"{found['events_lost']} events could not be written"
    for name, value in lines.items():
        if value:
            click.echo(printable(f"{name:<14}{value}"))
    design = experiment_lines(asked) if asked is not None else study_lines(of_study) if of_study is not None else []
    if design:
        click.echo("\n".join(["", *(printable(line) for text in design for line in text.split("\n"))]))
    if size:
        _next(f"leadline book log {_short(found)}")


def _by(run: dict[str, Any]) -> str:
    """As far as it is known: what was imported, or was lost early, lacks the one or the other."""
    who = " on ".join(filter(None, (run["user_name"], run["host"])))
    return ", ".join(filter(None, (who if run["user_name"] or not run["host"] else f"on {who}", run["pid"] and f"pid {run['pid']}")))


def _print_file(book: Any, run: dict[str, Any], path: str, as_json: bool) -> None:
    from leadline.book.query import not_kept, printable
    from leadline.output import to_json

    given = {one["path"]: one for one in run["files"]}
    if path not in given:
        raise LeadlineError("not_found", f"run {_short(run)} was not given {path}", hint=f"it was given {', '.join(given) or 'no file'}")
    text = book.content(given[path]["hash"])
    if text is None:
        raise not_kept(path)
    lines = "".join(f"{printable(line)}\n" for line in text.split("\n")).removesuffix("\n")
    click.echo(to_json(given[path] | {"text": text}) if as_json else lines, nl=as_json)


@click.command("search", epilog="\b\nExamples:\n  leadline book search 'could not extend'")
@click.argument("text")
@limit
@form()
def search(text: str, limit: int, form: str | None) -> None:
    """Find runs by words of their name, command or summary, or by text in their output."""
    from leadline.book.query import SEARCH_S, Book
    from leadline.output import more_than

    book = Book()
    runs, whole = book.search(text, limit + 1)
    more, runs = len(runs) > limit, runs[:limit]
    if printed(form, runs, {"runs": runs, "all_output_searched": whole}):
        return
    if runs:
        click.echo(_table([run | {"line": run["line"] or run["summary"]} for run in runs], "line", "line"))
        if more:
            click.echo(more_than(limit, None, "--limit N lists more"), err=True)
        _next(f"leadline book show {_short(runs[0])}")
    else:
        click.echo("not found", err=True)
    if not whole:
        click.echo(f"older output was not looked at: the search ends after {SEARCH_S:g} s", err=True)


@click.command("diff", epilog="\b\nExamples:\n  leadline book diff 4k7q2 last")
@click.argument("one")
@click.argument("other", default="last")
@form()
def diff(one: str, other: str, form: str | None) -> None:
    """Show what differs between two runs: arguments, files, facts of the host, settings, metrics, findings, output."""
    from leadline.book.compare import compare
    from leadline.book.query import Book, printable
    from leadline.output import to_table

    book = Book()
    runs = tuple(book.details(book.find(text)) for text in (one, other))
    found = compare(book, runs[0], runs[1])
    differences = [difference.as_dict() for difference in found]
    if printed(form, differences, {"runs": [run["uid"] for run in runs], "differences": differences}):
        return
    if not found:
        click.echo("no difference")
        return

    def cell(value: Any) -> str:
        return "" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)

    rows = [[f"{d.part} {d.name}" if d.part != "run" else d.name, cell(d.one), cell(d.other)] for d in found]
    click.echo(to_table(["what", *(_short(run) for run in runs)], rows))
    for difference in found:
        if difference.lines:
            click.echo("\n".join(("", f"{difference.part} {printable(difference.name)}:", *map(printable, difference.lines))))


@click.command(
    "export",
    epilog="\b\nExamples:\n  leadline book export last\n  leadline book export 4k7q2 -o nightly.html --force\n"
    "  leadline book export --name load --since 7d -o week.zip",
)
@click.argument("run", required=False)
@click.option("--name", metavar="NAME", help="All runs of this name, as a zip file.")
@click.option("--status", type=click.Choice(["ok", "failed", "cancelled", "lost"]), help="All runs with this status.")
@click.option("--label", "labels", multiple=True, metavar="KEY[=VALUE]", help="All runs with this label. If repeated: with all of them.")
@click.option("--since", metavar="TIME", help="All runs that began within this time: 30m, 12h, 7d.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write.  [default: NAME-ID.html or runs.zip]")
@force
@as_json
def export(
    run: str | None, name: str | None, status: str | None, labels: tuple[str, ...], since: str | None, output: Path | None, force: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Write one run as one HTML file that opens offline, with its inputs, output, files, and reports of its captures.

    With --name, --status, --label or --since, all such runs, at most 1,000: a zip file with a page for each, a list, and a Parquet file
    of their labels and figures. Values of names that say password, secret or token are hidden. Prints the path of the file.
    """
    from leadline.book.export import export as page_of
    from leadline.book.export import export_zip
    from leadline.book.query import LAST, SHORT, Book, Filter
    from leadline.output import to_json
    from leadline.replacing import make_room, write_whole

    book = Book()
    wanted = Filter(None, name, status, since=None if since is None else ago_us(since), labels=tuple(labels_of(labels)))
    if wanted != Filter():
        if run is not None:
            raise click.UsageError("name a run, or say which with options, not both")
        runs = [one for one in book.runs(wanted, MOST_EXPORTED) if one["status"] != "running"]
        file = output or Path("runs.zip")
        make_room(file, overwrite=force)
        written = write_whole(file, export_zip(book, runs), "the runs", overwrite=force)
        click.echo(to_json({"runs": len(runs), "file": str(written), "bytes": written.stat().st_size}) if as_json else written)
        return
    found = book.details(book.find(run or LAST))
    plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in found["name"])
    file = output or Path(f"{plain}-{found['uid'][:SHORT]}.html")
    make_room(file, overwrite=force)
    written = write_whole(file, page_of(book, found), "the run", overwrite=force)
    click.echo(to_json({"run": found["uid"], "file": str(written), "bytes": written.stat().st_size}) if as_json else written)
