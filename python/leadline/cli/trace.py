"""leadline trace: the threads of processes, traced in the kernel, as a capture."""

from __future__ import annotations

import json
from pathlib import Path

import click

from leadline.cli import force, kernel_budget, kernel_detail, kernel_retransmits, kernel_tier
from leadline.cli.recorded import summarise
from leadline.units import seconds_of


@click.command(
    "trace",
    epilog="\b\nExamples:\n  leadline trace -p 4711 --for 20s -o slow\n  leadline trace -u postgres --for 10s\n"
    "  leadline trace -- ./install.sh --quiet\n  leadline threads slow.leadline",
)
@click.option("-p", "--pid", "pids", metavar="PID[,PID...]", help="Trace these processes and everything they start.")
@click.option("-u", "--user", metavar="USER", help="Trace all processes of a user.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--for", "duration", metavar="TIME", help="Length of the trace: 500ms, 20s, 5m.  [default: 20s; a command until it ends]")
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), metavar="DIR",
    help="Capture directory to create, or a directory to create it in.",
)
@kernel_tier
@kernel_detail
@kernel_budget
@kernel_retransmits
@force
@click.option("--json", "as_json", is_flag=True, help="Print a summary of the capture as JSON.")
def command(
    pids: str | None, user: str | None, command_line: tuple[str, ...], duration: str | None, out: Path | None, kernel_tier: str,
    kernel_detail: str, kernel_budget: float, kernel_retransmits: bool, force: bool, as_json: bool,
) -> None:
    """Trace the system calls, sleeps and CPU waits of any process.

    Writes a capture. Choose processes with -p or -u, or give a command after --. With -p, the trace ends when these processes have
    ended, if that is before the time of --for. With a command, the exit code is that of the command. Needs root, or the capabilities
    that the error message names.
    """
    from leadline.capture.manifest import read_manifest
    from leadline.errors import LeadlineError
    from leadline.probes.trace import trace
    from leadline.progress import Silent, TerminalLine

    for_s = seconds_of(duration) if duration else (None if command_line else 20.0)
    try:
        chosen = [int(pid) for pid in pids.split(",")] if pids else []
    except ValueError:
        raise LeadlineError("usage", f"{pids!r} is not a list of process ids", hint="-p 4711,4712") from None
    progress = Silent() if as_json else TerminalLine()
    path, status = trace(
        pids=chosen, user=user, command=command_line, for_s=for_s, out=out, overwrite=force, progress=progress, tier=kernel_tier,
        detail=kernel_detail, budget=kernel_budget / 100, retransmits=kernel_retransmits,
    )
    manifest = read_manifest(path)
    loss, cost = manifest.probe("kernel").loss, manifest.cost
    lost = f", {loss['records_lost']:,} lost" if loss.get("records_lost") else ""
    ended = "" if status is None else f"; the command ended with {'signal' if status < 0 else 'exit code'} {abs(status)}"
    seen = f"{cost.window_s or 0:.1f} s, {loss.get('records', 0):,} events{lost}"
    summarise(seen + ended)
    if as_json:
        click.echo(json.dumps({"capture": str(path), "exit_status": status} | manifest.as_dict(), ensure_ascii=False, indent=1))
    else:
        click.echo(f"{path}: {seen}, own CPU {cost.cpu_percent_of_core or 0:.2f} % of a core{ended}", err=True)
        click.echo(f"next: leadline threads {path}", err=True)
    if status:
        raise click.exceptions.Exit(status if status > 0 else 128 - status)  # as a shell says that a signal ended it
