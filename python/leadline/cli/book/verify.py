"""leadline book verify: whether evidence is what it was."""

from __future__ import annotations

import click

from leadline.cli.book.options import as_json
from leadline.figures import count


@click.command("verify", epilog="\b\nExamples:\n  leadline book verify last\n  leadline book verify 4k7q2 --json\n  leadline book verify")
@click.argument("run", required=False)
@as_json
def verify(run: str | None, as_json: bool) -> int:
    """Check that evidence was not changed since: of one run, or of all.

    Files that runs made (captures, reports, ...) and what commands printed are read again and compared by SHA-256; of a folder, each file
    that was changed, added or is missing is named. Of an experiment, the design must have the seal that each of its legs has, and the
    verdict must follow from the legs. About a second for each gigabyte. Exit code 1 if something differs.
    """
    from leadline.book.evidence import DIFFERS, Check, verify
    from leadline.book.query import SHORT, Book, Filter, as_run, each_newest, printable
    from leadline.output import to_json

    book = Book()
    runs = [book.find(run)] if run is not None else (as_run(row) for row in each_newest(book.store, Filter()))
    looked_at, checks = 0, list[Check]()
    for one in runs:
        looked_at += 1
        checks += verify(book, book.details(one))
    differing = [check for check in checks if check.state in DIFFERS]
    if as_json:
        click.echo(to_json({"runs": looked_at, "checks": [check.as_dict() for check in checks], "differing": len(differing)}))
        return int(bool(differing))
    shown = checks if run is not None else [check for check in checks if check.state != "ok"]
    for check in shown:  # no table: a path is of no use when it is cut
        detail = f": {check.detail}" if check.detail else ""
        click.echo(printable(f"{check.run[:SHORT]}  {check.state:<10}{check.what} {check.name}{detail}"))
    fine = sum(check.state == "ok" for check in checks)
    said = f"{fine} of {count(len(checks), 'piece')} of evidence of {count(looked_at, 'run')} as recorded"
    click.echo(f"{said}; {count(len(differing), 'differs', 'differ')}" if differing else said)
    return int(bool(differing))
