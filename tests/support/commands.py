"""Every command that there is, found in the click group: what is said of all of them is said of a new one too."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import click
from leadline.cli import group, run


def output_of(*words: Any) -> str:
    """What a command prints, which ends well."""
    with redirect_stdout(io.StringIO()) as out:
        assert run([str(word) for word in words]) == 0
    return out.getvalue()


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


def on_terminal(arguments: list[str], lines: int, columns: int) -> str:
    """What the command prints when stdout is a terminal of this size."""
    screen_end, command_end = pty.openpty()
    fcntl.ioctl(command_end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "leadline", *arguments],
        stdin=subprocess.DEVNULL, stdout=command_end, stderr=subprocess.STDOUT, env=environment,
    )  # fmt: skip
    os.close(command_end)
    seen = b""
    try:
        while chunk := os.read(screen_end, 65536):
            seen += chunk
    except OSError:  # EIO: the command has closed its end
        pass
    os.close(screen_end)
    assert process.wait(60) == 0
    return seen.decode().replace("\r\n", "\n")
