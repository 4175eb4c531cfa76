"""leadline study list: the ready studies."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli.forms import form, printed


@click.command("list", short_help="List the ready studies.", epilog="\b\nExamples:\n  leadline study list\n  leadline study list --json")
@form()
def command(form: str | None) -> int:
    """List the ready studies: the question of each, what it needs, and how long it takes."""
    from leadline.output import to_table
    from leadline.study.design import read, ready
    from leadline.study.planning import seconds_of_study
    from leadline.units import duration

    rows: list[dict[str, Any]] = []
    for name in ready():
        study = read(name)
        seconds = seconds_of_study(study, {})
        rows.append({"name": name, "question": study.question, "needs": study.needs, "seconds": seconds})
    if printed(form, rows):
        return 0
    click.echo(to_table(["study", "takes", "question"], [[row["name"], duration(row["seconds"]), row["question"]] for row in rows]))
    for row in rows:
        click.echo(f"{row['name']} needs {row['needs']}")
    click.echo("next: leadline study plan NAME", err=True)
    return 0


COMMANDS = (command,)
