"""leadline compare: two captures or runs, environment first."""

from __future__ import annotations

import click

OUTCOME_NOT_COMPARABLE = 1


@click.command(
    "compare",
    epilog="\b\nExamples:\n  leadline compare before.leadline after.leadline\n"
    "  leadline compare before.leadline after.leadline --factor work_mem\n  leadline compare 4k7q2 last --json",
)
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@click.option("--factor", "factors", multiple=True, metavar="NAME", help="A setting or fact that was changed on purpose; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(context: click.Context, one: str, other: str, factors: tuple[str, ...], as_json: bool) -> None:
    """Show where the time moved between two captures or runs.

    A and B are captures, also from different hosts, or runs of the logbook. First comes what they were measured on: CPU, memory, kernel,
    devices under data and WAL, server, settings, data set. What must be equal and differs is printed in capitals. There is then no
    verdict (exit code 1), unless you declare the difference with --factor. Then come database time by wait and statement, devices, and
    latency of a load.

    With one measurement of each you cannot know whether a difference is reproducible: for that, leadline experiment compares in pairs.
    """
    from leadline.compare import compare
    from leadline.compare.environment import both

    found = compare(*both(one, other), factors)
    if as_json:
        from leadline.output import to_json

        click.echo(to_json(found.as_dict()))
    else:
        from leadline.compare.text import lines

        click.echo("\n".join(lines(found)))
    context.exit(0 if found.comparable else OUTCOME_NOT_COMPARABLE)
