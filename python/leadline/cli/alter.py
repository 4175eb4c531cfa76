"""leadline alter: rows that ALTER TABLE left in an old form, and rewriting them."""

from __future__ import annotations

import click

from leadline.cli import SETTINGS
from leadline.cli.output import to_json


@click.group(
    "alter",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline alter pending postgres:///shop
  leadline alter pending /var/lib/postgresql/18/main --table orders --json""",
)
def command() -> None:
    """Find what ALTER TABLE left in an old form, and rewrite only that.

    ALTER TABLE ADD COLUMN, DROP COLUMN and SET COMPRESSION change the catalog and leave the rows as they are.
    """


@command.command(
    "pending",
    epilog="""\b
Examples:
  leadline alter pending postgres:///shop --table public.orders
  leadline alter pending /var/lib/postgresql/18/main
  leadline alter pending base/16384/16402 --json""",
)
@click.argument("target", metavar="TARGET|PATH")
@click.option("--table", metavar="[DB.][SCHEMA.]TABLE", help="That table and its indexes, or a table's partitions, only.")
@click.option("--checkpoint", is_flag=True, help="Have the server write what only its memory has, first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pending(target: str, table: str | None, checkpoint: bool, as_json: bool) -> None:
    """Say which rows and pages are still in an old form, and why.

    TARGET is a server on this host: a connection string (its database is looked at)
    or a pid. PATH is a data directory, or the file of one table or index. Only files
    are read: the server is asked where they are, nothing is locked. Counted are rows that
    somebody may still see. Toast tables, catalogs and temporary tables are left out.
    """
    from leadline.alter import pending as work
    from leadline.alter.session import checkpoint_of
    from leadline.progress import TerminalLine

    where = work.place(target)
    if checkpoint:
        checkpoint_of(target)
    found = work.scan(where, table, progress=TerminalLine())
    click.echo(to_json(work.rows(found)) if as_json else work.text(found))
    for note in work.notes(where, found):
        click.echo(f"note: {note}", err=True)
