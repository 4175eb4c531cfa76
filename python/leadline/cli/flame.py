"""leadline flame: where the threads of a trace were, function by function."""

from __future__ import annotations

from pathlib import Path

import click

from leadline.cli import force
from leadline.cli.forms import form, printed
from leadline.figures import percent
from leadline.output import to_table, together

MOST = 30


@click.command(
    "flame",
    epilog="\b\nExamples:\n  leadline flame slow.leadline\n  leadline flame slow.leadline --off-cpu -o slow.svg\n"
    "  leadline flame slow.leadline --failed --pid 4711 --folded",
)
@click.argument("capture", type=click.Path(path_type=Path))
@click.option("--on-cpu", "kind", flag_value="on-cpu", help="Functions that were running: 99 samples per second and CPU.  [default]")
@click.option("--off-cpu", "kind", flag_value="off-cpu", help="Functions that slept in system calls, by time.")
@click.option("--waker", "kind", flag_value="waker", help="As --off-cpu, with the thread that ended the sleep.")
@click.option("--failed", "kind", flag_value="failed", help="Functions that made system calls that failed.")
@click.option("--pid", type=int, help="Only this process.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write a flame graph (SVG) that opens offline.")
@force
@click.option("--folded", "as_folded", is_flag=True, help="Print a line for each stack: root;caller;function weight.")
@form("Print the functions as JSON.", "Print the functions as CSV.")
def command(capture: Path, kind: str | None, pid: int | None, output: Path | None, force: bool, as_folded: bool, form: str | None) -> None:
    """Show in which functions the threads of a trace spent time.

    Prints a table of functions; with -o, writes a flame graph. Names of kernel functions end in _[k]. Where a program or library has no
    symbols, functions are shown as addresses in its file.
    """
    from leadline.book.recorder import current
    from leadline.capture.reader import open_capture
    from leadline.replacing import write_whole
    from leadline.views.flame import KINDS, as_lines, folded, functions
    from leadline.views.flame_svg import flame_svg

    kind = kind or "on-cpu"
    opened = open_capture(capture)
    try:
        paths = folded(opened, kind, pid)
        window_s = opened.scalar("select window_s from capture")
        target = opened.manifest.target.name
    finally:
        opened.close()
    _, title, unit = KINDS[kind]
    if output is not None:
        subtitle = f"{target}{'' if pid is None else f', process {pid}'}, {window_s:.1f} s"
        current().artifact("flame graph", output)
        click.echo(write_whole(output, flame_svg(paths, title, subtitle, unit), "the flame graph", overwrite=force))
        return
    if as_folded:
        for part in together(f"{line}\n" for line in as_lines(paths)):
            click.echo(part, nl=False)
        return
    whole, found = sum(paths.values()), functions(paths)
    rows = [f.__dict__ for f in found]
    if printed(form, rows, {"kind": kind, "unit": unit, "sum": whole, "functions": rows}):
        return
    of = 1e9 if unit == "ns" else 1
    label = "s" if unit == "ns" else unit
    cells = [(f.name, f.itself / of, percent(f.itself / whole), f.total / of, percent(f.total / whole)) for f in found[:MOST]]
    click.echo(f"{title}: {whole / of:.3f} {label}" if unit == "ns" else f"{title}: {whole:,}")
    click.echo(to_table(("function", f"self {label}", "self", f"total {label}", "total"), cells))
    if len(found) > MOST:
        click.echo(f"{len(found) - MOST} more: --json lists all")
    click.echo(f"next: leadline flame {capture} --{kind} -o {kind}.svg", err=True)
