"""leadline study restore: puts back what a killed study has changed, where its guard could not."""

from __future__ import annotations

import json

import click

from leadline.cli.study.options import as_json, find_study
from leadline.errors import LeadlineError


@click.command(
    "restore",
    short_help="Put a server back as it was before a study.",
    epilog="\b\nExamples:\n  leadline study restore last\n  leadline study restore 4k7q2 --server 'host=db password=secret'",
)
@click.argument("run", default="last")
@click.option("--server", metavar="DSN", help="The server of the study, where its password is not in PGPASSWORD or the password file.")
@as_json
def command(run: str, server: str | None, as_json: bool) -> int:
    """Put the settings of a server back as they were before a study, and drop its databases.

    A study does this at its end, and a process beside it if the study is killed. This command is for what they could not do: the server
    was down, or the host. It reads what was there from the directory of the study in the logbook.
    """
    from leadline.book.experiments.studies import parts_of
    from leadline.book.place import find_place
    from leadline.book.query import Book
    from leadline.output import to_json
    from leadline.study.perform import held
    from leadline.study.servers import put_back

    place = find_place()
    if place is None:
        raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)")
    book = Book(place)
    try:
        row = find_study(book, run)
        seals = book.store.rows("select seal from experiment where run = ?", (row["id"],))
        uid = parts_of(book.store, seals[0]["seal"])[0]["uid"] if seals else row["uid"]  # it may not have come so far as to register
    finally:
        book.close()
    directory = place.study_of(uid)
    if not (directory / "journal.json").exists():
        click.echo(to_json([]) if as_json else "nothing is to be put back")
        return 0
    with held(directory, lambda: None):
        put = put_back(server or json.loads((directory / "journal.json").read_text(encoding="utf-8"))["dsn"], directory / "journal.json")
    rows = [{"setting": name, "value": effect.shown} for name, effect in put.items()]
    click.echo(to_json(rows) if as_json else "\n".join(f"{row['setting']} is {row['value']} again" for row in rows) or "put back")
    return 0


COMMANDS = (command,)
