"""--json and --csv of commands that print rows: the options, and what they print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def form(as_json: str = "Print JSON.", as_csv: str = "Print CSV with a header line.") -> Callable[[F], F]:
    """The two options, as one parameter `form`: json, csv, or None for people. The last one given counts."""

    def add(command: F) -> F:
        with_csv = click.option("--csv", "form", flag_value="csv", help=as_csv)(command)
        return click.option("--json", "form", flag_value="json", help=as_json)(with_csv)

    return add


def printed(form: str | None, rows: Iterable[Mapping[str, Any]], whole: Any = None) -> bool:
    """Prints what a program asked for: the rows as CSV, or as JSON `whole`, by default a list of the rows. False where nobody did."""
    from leadline.output import print_csv, print_json_list, to_json

    if form == "csv":
        print_csv(rows)
    elif form == "json" and whole is None:
        print_json_list(rows)
    elif form == "json":
        click.echo(to_json(whole))
    return form is not None
