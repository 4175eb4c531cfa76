"""leadline doctor: the checks as a table, or JSON."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

import click

from leadline.cli.forms import form, printed
from leadline.output import width_here

if TYPE_CHECKING:
    from leadline.engines.check import Check

_COLOURS = {"ok": "green", "limited": "yellow", "missing": "red"}


def render(checks: list[Check], last_line: str) -> str:
    """The table; what is lost and the command that helps stand under a check that is not ok."""
    lines: list[str] = []
    area = ""
    for check in checks:
        if check.area != area:
            area = check.area
            lines += [""] * bool(lines) + [click.style(area, bold=True)]
        status = click.style(f"{check.status:<7}", fg=_COLOURS.get(check.status))
        head, *rest = textwrap.wrap(check.found, max(width_here() - 31, 20)) or [""]
        lines.append(f"  {status}  {check.name:<20}{head}")
        lines += [" " * 31 + line for line in rest]
        if check.effect:
            lines += textwrap.wrap(f"lost: {check.effect}", width_here(), initial_indent=" " * 11, subsequent_indent=" " * 17)
        if check.command:
            lines += textwrap.wrap(
                f"to do: {check.command}",
                width_here(),
                initial_indent=" " * 11,
                subsequent_indent=" " * 18,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join([*lines, "", last_line])


@click.command(
    "doctor",
    epilog="\b\nExamples:\n  leadline doctor\n  leadline doctor 4711\n  leadline doctor /var/lib/postgresql/16/main\n"
    "  leadline doctor postgresql://app@db1/shop --json",
)
@click.argument("target", required=False)
@form("Print the checks as JSON.", "Print the checks as CSV.")
def command(target: str | None, form: str | None) -> int:
    """Show what can be measured here, and how to enable the rest.

    TARGET is a pid, a data directory or a connection string. Without it, only the host is checked. Exit code 2 if the target
    cannot be captured.
    """
    from leadline import doctor
    from leadline.engines.live import find_text

    found = find_text(target) if target else None
    checks = doctor.doctor(found)
    if form == "csv":
        printed(form, [check.as_dict() for check in checks])
    elif form == "json":
        click.echo(json.dumps(doctor.as_json(checks, found), ensure_ascii=False, indent=1))
    else:
        click.echo(render(checks, doctor.verdict(checks, found)))
    return 2 if found is not None and not doctor.tiers(checks) else 0
