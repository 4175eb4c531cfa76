"""Commands made of the table of operations: leadline GROUP VERB does what the pages and REST do, as the owner of the book."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from leadline.cli import COMMANDS, SETTINGS
from leadline.cli.forms import printed
from leadline.errors import LeadlineError
from leadline.server.operation import Input, Operation

TYPES = {"int": click.INT, "text": click.STRING, "json": click.STRING, "enum": click.STRING}


class OperationGroup(click.Group):
    """A group whose subcommands are the operations GROUP.*; made when they are asked for."""

    def __init__(self, name: str, examples: Sequence[str]) -> None:
        super().__init__(
            name,
            context_settings=SETTINGS,
            help=COMMANDS[name],
            epilog="\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples),
            no_args_is_help=True,
        )

    def invoke(self, ctx: click.Context) -> Any:
        from leadline.book.store import told

        with told():
            return super().invoke(ctx)

    def _operations(self) -> dict[str, Operation]:
        from leadline.server.table import OPERATIONS

        return {o.verb: o for o in OPERATIONS if o.group == self.name and not o.command}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._operations())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        operation = self._operations().get(cmd_name)
        return None if operation is None else command_of(operation)


def command_of(operation: Operation) -> click.Command:
    words = (*operation.in_path, *operation.words)
    parameters: list[click.Parameter] = [_argument(i) for name in words for i in operation.inputs if i.name == name]
    parameters += [_option(i) for i in operation.inputs if i.name not in words]
    parameters.append(click.Option(["--json", "form"], flag_value="json", help="Print JSON."))
    if operation.rows:
        parameters.append(click.Option(["--csv", "form"], flag_value="csv", help="Print CSV with a header line."))

    def run(form: str | None, **given: Any) -> None:
        _run(operation, form, {name.removesuffix("_"): value for name, value in given.items()})

    needed = any(i.required and i.kind != "secret" for i in operation.inputs)
    return click.Command(
        operation.verb, params=parameters, callback=run, help=operation.summary, no_args_is_help=needed, context_settings=SETTINGS
    )


def _argument(of: Input) -> click.Parameter:
    return click.Argument([of.name], metavar=of.name.upper(), required=True)


def _option(of: Input) -> click.Parameter:
    """A secret has none: it is asked for, or read from standard input."""
    name, dest = f"--{of.name.replace('_', '-')}", of.name + ("_" if of.name in ("from",) else "")
    text = of.help[:1].upper() + of.help[1:] + ("" if of.help.endswith(".") else ".")
    if of.kind == "secret":
        return click.Option(
            [f"{name}-file", dest],
            type=click.File("r"),
            metavar="FILE",
            help=f"{text} From a file, or - for standard input.  [default: ask]",
        )
    if of.kind == "bool":
        return click.Option([f"{name}/--no-{of.name.replace('_', '-')}", dest], default=None, help=text)
    if of.kind == "enum":
        return click.Option(
            [name, dest],
            type=click.Choice(of.choices),
            required=of.required,
            help=text + (f"  [default: {of.default}]" if of.default else ""),
        )
    default = f"  [default: {of.default}]" if of.default not in (None, "") else ""
    return click.Option(
        [name, dest],
        type=TYPES[of.kind],
        required=of.required,
        metavar={"int": "N", "json": "JSON"}.get(of.kind, "TEXT"),
        help=text + default,
    )


def _run(operation: Operation, form: str | None, given: dict[str, Any]) -> None:
    from leadline.book.place import find_place
    from leadline.book.store import Store
    from leadline.output import to_json
    from leadline.server.housekeeping import after_command, take_in
    from leadline.server.operation import perform
    from leadline.server.read.prometheus import Text
    from leadline.server.rights import OWNER

    place = find_place()
    if place is None:
        raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="LEADLINE_BOOK=DIRECTORY leadline ...")
    for one in operation.inputs:
        if one.kind == "secret":
            given[one.name] = _secret(one, given[one.name])
    store = Store(place)
    try:
        take_in(place, store)
        answer = perform(operation, OWNER, store, place, {name: value for name, value in given.items() if value is not None})
        if operation.writes:
            after_command(place, store)
    finally:
        store.close()
    if isinstance(answer, Text):
        click.echo(to_json({"text": answer.text}) if form else answer.text, nl=form is not None)
    elif not printed(form, answer[operation.rows] if operation.rows else (), answer):
        _print(operation, answer)
        _say_more(operation, answer, given.get("limit"))


def _secret(of: Input, file: Any) -> str | None:
    if file is not None:
        return str(file.read()).rstrip("\n")
    if not of.required:
        return None
    if not sys.stdin.isatty():
        raise LeadlineError("usage", f"{of.name} is missing", hint=f"--{of.name}-file FILE, or - for standard input")
    return str(click.prompt(of.name.capitalize(), hide_input=True, confirmation_prompt=True, err=True))


def _print(operation: Operation, answer: Any) -> None:
    from leadline.output import to_table

    if operation.rows:
        rows = answer[operation.rows]
        if rows:
            click.echo(
                to_table(
                    [c.removesuffix("_json") for c in operation.columns], [[_cell(row[c], c) for c in operation.columns] for row in rows]
                )
            )
        else:
            click.echo("there are none", err=True)
        return
    for name, value in answer.items():
        if (text := _cell(value, name)) not in ("", None):
            click.echo(f"{name:<12}{text}")
    if operation.follows:
        click.echo(f"next: {operation.follows.format(**answer)}", err=True)


def _say_more(operation: Operation, answer: Any, limit: int | None) -> None:
    """Of a list that stopped at its limit. Rows of the audit are numbered from 1, so that it is known how many are older."""
    from leadline.output import more_than

    most = limit or next((one.default for one in operation.inputs if one.name == "limit"), None)
    rows = answer.get(operation.rows) if operation.rows and isinstance(answer, dict) else None
    if not rows or most is None or len(rows) < most or "n" not in rows[-1]:
        return
    if rows[-1]["n"] > 1:
        click.echo(more_than(len(rows), len(rows) + rows[-1]["n"] - 1, f"--limit N, or --before {rows[-1]['n']}"), err=True)


def _cell(value: Any, column: str) -> Any:
    from leadline.cli.book.options import when

    if column in ("created", "changed", "expires", "used", "ts", "asked", "started", "ended", "next_due", "sent", "due") and isinstance(
        value, int
    ):
        return when(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(when(v) if column == "next" and isinstance(v, int) else str(v) for v in value)
    return value
