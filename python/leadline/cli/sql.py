"""leadline sql: a query over the tables of one capture. It reads this capture and nothing else."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from leadline.capture.reader import Capture, open_capture
from leadline.cli.sql_screen import one_screen
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.output import print_json_list, terminal_width, to_csv, to_table, together

READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
BATCH = 10_000


def lock_down(capture: Capture) -> None:
    """From here on the connection reads the files of the capture and no others, and its settings stay as they are."""
    directory = str(capture.path.resolve()).replace("'", "''")
    relative = str(capture.path).replace("'", "''")  # the views name their files as the capture was opened
    capture.db.execute(f"set allowed_directories = ['{directory}', '{relative}']")
    capture.db.execute("set enable_external_access = false")
    capture.db.execute("set lock_configuration = true")


def check_reading(capture: Capture, query: str) -> None:
    """Raises LeadlineError('query') unless the text is one statement that only reads."""
    try:
        statements = capture.db.extract_statements(query)
    except duckdb.Error as e:
        raise query_error(e) from e
    if len(statements) != 1:
        raise LeadlineError("query", f"expected one statement, got {len(statements)}", hint="combine them with a WITH clause")
    if statements[0].type not in READING:
        kind = statements[0].type.name.lower().replace("_", " ")
        hint = "start the query with select, with, from, describe or explain"
        raise LeadlineError("query", f"{kind} is not allowed: a capture is read-only", hint=hint)


def query_error(e: duckdb.Error) -> LeadlineError:
    """In its own words: those of a query that fails after its first rows come below what could not be fetched for it. Of several threads,
    the one that is stopped may be heard before the one that failed."""
    lines = str(e).strip().splitlines()
    first = next((line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")), lines[0])
    if first.startswith("INTERRUPT Error"):
        return LeadlineError("query", "the query failed", detail="DuckDB does not say why", hint="run it again: mostly, it does")
    return LeadlineError("query", "the query failed", detail=first, hint="run leadline tables NAME to list the columns of a table")


@click.command(
    "sql",
    epilog="""\b
Examples:
  leadline sql demo.leadline "select wait_class, sum(weight_s) as seconds
    from db_time group by 1 order by 2 desc"
  leadline sql demo.leadline "from hot_block limit 5" --json
  leadline sql demo.leadline - --csv < query.sql
  leadline sql demo.leadline "describe session_sample\"""",
)
@click.argument("capture", type=click.Path(path_type=Path))
@click.argument("query")
@click.option("--json", "form", flag_value="json", help="Print a JSON list of objects.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV with a header line.")
@click.option("--table", "form", flag_value="table", help="Print all rows as a table, even on a terminal.")
def command(capture: Path, query: str, form: str | None) -> None:
    """Run SQL over the tables of a capture.

    QUERY is one DuckDB query over the tables that `leadline tables` lists; with -, it is read from standard input. It can
    read only this capture.

    On a terminal, only the rows that fit on the screen are printed, with the local time beside each ts. Otherwise all
    rows are printed, as with --table. Long values are truncated only on a terminal that is too narrow for them, never in a pipe or
    a file.
    """
    opened = open_capture(capture, whole=True)
    try:
        lock_down(opened)
        if query == "-":
            query = sys.stdin.read()
        check_reading(opened, query)
        _print(opened, query, form)
    finally:
        opened.close()


def _print(capture: Capture, query: str, form: str | None) -> None:
    try:
        if form is None and sys.stdout.isatty():
            size = shutil.get_terminal_size()
            text, note = one_screen(capture, query, os.terminal_size((terminal_width() or size.columns, size.lines)))
            click.echo(text)
            if note:
                click.echo(note, err=True)
            return
        cursor = capture.db.execute(query)
        names = [column[0] for column in cursor.description or []]
        if form == "csv":
            for part in together(to_csv(names, _stream(cursor))):
                click.echo(part, nl=False)
        elif form == "json":
            print_json_list(dict(zip(names, row)) for row in _stream(cursor))
        else:
            click.echo(to_table(names, cursor.fetchall()))
    except duckdb.Error as e:
        raise query_error(e) from e


def _stream(cursor: Any) -> Any:
    while batch := cursor.fetchmany(BATCH):
        yield from batch
