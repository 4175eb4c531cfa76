"""leadline rows: the rows of a table, straight from files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import SETTINGS, force
from leadline.figures import unconverted
from leadline.output import print_json_list, to_json, to_table

if TYPE_CHECKING:
    from leadline._core.datadir import Condition
    from leadline._core.rows import RowScan, RowsDescription, RowsStatus

UNLOGGED = {
    True: "CHECKPOINT does not write it, so its file may be out of date while the server runs",
    False: "the server was not shut down and will empty it when it starts",
}
BATCH = 2000  # rows that a table's columns are measured by


@click.command(
    "rows",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline rows /var/lib/postgresql/18/main public.orders
  leadline rows DATA_DIR orders --database shop --dead
  leadline rows DATA_DIR orders -o orders.parquet
  leadline rows base/16384/16402 --json
  leadline rows public.orders --dsn postgres:///shop""",
)
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.argument("relation", metavar="[REL]", required=False)
@click.option("--database", metavar="NAME", help="Database of REL.  [default: the only one that is not a template]")
@click.option("--dsn", metavar="DSN", help="Read PATH as the name of a table on this server (on this host).")
@click.option("--dead", is_flag=True, help="Include row versions that no new snapshot can see, with their location.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write rows to FILE.csv or FILE.parquet.")
@force
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Print at most N rows.")
@click.option("--threads", type=click.IntRange(1, 64), metavar="N", help="Threads to use with -o.  [default: one per CPU]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    path: Path,
    relation: str | None,
    database: str | None,
    dsn: str | None,
    dead: bool,
    output: Path | None,
    force: bool,
    limit: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Print the rows of a table, including dead ones, directly from files.

    No server is needed. PATH is a data directory of PostgreSQL 13 to 18 and REL is a
    table in it, [SCHEMA.]TABLE; or PATH is the file of the table. Columns are read from the
    catalog in the data directory. Values are printed as the server prints them. If the server is running, changes that are
    only in its memory cannot be seen: run CHECKPOINT to write them. With --dsn, the server is only asked where the table is.
    """
    from leadline._core.rows import RowScan
    from leadline.book.recorder import current
    from leadline.errors import LeadlineError
    from leadline.files import condition, unreadable
    from leadline.files.wal import threads_here
    from leadline.progress import TerminalLine
    from leadline.replacing import make_room

    if output and limit:
        raise LeadlineError("usage", "--limit cannot be combined with -o")
    if dsn is not None:
        if relation or database:
            raise LeadlineError("usage", "--dsn takes only the name of the table", hint="leadline rows SCHEMA.TABLE --dsn DSN")
        from leadline.files.pages.relation import place_in_server

        path = place_in_server(dsn, str(path)).path
    scan = RowScan(str(path), relation=relation, database=database, dead=dead)
    about = scan.describe()
    names = about["provenance"] + [name for name, _ in about["columns"]]
    around = condition.of(str(path))
    if output:
        make_room(output, overwrite=force)
        beside = unreadable.place(output)
        make_room(beside, overwrite=force)
        current().artifact("rows", output)
        line = TerminalLine()

        def progress(done: int, blocks: int) -> None:
            line.share(done, blocks, f"{done} of {blocks} blocks")

        try:
            count, as_text = scan.export(str(output), threads or threads_here(), progress)
        finally:
            line.done()
        status = scan.status()
        made: dict[str, Any] = {"relation": about["relation"], "rows": count, "file": str(output), "as_text": as_text}
        made |= {"virtual": about["virtual"], "unlogged": about["unlogged"], "encoding": about["encoding"]}
        made |= {**status, "notes": around["remarks"] if around else []}
        unreadable.write(beside, status["unreadable"])
        if as_text and not as_json:
            those = ", ".join(as_text)
            click.echo(f"note: written as text, because the Parquet type cannot hold all values (such as infinity): {those}", err=True)
        current().summary(f"{count} rows of {about['relation']}")
        click.echo(to_json(made) if as_json else f"{count} rows of {about['relation']} written to {output}")
        if status["unreadable"] and not as_json:
            click.echo(f"{beside} lists the data that could not be read")
    elif as_json:
        found = (dict(zip(names, row)) for row in islice(_rows(scan), limit))
        print_json_list(chain(found, unreadable.as_rows(scan)))
    else:
        rows = islice(_rows(scan), limit)
        while batch := list(islice(rows, BATCH)):
            click.echo(to_table(names, batch))
    _notes(about, scan.status(), around)


def _rows(scan: RowScan) -> Iterator[list[str | None]]:
    while (rows := scan.rows(BATCH)) is not None:
        yield from rows


def _notes(about: RowsDescription, status: RowsStatus, around: Condition | None) -> None:
    from leadline.files import condition, unreadable

    for remark in around["remarks"] if around else []:
        click.echo(condition.text(remark), err=True)
    if about["unknown"]:
        click.echo(f"note: printed as hex, because the type is unknown: {', '.join(about['unknown'])}", err=True)
    if (number := status["unconverted_characters"]) and about["encoding"]:
        click.echo(f"warning: {unconverted(number, about['encoding'])}", err=True)
    if about["virtual"]:
        click.echo(f"note: omitted, because virtual generated columns are not stored: {', '.join(about['virtual'])}", err=True)
    if about["unlogged"] and around and around["server"] != "stopped":
        click.echo(f"note: this is an unlogged table: {UNLOGGED[around['server'] == 'running']}", err=True)
    if gone := status["gone_blocks"]:
        click.echo(f"warning: the file was truncated while it was being read: {gone} blocks are gone, so rows may be missing", err=True)
    for what, count in (("pages", status["unread_pages"]), ("rows", status["unread_rows"]), ("values", status["unread_values"])):
        if count:
            more = "; run leadline page check for details" if what == "pages" else ""
            click.echo(f"warning: {count} {what} could not be read{more}", err=True)
    for line in unreadable.lines(status):
        click.echo(line, err=True)
    if count := status["vacuumed_values"]:
        click.echo(f"note: {count} TOAST values of dead rows have already been removed by VACUUM", err=True)
    if count := status["torn_pages"]:
        click.echo(f"warning: {count} torn pages were skipped: the server was writing them each time they were read", err=True)
    if count := status["wrong_checksums"]:
        click.echo(f"warning: {count} pages have a wrong checksum; their rows are printed as stored", err=True)
