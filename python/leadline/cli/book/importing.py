"""leadline book import: takes in what others have recorded."""

from __future__ import annotations

from pathlib import Path

import click

from leadline.cli import SETTINGS
from leadline.cli.book.options import as_json
from leadline.figures import count


@click.group("import", context_settings=SETTINGS, epilog="\b\nExamples:\n  leadline book import ara ~/.ara/server/ansible.sqlite")
def import_() -> None:
    """Import runs that another tool has recorded."""


@import_.command("ara", epilog="\b\nExamples:\n  leadline book import ara ~/.ara/server/ansible.sqlite")
@click.argument("file", type=click.Path())
@as_json
def ara(file: str, as_json: bool) -> None:
    """Import the SQLite database of Ara 1.x: each playbook becomes a run.

    FILE is usually ~/.ara/server/ansible.sqlite; it is only read. A second import takes only what is new. Values of variables whose
    names say password, secret or token are left out.
    """
    from leadline.book.ansible.ara import import_ara
    from leadline.book.query import Book
    from leadline.output import to_json

    book = Book()
    done = import_ara(book, Path(file))
    if as_json:
        click.echo(to_json(done.__dict__))
        return
    click.echo(f"{count(done.playbooks, 'playbook')} with {count(done.results, 'result')} imported; {done.already} were there already")
    if done.damaged:
        click.echo(f"{count(done.damaged, 'object')} could not be read, and are missing", err=True)
    click.echo("next: leadline book list --kind ansible", err=True)
