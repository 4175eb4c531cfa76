"""leadline tables: the contracts of the tables, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
import textwrap

import click

from leadline.cli.forms import form, printed
from leadline.errors import LeadlineError
from leadline.output import width_here
from leadline.tables import Table, all_tables, whose_tables


def find_table(name: str) -> Table:
    """A table by name. Raises LeadlineError('not_found') with the names that come close."""
    tables = all_tables()
    if name in tables:
        return tables[name]
    import difflib

    close = difflib.get_close_matches(name, tables, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "run leadline tables to list them"
    raise LeadlineError("not_found", f"no table named {name}", hint=hint)


def list_text() -> str:
    """All tables and views, one per line."""
    lines: list[str] = []
    for engine, whose in whose_tables():
        for kind, title in (("table", "Tables{} (stored as Parquet)"), ("view", "Views{} (SQL over the tables)")):
            tables = [table for table in all_tables().values() if (table.kind, table.engine) == (kind, engine)]
            lines += [""] * bool(lines and tables) + [title.format(whose)] * bool(tables)
            for table in tables:
                lines += textwrap.wrap(table.title, width_here(), initial_indent=f"  {table.name:<21} ", subsequent_indent=" " * 24)
    lines += ["", "leadline tables NAME describes one table or view."]
    return "\n".join(lines)


def describe_text(table: Table) -> str:
    """One table: what it is, then each column with type, unit and meaning."""
    lines = textwrap.wrap(f"{table.name}: {table.title}.", width_here())
    if table.kind == "table":
        lines.append(f"A stored table, from probe {table.probe}.")
    elif table.sql:
        sources = ", ".join(table.needs + table.uses)
        lines += textwrap.wrap(f"A view over {sources}.", width_here())
    lines.append("")
    columns = (*table.all_columns, *table.computed)
    names = max(len(c.name) for c in columns)
    for column in columns:
        if column.name == "...":
            lines += textwrap.wrap(column.meaning, width_here(), subsequent_indent="  ")
            continue
        kind = column.type + (" or null" if column.nullable else "")
        unit = f" [{column.unit}]" if column.unit else ""
        lines.append(f"{column.name:<{names}}  {kind}{unit}")
        lines += textwrap.wrap(column.meaning, width_here(), initial_indent="    ", subsequent_indent="    ")
        if column.source:
            lines += textwrap.wrap(f"from {column.source}", width_here(), initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


@click.command(
    "tables",
    epilog="\b\nExamples:\n  leadline tables\n  leadline tables session_sample\n  leadline tables buffer_wait --json",
)
@click.argument("name", required=False)
@form("Print JSON, one object per table.", "Print CSV: a row per table, with NAME a row per column.")
def command(name: str | None, form: str | None) -> None:
    """List the tables of a capture, their columns, units and meaning.

    With NAME, describe one table or view.
    """
    chosen = [find_table(name)] if name else list(all_tables().values())
    if form == "csv" and name:
        printed(form, [dataclasses.asdict(column) for column in chosen[0].all_columns])
    elif form == "csv":
        printed(form, [{"name": table.name, "kind": table.kind, "probe": table.probe, "title": table.title} for table in chosen])
    elif form == "json":
        objects = [dataclasses.asdict(table) for table in chosen]
        click.echo(json.dumps(objects[0] if name else objects, ensure_ascii=False, indent=1))
    else:
        click.echo(describe_text(chosen[0]) if name else list_text())
