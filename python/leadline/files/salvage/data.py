"""The rows of a dead database, one file for each table, and the statements that load them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline._core.rows import RowScan
from leadline.errors import LeadlineError
from leadline.files import row_losses, unreadable
from leadline.files.salvage.catalog import Catalog, Row, numbers, open_scan, quoted, rows_of
from leadline.files.salvage.grants import BOOTSTRAP
from leadline.files.salvage.node_names import string
from leadline.files.salvage.relations import is_temporary
from leadline.files.salvage.written import Writer

DATA, DOUBTFUL = "data", "doubtful"
NAME_BYTES = 200  # of a file, with what is added to it
PAGE_BYTES = 2048  # of a large object in a row of pg_largeobject, where blocks have 8 kB
OPTIONS = {"copy": "", "csv": " with (format csv, header)"}


@dataclass
class Table:
    """What became of the rows of one table.

    doubtful: rows that are not whole, or of which nothing tells whether they are visible, which are in a file of their own. losses: what
    of it could not be read, in words.
    """

    table: str
    rows: int = 0
    file: str = ""
    doubtful: int = 0
    doubtful_file: str = ""
    losses: list[str] = field(default_factory=list)
    unreadable: list[dict[str, Any]] = field(default_factory=list)
    unreadable_left_out: int = 0


def file_name(schema: str, name: str, oid: int) -> str:
    """Of a table: no two tables have the same."""
    escaped = [re.sub(r"[%./\\'\"\x00-\x1f\x7f]", lambda match: f"%{ord(match[0]):02X}", part) for part in (schema, name)]
    made = ".".join(escaped)
    return made if len(made.encode()) <= NAME_BYTES else f"{oid}"


def tables_of(writer: Writer, defined: set[int]) -> list[Row]:
    """Those with rows of their own that users made; of extensions those whose rows are users', and materialized views without a query.

    defined: the OIDs of what schema.sql makes.
    """
    catalog = writer.catalog
    of_users = {oid for row in catalog.rows("pg_extension") for oid in numbers(row["extconfig"])}

    def is_wanted(row: Row) -> bool:
        oid, is_lost_view = int(row["oid"]), row["relkind"] == "m" and int(row["oid"]) not in defined
        has_rows = row["relkind"] == "r" or is_lost_view
        return has_rows and (writer.is_mine("pg_class", row) or oid in of_users) and not is_temporary(catalog, row)

    return [row for row in catalog.rows("pg_class") if is_wanted(row)]


def with_oids(catalog: Catalog, row: Row) -> list[str]:
    """Columns of regclass and the like: their values are OIDs of the dead cluster, and stand for other objects in a new one."""
    columns = (c for c in catalog.attributes.get(int(row["oid"]), ()) if c["attisdropped"] == "f")
    types = catalog.by_oid("pg_type")
    return [c["attname"] for c in columns if str(types.get(int(c["atttypid"]), {}).get("typname", "")).startswith("reg")]


def stored_columns(catalog: Catalog, row: Row) -> list[str]:
    """Names of the columns that COPY fills: the server computes the generated ones."""
    columns = catalog.attributes.get(int(row["oid"]), ())
    return [c["attname"] for c in columns if c["attisdropped"] == "f" and not (c["attgenerated"] or "").strip()]


def save(
    catalog: Catalog, row: Row, folder: Path, form: str, threads: int, progress: Callable[[int, int], None] | None, *, stopped: bool
) -> tuple[Table, list[str]]:
    """Writes the rows of a table; what became of it, and the lines that load it. stopped: the server ended in order."""
    schema, name = catalog.schema(int(row["relnamespace"])), str(row["relname"])
    found = Table(f"{schema}.{name}")
    file = file_name(schema, name, int(row["oid"]))
    columns = stored_columns(catalog, row)

    def scan_again() -> RowScan:
        return open_scan(catalog.data_dir, catalog.database, schema, name, columns)

    try:
        scan = scan_again()
        path = folder / DATA / f"{file}.{form}"
        found.rows, _ = scan.export(str(path), threads, progress, "sure")
        status = scan.status()
        if status["unknown_rows"] or status["unread_values"]:
            doubtful = folder / DOUBTFUL / f"{file}.csv"
            doubtful.parent.mkdir(exist_ok=True)
            found.doubtful, _ = scan_again().export(str(doubtful), threads, None, "doubtful")
            found.doubtful_file = f"{DOUBTFUL}/{doubtful.name}"
    except LeadlineError as e:
        found.losses.append(": ".join(filter(None, (e.message, e.detail))))
        return found, []
    found.file = f"{DATA}/{path.name}"
    found.losses += row_losses.losses(status)
    if found.rows and not stopped and scan.describe()["unlogged"]:
        found.losses.append("unlogged: after a crash the server would have emptied it, and nothing says that its rows are whole")
    found.losses += [f"column {column} has the OIDs of the dead cluster" for column in with_oids(catalog, row) if found.rows]
    found.unreadable, found.unreadable_left_out = [dict(loss) for loss in status["unreadable"]], status["unreadable_left_out"]
    unreadable.write(folder / DATA / f"{file}.unreadable.csv", status["unreadable"])
    target = catalog.relation(int(row["oid"]))
    if not columns:
        return found, [f"insert into {target} select from generate_series(1, {found.rows});"]
    names = ", ".join(quoted(column) for column in columns)
    if "\n" in target + names:
        found.losses.append("a name with a line feed: load the file by hand")
        return found, []
    return found, [f"\\copy {target} ({names}) from '{found.file}'{OPTIONS[form]}"]


def sequence_values(writer: Writer) -> Iterator[str]:
    """Statements that set each sequence to where it was."""
    catalog = writer.catalog
    for row in catalog.rows("pg_class"):
        if row["relkind"] != "S" or not writer.is_mine("pg_class", row) or row["relpersistence"] == "t":
            continue
        schema = catalog.schema(int(row["relnamespace"]))
        try:
            value = next(rows_of(open_scan(catalog.data_dir, catalog.database, schema, row["relname"])))
            name = string(catalog.relation(int(row["oid"])))
            yield f"select pg_catalog.setval({name}, {value['last_value']}, {'true' if value['is_called'] == 't' else 'false'});"
        except (LeadlineError, StopIteration, KeyError) as e:
            why = e.message if isinstance(e, LeadlineError) else "its file has no value"
            writer.lose(f"value of sequence {schema}.{row['relname']}", why)


def large_objects(writer: Writer) -> Iterator[str]:
    """Statements that make the large objects again, with their OIDs."""
    catalog = writer.catalog
    owners = {int(row["oid"]): int(row["lomowner"]) for row in catalog.rows("pg_largeobject_metadata")}
    for oid, owner in owners.items():
        yield f"select pg_catalog.lo_create({oid});"
        if owner in catalog.by_oid("pg_authid") and owner != BOOTSTRAP:
            yield f"alter large object {oid} owner to {catalog.role(owner)};"
    try:
        scan = open_scan(catalog.data_dir, catalog.database, "pg_catalog", "pg_largeobject")
        for row in rows_of(scan):
            if int(row["loid"] or 0) not in owners or row["data"] is None or row["pageno"] is None:
                why = "the object has no row of its own, or the page no content"
                writer.lose(f"page {row['pageno']} of large object {row['loid']}", why)
            else:
                yield f"select pg_catalog.lo_put({row['loid']}, {int(row['pageno']) * PAGE_BYTES}, {string(row['data'])});"
        for line in row_losses.losses(scan.status()):
            writer.lose("large objects", line)
    except LeadlineError as e:
        writer.lose("large objects", e.message)
