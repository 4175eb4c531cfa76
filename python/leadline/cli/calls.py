"""leadline calls: a function-call trace as a tree with counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from leadline.cli.forms import form, printed

FORMATS = ("pin", "uftrace", "uftrace-dump", "ltrace", "ftrace")


@click.command(
    "calls",
    epilog="\b\nExamples:\n  leadline calls debugtrace.out\n  uftrace replay > u.txt; leadline calls u.txt --depth 4\n"
    "  ltrace -f -T -o l.txt ./server; leadline calls l.txt --json | jq '.calls[0]'",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "trace_format", type=click.Choice(FORMATS), help="Format of the trace.  [default: recognised]")
@click.option("--depth", type=click.IntRange(min=1), metavar="N", help="Levels of callees to show.  [default: all]")
@click.option(
    "--min-count", type=click.IntRange(min=1), default=1, metavar="N", help="Leave out functions that are called less often.  [default: 1]"
)
@form("Print the tree as JSON; times in ns.", "Print the tree as CSV; times in ns.")
def command(file: Path, trace_format: str | None, depth: int | None, min_count: int, form: str | None) -> None:
    """Fold a function-call trace into a tree with counts.

    Reads the text output of Intel Pin's debugtrace, uftrace (replay and dump), ltrace and ftrace's function_graph. Calls of a function
    from the same call path become one line.
    """
    from leadline._core.calltrace import fold
    from leadline.errors import LeadlineError
    from leadline.output import together

    if not file.exists():
        raise LeadlineError("not_found", "no such file", where=str(file))
    if not file.is_file():
        raise LeadlineError("invalid", "a trace is an ordinary file", where=str(file), hint="write the trace to a file first")
    read, rows = fold(str(file), format=trace_format, depth=depth)
    rows = [row for row in rows if row[2] >= min_count]
    calls = [dict(zip(("depth", "function", "count", "total_ns"), row)) for row in rows] if form else []
    if printed(form, calls, read | {"calls_total": read["calls"], "calls": calls}):
        return
    for part in together(f"{line}\n" for line in _lines(rows)):
        click.echo(part, nl=False)
    for note in _notes(read):
        click.echo(note, err=True)


def _lines(rows: list[tuple[int, str, int, int | None]]) -> Iterator[str]:
    timed = any(row[3] is not None for row in rows)
    yield f"{'calls':>11}{'ms':>13}  function" if timed else f"{'calls':>11}  function"
    for depth, name, count, ns in rows:
        time = f"{'' if ns is None else f'{ns / 1e6:,.3f}':>13}" if timed else ""
        yield f"{count:>11,}{time}  {'| ' * depth}{name}"


def _notes(read: dict[str, Any]) -> Iterator[str]:
    where = "CPU" if read["format"] == "ftrace" else "thread"
    many = "s" if read["threads"] != 1 else ""
    yield f"{read['format']}: {read['lines']:,} lines, {read['calls']:,} calls, {read['threads']} {where}{many}"
    if read["unknown_lines"]:
        yield f"{read['unknown_lines']:,} lines are not of this format, the first: {read['first_unknown']!r}"
    if read["returns_alone"]:
        yield f"{read['returns_alone']:,} returns of calls that began before the trace"
    if read["calls_left_out"]:
        yield f"{read['calls_left_out']:,} calls are missing: too many different paths"
