"""Each command that begins is recorded in the logbook, unasked: wrapped around the functions of the commands, without a word in them.

What records is imported only when a command begins: not for help, completion, or a line that makes no sense.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from leadline.cli.streams import last_said

# What records by itself, what looks at the book, what sets it up, and what does not end and makes captures all the time.
UNRECORDED = (
    "run", "experiment", "study", "ansible", "book", "serve", "project", "template", "schedule", "user", "token", "secret", "variables",
    "hook", "inventory", "record", "recorder",
)  # fmt: skip
_ARGUMENTS = "leadline.arguments"
_WRAPPED = "_leadline_recorded"
_PARENT = "LEADLINE_RUN"


class End:
    """How a command ended."""

    rc = 1


def recorded(command: click.Command, name: str) -> click.Command:
    """The command, with its function or those of its subcommands wrapped."""
    if name.partition(" ")[0] in UNRECORDED:
        return command
    for below, subcommand in (command.commands.items() if isinstance(command, click.Group) else ()):
        recorded(subcommand, f"{name} {below}")
    if not isinstance(command, click.Group) and command.callback is not None and not hasattr(command.callback, _WRAPPED):
        command.callback = _wrapped(command.callback, name)
    return command


def _wrapped(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def begin_and_call(*args: Any, **values: Any) -> Any:
        context = click.get_current_context()
        arguments = context.meta.get(_ARGUMENTS)
        if arguments is not None:
            from leadline.book.recorder import begin_command

            given, files = _given(context)
            begin_command(name, arguments, given, files)
        return function(*args, **values)

    setattr(begin_and_call, _WRAPPED, True)
    return begin_and_call


def with_arguments(context: click.Context, arguments: Sequence[str]) -> None:
    """Says what the command line is; a command that is called otherwise is not recorded."""
    context.meta[_ARGUMENTS] = list(arguments)


def _given(context: click.Context) -> tuple[dict[str, Any], list[str]]:
    """What the user gave to the command, by name, and the files among it."""
    given: dict[str, Any] = {}
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT") and value not in (None, ()):
            given[name] = value
    texts = [str(part) for value in given.values() for part in (value if isinstance(value, tuple | list) else [value])]
    return given, [text for text in texts if "\0" not in text and os.path.isfile(text)]


@contextmanager
def end_of_command() -> Iterator[End]:
    """Records how the command ended that began in the block, if one did."""
    end, parent = End(), os.environ.get(_PARENT)
    try:
        yield end
    finally:
        if (recorder := sys.modules.get("leadline.book.recorder")) is not None:
            if not recorder.current().has_summary:
                recorder.current().summary(last_said())
            # Exit code 1 tells of findings, 3 that `why` knows no cause.
            recorder.end_command(end.rc, fine=end.rc in (0, 1, 3) and sys.exc_info()[0] is None, parent=parent)


def summarise(text: str) -> None:
    """Says what came of the command that runs, if it is recorded."""
    if (recorder := sys.modules.get("leadline.book.recorder")) is not None:
        recorder.current().summary(text)
