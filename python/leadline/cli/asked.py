"""A question before something is changed that is not ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from leadline.errors import LeadlineError


def ask(lines: Sequence[str], question: str, nobody: LeadlineError) -> None:
    """lines: what will be changed. Raises `nobody` where nobody can answer, click.Abort for a no."""
    for line in lines:
        click.echo(line, err=True)
    if not _answers():
        raise nobody
    click.confirm(question, abort=True, err=True)


def _answers() -> bool:
    return sys.stdin.isatty()
