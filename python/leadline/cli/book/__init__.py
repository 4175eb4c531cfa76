"""leadline book: the logbook of what was run. One file per group of subcommands."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli import SETTINGS
from leadline.cli.book import change, importing, look, results
from leadline.cli.book.log import log
from leadline.cli.book.verify import verify


class BookGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        from leadline.book.store import told

        with told():
            return super().invoke(ctx)


@click.group(
    "book",
    cls=BookGroup,
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline book list --status failed --since 7d
  leadline book show last
  leadline book log last | less -R
  leadline book search "could not extend"
  leadline book diff 4k7q2 last
  leadline book prune --older 90d --dry-run""",
)
def command() -> None:
    """Show the logbook of runs: status, output, cost, differences.

    The logbook has every command of leadline, every command given to `leadline run`, and Ansible runs. Name a run by the first letters
    of its id, or by `last`. The logbook is in LEADLINE_BOOK or ~/.local/state/leadline/book; LEADLINE_BOOK=off records nothing.
    """


READING = (look.list_runs, look.days, look.show, log, look.search, look.diff, look.export, verify)
WRITING = (change.label, change.pin, change.cancel, change.prune, change.compress)
for _subcommand in (*READING, *WRITING):
    command.add_command(_subcommand)
for _subcommand in (results.tasks, results.results, results.hosts, results.host, importing.import_):
    command.add_command(_subcommand)
