"""leadline why: runs a command and explains which of its calls failed, and why."""

from __future__ import annotations

import click

from leadline.cli.recorded import summarise

OUTCOME_NOTHING_WRONG, OUTCOME_EXPLAINED, OUTCOME_UNEXPLAINED = 0, 1, 3
MOST_CAUSES, MOST_PROCESSES = 3, 5


@click.command(
    "why",
    epilog="\b\nExamples:\n  leadline why -- ./ids_install\n  leadline why -- sh -c 'make install'\n"
    "  leadline why --json -- ./setup.sh 2>/dev/null | jq '.causes[0]'",
)
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--linger", "linger_s", type=click.FloatRange(0, 86400), default=1.0, show_default=True, metavar="SECONDS",
    help="How long to watch background processes after the command has ended.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print causes and failed processes as JSON, after the command's own output.")
def command(command_line: tuple[str, ...], linger_s: float, as_json: bool) -> int:
    """Run a command and explain why it fails, or what error it hides.

    Traces the command and every process that it starts. Input and output of the command are untouched; the explanation goes to
    stderr. Needs no root. Exit code 0: the command exited with 0 and nothing is wrong; 1: a cause was found; 3: the command failed,
    and no cause was found.
    """
    from leadline.output import to_json
    from leadline.why import explain, follow, went_wrong
    from leadline.why.words import last_line

    seen = follow(command_line, linger_s=linger_s)
    causes, main = explain(seen), seen.main
    summarise(causes[0].statement if causes else f"{main.name}: {main.outcome}")
    outcome = OUTCOME_EXPLAINED if causes else OUTCOME_UNEXPLAINED if main.failed else OUTCOME_NOTHING_WRONG
    if as_json:
        wrong = [{"pid": p.pid, "program": p.program, "exit_code": p.exit_code, "signal": p.signal, "printed": last_line(p) or None}
            for p in went_wrong(seen)]  # fmt: skip
        ended = {"exit_code": main.exit_code, "signal": main.signal, "processes": len(seen.processes), "left_running": seen.left_running}
        click.echo(to_json({"explained": bool(causes), "command": ended, "causes": [c.as_dict() for c in causes], "failed_processes": wrong}
            | seen.left_out))  # fmt: skip
        return outcome
    line = f"leadline why: {main.name}: {main.outcome}, {len(seen.processes):,} process{'es' if len(seen.processes) > 1 else ''}"
    click.echo(f"{line}, {seen.left_running} left running" if seen.left_running else line, err=True)
    for number, cause in enumerate(causes[:MOST_CAUSES]):
        if number == 1:
            click.echo("also:", err=True)
        click.echo(f"{'' if number else 'cause: '}{cause.statement}", err=True)
        for line in cause.evidence:
            click.echo(f"  {line}", err=True)
        click.echo(f"  fix: {cause.fix}", err=True)
    if len(causes) > MOST_CAUSES:
        click.echo(f"{len(causes) - MOST_CAUSES} more: --json lists all", err=True)
    if not causes:
        click.echo("no call explains the failure" if main.failed else "nothing is wrong", err=True)
        if main.failed and (line := last_line(main)):
            click.echo(f"  {main.name} printed last: {line}", err=True)
        wrong_ones = went_wrong(seen)
        for p in wrong_ones[:MOST_PROCESSES]:
            said = f", printed last: {last_line(p)}" if last_line(p) else ""
            click.echo(f"  {p.name} (pid {p.pid}): {p.outcome}{said}; the command went on", err=True)
        if len(wrong_ones) > MOST_PROCESSES:
            click.echo(f"  {len(wrong_ones) - MOST_PROCESSES} more: --json lists all", err=True)
    for name, left in seen.left_out.items():
        if left:
            click.echo(f"{left:,} {name.split('_')[0]} are not in this: too many", err=True)
    return outcome
