"""leadline export: a capture in the formats of other tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from leadline.capture.reader import Capture, open_capture
from leadline.cli import force
from leadline.cli.sql import check_reading, lock_down, query_error
from leadline.cli.tables import find_table
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.figures import count

PROFILES, TRACES, ROWS = ("pprof", "speedscope"), ("perfetto",), ("csv", "jsonl", "arrow")
BINARY = ("pprof", "perfetto", "arrow")
OPENED_WITH = {
    "pprof": "go tool pprof -http=: {}",
    "speedscope": "open https://www.speedscope.app and drop {} on it",
    "perfetto": "open https://ui.perfetto.dev and drop {} on it",
}
# Options, by the name of their parameter, and the formats that have them.
ONLY = {"by": PROFILES, "kind": PROFILES, "pid": (*PROFILES, *TRACES), "since": (*PROFILES, *TRACES), "until": (*PROFILES, *TRACES)}
ONLY |= {"max_events": TRACES, "table": ROWS, "query": ROWS}
MAX_EVENTS = 1_000_000
Parts = Iterable[bytes]
Facts = Callable[[], dict[str, Any]]  # known when the parts have gone by


@click.command(
    "export",
    epilog="""\b
Examples:
  leadline export slow.leadline --to pprof -o slow.pb.gz
  leadline export slow.leadline --to speedscope --by user,wait_event -o a.json
  leadline export slow.leadline --to perfetto --since 5 -o a.pftrace
  leadline export slow.leadline --to csv --table session_sample -o samples.csv
  leadline export slow.leadline --to jsonl --sql "from lock_wait" | jq .object""",
)
@click.argument("capture", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice([*PROFILES, *TRACES, *ROWS]), required=True, help="Format to write.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write.  [default: stdout]")
@force
@click.option("--table", metavar="NAME", help="csv, jsonl, arrow: this table or view.")
@click.option("--sql", "query", metavar="QUERY", help="csv, jsonl, arrow: the rows of this query; - reads it from stdin.")
@click.option("--by", metavar="FRAMES", help="pprof, speedscope: what the frames of database time are, root first, with commas.")
@click.option("--on-cpu", "kind", flag_value="on-cpu", help="pprof, speedscope: functions of a trace that were running.")
@click.option("--off-cpu", "kind", flag_value="off-cpu", help="Functions that slept in system calls.")
@click.option("--waker", "kind", flag_value="waker", help="As --off-cpu, with the thread that ended the sleep.")
@click.option("--failed", "kind", flag_value="failed", help="Functions that made system calls that failed.")
@click.option("--pid", type=int, help="pprof, speedscope, perfetto: only this process.")
@click.option("--since", type=float, metavar="SECONDS", help="Leave out what was before, from the start of the capture.")
@click.option("--until", type=float, metavar="SECONDS", help="Leave out what was after.")
@click.option("--max-events", type=click.IntRange(min=1), metavar="N", help=f"perfetto: refuse larger traces.  [default: {MAX_EVENTS:,}]")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON; with -o.")
def command(capture: Path, form: str, output: Path | None, force: bool, as_json: bool, **options: Any) -> None:
    """Give a capture to other tools: pprof, Perfetto, CSV, Arrow.

    \b
    pprof, speedscope  database time, or the functions of a trace, as stacks
    perfetto           sessions, waits, findings, calls and counters in time
    csv, jsonl, arrow  the rows of a table, view or query

    Stacks of database time are database, application, statement, wait_class and wait_event by default. --by also knows user, client,
    backend_type, pid and state. Values are those of `leadline sql`: the sum of a profile is that of db_time.
    """
    from leadline.book.recorder import current
    from leadline.output import to_json
    from leadline.replacing import write_parts

    _check(form, output, as_json, options)
    opened = open_capture(capture, whole=form in ROWS)
    try:
        parts, facts = _parts(opened, form, output, options)
        if output is None:
            for part in parts:
                click.echo(part, nl=False)
            return
        current().artifact("export", output)
        size = write_parts(output, parts, "the export", overwrite=force)
    except duckdb.Error as e:
        raise query_error(e) from e
    finally:
        opened.close()
    found = facts()
    if as_json:
        click.echo(to_json({"format": form, "file": str(output), "bytes": size, **found}))
        return
    click.echo(output)
    click.echo(f"note: {_said(found)}, {count(size, 'byte')}", err=True)
    if form in OPENED_WITH:
        click.echo(f"next: {OPENED_WITH[form].format(output)}", err=True)


def _check(form: str, output: Path | None, as_json: bool, options: dict[str, Any]) -> None:
    """Raises LeadlineError('usage') for what does not go together."""
    for name, forms in ONLY.items():
        if options[name] is not None and form not in forms:
            said = {"query": "--sql", "kind": f"--{options['kind']}", "max_events": "--max-events"}.get(name, f"--{name}")
            raise LeadlineError("usage", f"{said} is not for {form}", detail=f"it is for {', '.join(forms)}", hint="leadline export --help")
    if form in ROWS and (options["table"] is None) == (options["query"] is None):
        raise LeadlineError("usage", f"{form} needs either a table or a query", hint="--table session_sample, or --sql QUERY")
    if options["by"] is not None and options["kind"] is not None:
        raise LeadlineError("usage", f"--by is for database time, not for --{options['kind']}", hint="leave one of them out")
    if output is None and as_json:
        raise LeadlineError("usage", "--json says what was written to a file: it needs -o", hint="add -o FILE")
    if output is None and form in BINARY and sys.stdout.isatty():
        raise LeadlineError("usage", f"{form} is binary, and not for a terminal", hint="add -o FILE, or send it into a pipe")


def _parts(opened: Capture, form: str, output: Path | None, options: dict[str, Any]) -> tuple[Parts, Facts]:
    if form in ROWS:
        return _rows(opened, form, output, options["table"], options["query"])
    from leadline.export.window import span_of

    span = span_of(opened, options["since"], options["until"])
    if form in TRACES:
        from leadline.export.perfetto import Written, check_size, perfetto

        check_size(opened, options["pid"], span, options["max_events"] or MAX_EVENTS)
        written = Written()
        return perfetto(opened, options["pid"], span, written), lambda: dict(vars(written))
    from leadline.export.pprof import pprof
    from leadline.export.profile import DATABASE, profile
    from leadline.export.speedscope import speedscope

    found = profile(opened, options["kind"] or DATABASE, _frames(options["by"]), options["pid"], span)
    facts = {"value": found.value, "unit": found.unit, "sum": found.sum, "samples": found.samples, "stacks": len(found.stacks)}
    return (pprof if form == "pprof" else speedscope)(found), lambda: facts


def _frames(by: str | None) -> tuple[str, ...]:
    from leadline.export.profile import DEFAULT, FRAMES

    if by is None:
        return DEFAULT
    frames = tuple(name.strip() for name in by.split(","))
    for name in frames:
        if name not in FRAMES:
            known = ", ".join(FRAMES)
            raise LeadlineError("usage", f"there is no frame {name!r}", detail=f"there are {known}", hint="--by user,wait_class,wait_event")
    return frames


def _rows(opened: Capture, form: str, output: Path | None, table: str | None, query: str | None) -> tuple[Parts, Facts]:
    from leadline.export import rows

    if form == "arrow":
        rows.need_arrow()
    if table is not None:
        name = find_table(table).name
        if why := opened.unavailable(name):
            raise LeadlineError("not_found", f"this capture has no table {name}", detail=why, hint=f"leadline show {opened.path}")
        query = f'from "{name}"'
    assert query is not None
    lock_down(opened)
    query = sys.stdin.read() if query == "-" else query
    check_reading(opened, query)
    stream = output is None or output.suffix == ".arrows"
    writers: dict[str, rows.Writer] = {"csv": rows.csv, "jsonl": rows.jsonl, "arrow": rows.arrow_stream if stream else rows.arrow}
    counted = rows.Counted()
    found = opened.db.sql(query)
    if found is None:
        raise LeadlineError("query", "the query returns no rows", hint="start it with select, with, from or describe")
    return writers[form](rows.checked(found), counted), lambda: {"rows": counted.rows}


def _said(found: dict[str, Any]) -> str:
    """The facts of an export as a part of a sentence."""
    if "rows" in found:
        return count(found["rows"], "row")
    if "events" in found:
        cut = f", {count(found['cut'], 'slice')} cut to the one around it" if found["cut"] else ""
        return f"{count(found['events'], 'event')} on {count(found['tracks'], 'track')}{cut}"
    whole = f"{found['sum'] / 1e9:,.3f} s" if found["unit"] == "nanoseconds" else count(found["sum"], "call")
    return f"{whole} in {count(found['stacks'], 'stack')} of {count(found['samples'], 'sample')}"
