"""leadline book tasks, results, hosts: what Ansible did. leadline book host: a host across runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from leadline.cli.book.options import when
from leadline.cli.forms import form, printed
from leadline.units import duration

_run = click.argument("run", default="last")
MOST_OF_HOST = 20  # rows of each list of a host
_OUTCOMES = ("ok", "changed", "failed", "ignored", "rescued", "skipped", "unreachable")


def _next(text: str) -> None:
    click.echo(f"next: {text}", err=True)


def _short(run: dict[str, Any]) -> str:
    from leadline.book.query import SHORT

    return str(run["uid"])[:SHORT]


def _stopped(counted: int) -> None:
    from leadline.output import more_than

    if counted > MOST_OF_HOST:
        click.echo(more_than(MOST_OF_HOST, counted, "--json lists all"), err=True)


def _near(place: str, playbook: str) -> str:
    """A file as seen from the directory of the playbook."""
    return place.removeprefix(f"{Path(playbook).parent}/") if playbook else place


def _head(run: dict[str, Any], playbook: dict[str, Any]) -> None:
    from leadline.book.query import printable

    path = playbook["path"] or run["name"]
    said = f"run {_short(run)}: {path}, {run['status']}, {when(run['started'])}, ansible-core {playbook['ansible_version']}"
    click.echo(printable(said), err=True)


@click.command("tasks", epilog="\b\nExamples:\n  leadline book tasks\n  leadline book tasks 4k7q2 --json")
@_run
@form()
def tasks(run: str, form: str | None) -> None:
    """List the tasks of an Ansible run, with their results by outcome.

    RUN is the first letters of its id, or `last`: the last run of Ansible.
    """
    from leadline.book.ansible import query
    from leadline.book.query import Book, printable
    from leadline.output import to_table

    book = Book()
    found = query.find_run(book, run)
    rows, plays, playbook = query.tasks(book, found), query.plays(book, found), query.playbook(book, found)
    if printed(form, rows, {"run": found["uid"], "playbook": playbook, "plays": plays, "tasks": rows}):
        return
    _head(found, playbook)
    cells = []
    for row in rows:
        outcomes = ", ".join(f"{row[name]} {name}" for name in _OUTCOMES if row[name])
        name = f"{row['name']}{' (handler)' if row['handler'] else ''}"
        at = printable(_near(row["place"], playbook["path"]))
        cells.append([row["n"], printable(name), at, row["action"], outcomes, duration(row["duration_s"])])
    click.echo(to_table(["n", "task", "at", "action", "results", "took"], cells))
    if rows:
        most = max(rows, key=lambda row: (row["failed"] + row["unreachable"] > 0, row["n"]))
        _next(f"leadline book results {_short(found)} --task {most['n']}")


@click.command("results", epilog="\b\nExamples:\n  leadline book results last\n  leadline book results 4k7q2 --json")
@_run
@click.argument("n", type=int, required=False)
@click.option("--task", type=int, metavar="N", help="Only results of this task.")
@click.option("--host", metavar="NAME", help="Only results of this host.")
@click.option(
    "--status",
    type=click.Choice(_OUTCOMES),
    help="Only results with this status. Ignored: a failure with ignore_errors; rescued: one that its block rescued.",
)
@click.option("--items", is_flag=True, help="Also print each item of loops, and retries.")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, metavar="N", help="Maximum number of results to print.")
@form()
def results(
    run: str, n: int | None, task: int | None, host: str | None, status: str | None, items: bool, limit: int, form: str | None
) -> None:
    """List the results of an Ansible run, or show result N in full.

    RUN is the first letters of its id, or `last`: the last run of Ansible.
    """
    from leadline.book.ansible import query
    from leadline.book.query import Book, printable
    from leadline.output import MOST_COUNTED, more_than, to_table

    book = Book()
    found = query.find_run(book, run)
    if n is not None:
        _show(query.result(book, found, n), form)
        return
    parts = ("result", "item", "retry") if items else ("result",)
    rows = query.results(book, found, task=task, host=host, outcome=status, parts=parts, limit=limit + MOST_COUNTED)
    counted, rows = len(rows), rows[:limit]
    if printed(form, rows, {"run": found["uid"], "results": rows}):
        return
    _head(found, query.playbook(book, found))
    cells = []
    for row in rows:
        name, took = printable(row["task_name"]), duration(row["duration_s"])
        part = [_part(row)] if items else []
        cells.append([row["n"], printable(row["host"]), name, *part, row["outcome"], took, printable(row["message"])])
    click.echo(to_table(["n", "host", "task", *(["part"] if items else []), "status", "took", "message"], cells))
    if counted > limit:
        click.echo(more_than(limit, counted, "--limit lists more; --task, --host and --status choose", most=MOST_COUNTED), err=True)
    if rows:
        bad = [row for row in rows if row["outcome"] in ("failed", "unreachable")]
        _next(f"leadline book results {_short(found)} {(bad or rows)[-1]['n']}")


def _part(row: dict[str, Any]) -> str:
    from leadline.book.query import printable

    return {"item": f"item {printable(row['item'] or '')}", "retry": f"attempt {row['attempts']}"}.get(row["part"], "")


def _show(row: dict[str, Any], form: str | None) -> None:
    from leadline.book.query import SHORT, printable

    if printed(form, [row], row):
        return
    lines = {
        "result": f"{row['n']} of run {row['run'][:SHORT]}",
        "playbook": row["playbook"],
        "play": row["play_name"],
        "task": f"{row['task_name']} (task {row['task']}{', handler' if row['handler'] else ''})",
        "at": row["place"],
        "tags": ", ".join(row["tags"]),
        "action": row["action"],
        "arguments": json.dumps(row["args"], ensure_ascii=False) if row["args"] else "",
        "host": row["host"],
        "delegated to": row["delegated_to"] or "",
        "item": "" if row["item"] is None else row["item"],
        "status": row["outcome"] if row["outcome"] == row["status"] else f"{row['status']}, {row['outcome']}",
        "ignore errors": "yes" if row["ignored"] else "no",
        "attempts": row["attempts"] or "",
        "items": row["items"] or "",
        "started": _to_the_ms(row["started"]),
        "ended": _to_the_ms(row["ended"]),
        "took": duration(row["duration_s"]),
    }
    for name, value in lines.items():
        if value != "":
            click.echo(f"{name:<15}{printable(str(value))}")
    for part in row["parts"]:
        click.echo(f"{'':<15}{part['n']}: {_part(part)}: {part['outcome']}, {duration(part['duration_s'])}")
    click.echo(json.dumps(row["content"], indent=2, ensure_ascii=True))
    _next(f"leadline book results {row['run'][:SHORT]} --task {row['task']} --items")


def _to_the_ms(us: int | None) -> str:
    return "" if us is None else f"{when(us)}.{us // 1000 % 1000:03d}"


@click.command("hosts", epilog="\b\nExamples:\n  leadline book hosts\n  leadline book hosts 4k7q2 --json")
@_run
@click.option("--facts", metavar="HOST", help="Print the gathered facts of this host.")
@form()
def hosts(run: str, facts: str | None, form: str | None) -> None:
    """List the hosts of an Ansible run, with its totals.

    RUN is the first letters of its id, or `last`: the last run of Ansible.
    """
    from leadline.book.ansible import query
    from leadline.book.query import Book, printable
    from leadline.output import to_table

    book = Book()
    found = query.find_run(book, run)
    if facts is not None:
        known = query.facts(book, found, facts)
        if form == "csv":
            printed(form, [{"fact": name, "value": value} for name, value in known.items()])
        else:
            click.echo(json.dumps(known, indent=2 if form is None else None, ensure_ascii=True))
        return
    rows, playbook = query.hosts(book, found), query.playbook(book, found)
    if printed(form, rows, {"run": found["uid"], "totals_by_ansible": playbook["has_totals"], "hosts": rows}):
        return
    _head(found, playbook)
    names = ("ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored")
    click.echo(to_table(["host", *names], [[printable(row["host"]), *(row[name] for name in names)] for row in rows]))
    if not playbook["has_totals"]:
        click.echo("Ansible did not come to its end: these are the results until then", err=True)
    if rows:
        worst = max(rows, key=lambda row: row["failed"] + row["unreachable"])
        _next(f"leadline book results {_short(found)} --host {shlex.quote(printable(worst['host']))}")


@click.command("host", epilog="\b\nExamples:\n  leadline book host\n  leadline book host web1 --json")
@click.argument("host", required=False)
@click.option("--of", type=click.IntRange(1), default=1000, show_default=True, metavar="N", help="Number of newest runs to look at.")
@form()
def host(host: str | None, of: int, form: str | None) -> None:
    """List the hosts that runs worked on, or show one host across runs.

    Of one: what leadline ran there, what Ansible did to it, what failed, and which of its facts changed from run to run.
    """
    from leadline.book import hosts as known
    from leadline.book.query import Book, as_run, printable
    from leadline.output import to_json, to_table

    book = Book()
    if host is None:
        rows = known.hosts(book.store, of)
        if printed(form, rows, {"hosts": rows}):
            return
        cells = [[printable(r["host"]), r["runs"], r["played"], r["failed"], when(r["started"]), r["last_status"]] for r in rows]
        if not rows:
            click.echo("no run in the book", err=True)
        else:
            click.echo(to_table(["host", "runs", "of Ansible", "failed", "last", "ended"], cells))
            _next(f"leadline book host {shlex.quote(printable(rows[0]['host']))}")
        return
    found = known.host(book.store, host, of)
    found |= {name: [as_run(row) for row in found[name]] for name in ("runs", "played")}
    if form == "json":
        click.echo(to_json(found))
        return
    runs = sorted({run["uid"]: run for run in (*found["runs"], *found["played"])}.values(), key=lambda run: (-run["started"], -run["id"]))
    if printed(form, runs):
        return
    first = runs[:MOST_OF_HOST]
    cells = [[_short(run), when(run["started"]), printable(run["name"]), run["status"], printable(run["summary"])] for run in first]
    click.echo(to_table(["id", "started", "name", "status", "summary"], cells))
    _stopped(len(runs))
    for title, rows, columns in (("failed", found["failures"], ("task", "status", "message")),
                                 ("changed", found["changes"], ("fact", "before", "after"))):  # fmt: skip
        if rows:
            click.echo(f"\n{title}")
            lines = [[row["run"][:5], *(printable(row[column]) for column in columns)] for row in rows[:MOST_OF_HOST]]
            click.echo(to_table(["run", *columns], lines))
            _stopped(len(rows))
    _next(f"leadline book show {_short(runs[0])}")
