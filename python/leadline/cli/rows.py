"""leadline rows: the rows of a table, straight from files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import OUTCOME_FINDINGS, OUTCOME_FINE, SETTINGS, force
from leadline.cli.backup_options import SourcePath, based_on, key_file
from leadline.cli.forms import form
from leadline.output import PART, print_json_list, stopped_at, to_json, to_table

if TYPE_CHECKING:
    from leadline._core.rows import RowScan

BATCH = 2000  # rows that a table's columns are measured by


def _names(_context: click.Context, _option: click.Parameter, value: str | None) -> list[str] | None:
    """Separated by commas; those with a comma in them are quoted."""
    return None if value is None else next(csv.reader([value], skipinitialspace=True), [])


@click.command(
    "rows",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline rows /var/lib/postgresql/18/main public.orders
  leadline rows DATA_DIR orders --database shop --dead
  leadline rows DATA_DIR orders --columns id,total --limit 10
  leadline rows DATA_DIR orders --where "paid is null" -o open.csv
  leadline rows DATA_DIR orders -o orders.parquet
  leadline rows DATA_DIR orders --arrow | python load.py
  leadline rows base/16384/16402 --json
  leadline rows /backup/monday orders
  leadline rows public.orders --dsn postgres:///shop""",
)
@click.argument("path", metavar="PATH", type=SourcePath())
@click.argument("relation", metavar="[REL]", required=False)
@click.option("--database", metavar="NAME", help="Database of REL.  [default: the only one that is not a template]")
@click.option("--dsn", metavar="DSN", help="Read PATH as the name of a table on this server (on this host).")
@click.option("--columns", metavar="A,B", callback=_names, help="Only these columns, in this order; quote names with commas.")
@click.option("--where", "conditions", metavar="CONDITIONS", help="Only rows for which this is true, as in SQL: a > 1 and b is not null.")
@click.option("--dead", is_flag=True, help="Also print dead row versions. Adds the columns ctid and status.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write FILE.csv, .parquet, .arrow or .arrows.")
@force
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Print or write at most N rows: the first ones.")
@click.option("--threads", type=click.IntRange(1, 64), metavar="N", help="Threads of -o, --csv and --arrow.  [default: one per CPU]")
@based_on
@key_file
@form()
@click.option("--arrow", "form", flag_value="arrow", help="Print an Arrow IPC stream.")
def command(
    path: Path,
    relation: str | None,
    database: str | None,
    dsn: str | None,
    columns: list[str] | None,
    conditions: str | None,
    dead: bool,
    output: Path | None,
    force: bool,
    limit: int | None,
    threads: int | None,
    bases: tuple[Path, ...],
    key_file: Path | None,
    form: str | None,
) -> int:
    """Print the rows of a table from its files, dead rows too.

    No server is needed. PATH is a data directory of PostgreSQL 13 to 18 and REL is a
    table in it, [SCHEMA.]TABLE, which may be a partitioned one; or PATH is the file of a table. PATH may also be a backup: tar archives of
    pg_basebackup, or a backup of pgBackRest, barman or WAL-G (see leadline page check); rows are as its files have them, before a server
    replays the WAL. Columns are read from the
    catalog in the data directory. Values are printed as the server prints them. Changes that a running server has only
    in its buffers cannot be seen: run CHECKPOINT to write them. With --dsn, leadline asks the server only for the path of the table.
    With --csv, values are as COPY writes them. With --arrow, and in FILE.arrow (Arrow IPC file) and FILE.arrows (stream), they have
    the types of FILE.parquet.
    --where takes COLUMN = VALUE (also <> < <= > >=), COLUMN IS NULL and COLUMN IS NOT NULL, joined by AND; texts compare by their bytes.
    Exit code 0: the whole table was read; 1: something is missing or damaged, or the status of rows is not known; 2: error.
    """
    from leadline._core.rows import RowScan
    from leadline.book.recorder import current
    from leadline.errors import LeadlineError
    from leadline.files import arrow_rows, backup_rows, row_losses, unreadable
    from leadline.files.backup_key import backup_key
    from leadline.files.wal import threads_here
    from leadline.progress import TerminalLine
    from leadline.replacing import make_room

    if output and output.suffix.lower() not in (suffixes := (".csv", ".parquet", *arrow_rows.FORMS)):
        raise LeadlineError("usage", f"the output name must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}", where=str(output))
    if form == "arrow" and (output or sys.stdout.isatty()):
        reason = "--arrow prints rows, and -o writes them to a file" if output else "Arrow is binary, and not for a terminal"
        raise LeadlineError("usage", reason, hint="for a file: -o FILE.arrows, without --arrow")
    if dsn is not None:
        if relation or database:
            raise LeadlineError("usage", "--dsn takes only the name of the table", hint="leadline rows SCHEMA.TABLE --dsn DSN")
        from leadline.files.pages.relation import table_in_server

        path, relation, database = table_in_server(dsn, str(path))
    with backup_rows.opened(path, bases, backup_key(key_file)) as source:
        source.need_table(relation, database)
        scan = RowScan(
            str(source.data_dir), relation=relation, database=database, dead=dead, columns=columns, conditions=conditions, limit=limit
        )
        about = scan.describe()
        printed = [name for name, _ in about["columns"]]
        around = source.condition()
        count = 0
        if output:
            make_room(output, overwrite=force)
            beside = unreadable.place(output)
            make_room(beside, overwrite=force)
            current().artifact("rows", output)
            line = TerminalLine()

            def progress(done: int, blocks: int) -> None:
                line.share(done, blocks, f"{done} of {blocks} blocks")

            try:
                if output.suffix.lower() in arrow_rows.FORMS:
                    exported, as_text = arrow_rows.export_arrow(scan, output, threads or threads_here(), progress)
                else:
                    exported, as_text = scan.export(str(output), threads or threads_here(), progress)
            finally:
                line.done()
            status = scan.status()
            made: dict[str, Any] = {"relation": about["relation"], "rows": exported, "file": str(output), "as_text": as_text}
            made |= {"virtual": about["virtual"], "unlogged": about["unlogged"], "encoding": about["encoding"]}
            made |= {**status, "notes": around["remarks"] if around else [], "unread_files": source.lost}
            unreadable.write(beside, status["unreadable"])
            if not form:
                _tell_text(as_text)
            current().summary(f"{exported} rows of {about['relation']}")
            click.echo(source.named(to_json(made)) if form else f"{exported} rows of {about['relation']} written to {output}")
            if status["unreadable"] and not form:
                click.echo(f"{beside} lists the data that could not be read")
            count = exported
        elif form == "csv":
            count = _print_csv(scan, threads or threads_here())
        elif form == "arrow":
            with arrow_rows.exported(scan, threads or threads_here()) as made_here:
                arrow_rows.write_arrow(sys.stdout.buffer, made_here, ".arrows")
            _tell_text(made_here.as_text)
            count = made_here.rows
        elif form == "json":
            found = (_as_dict(names, names + printed, row, dead=dead) for names, rows in _batches(scan) for row in rows)
            print_json_list(chain(found, unreadable.as_rows(scan)))
        else:
            for names, rows in _batches(scan):
                click.echo(to_table(names + printed, rows))
                count += len(rows)
        if form != "json" and (text := stopped_at(limit, count)):
            click.echo(text, err=True)
        status = scan.status()
        for said in row_losses.lines(about, status, around):
            click.echo(source.named(said), err=True)
        for said in source.lines():
            click.echo(said, err=True)
        return OUTCOME_FINE if row_losses.is_whole(status) and not source.lost else OUTCOME_FINDINGS


def _tell_text(columns: list[str]) -> None:
    if columns:
        those = ", ".join(columns)
        click.echo(f"note: written as text, because the type of the file cannot hold all values (such as infinity): {those}", err=True)


def _print_csv(scan: RowScan, threads: int) -> int:
    """By way of a file, as the server's COPY would write it: whether the columns ctid and status are needed is known at the end. How many
    rows there are."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="leadline-") as directory:
        file = Path(directory, "rows.csv")
        count, _ = scan.export(str(file), threads, None)
        with file.open("rb") as made:
            while part := made.read(PART):
                click.echo(part, nl=False)
    return count


def _batches(scan: RowScan) -> Iterator[tuple[list[str], list[list[str | None]]]]:
    """Some rows, and the names of what stands before their columns."""
    names, waiting = scan.provenance(), list[list[str | None]]()
    while (rows := scan.rows(BATCH)) is not None:
        if waiting and scan.provenance() != names:
            yield names, waiting
            waiting = []
        names = scan.provenance()
        waiting += rows
        while len(waiting) >= BATCH:
            yield names, waiting[:BATCH]
            del waiting[:BATCH]
    if waiting:
        yield names, waiting


def _as_dict(beside: list[str], names: list[str], row: list[str | None], *, dead: bool) -> dict[str, str | None]:
    """A row whose status is known needs none, unless dead ones are among them. `beside`: what stands before the columns."""
    found = dict(zip(names, row))
    for name in beside if not dead else ():
        if name.lstrip("_") == "status" and found[name] != "unknown":
            del found[name]
    return found
