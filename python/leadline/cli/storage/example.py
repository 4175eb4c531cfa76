"""leadline storage example: layouts and loads to begin with."""

from __future__ import annotations

import click

from leadline.cli.forms import form, printed


@click.command(
    "example",
    short_help="Print a ready layout or load file.",
    epilog="""\b
Examples:
  leadline storage example
  leadline storage example 6xR1 > 6xR1.toml""",
)
@click.argument("name", required=False, metavar="[NAME]")
@form()
def command(name: str | None, form: str | None) -> int:
    """Print a layout or loads that come with leadline; without a NAME, list them."""
    from leadline.output import to_table
    from leadline.storage import ready

    rows = [{"name": each, "about": ready.about(each)} for each in ready.names()]
    if name is not None:
        rows = [{"name": name, "text": ready.text(name)}]
    if printed(form, rows):
        return 0
    if name is not None:
        click.echo(rows[0]["text"], nl=False)
    else:
        click.echo(to_table(["name", "what it is"], [list(row.values()) for row in rows]))
    return 0
