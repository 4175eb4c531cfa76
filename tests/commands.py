"""Every command that there is, found in the click group: what is said of all of them is said of a new one too."""

from __future__ import annotations

from collections.abc import Iterator

import click
from leadline.cli import group


def leaves() -> Iterator[tuple[list[str], click.Command]]:
    """The words of each command, such as page check, and the command."""
    with click.Context(group) as context:
        yield from _below(group, context, [])


def _below(command: click.Command, context: click.Context, words: list[str]) -> Iterator[tuple[list[str], click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, name
        yield from _below(found, context, [*words, name])
