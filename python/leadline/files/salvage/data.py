"""The rows of a dead database, one file for each table, and the statements that load them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from leadline._core.rows import RowScan
from leadline.errors import LeadlineError
from leadline.files import row_losses, unreadable
from leadline.files.salvage.catalog import AsOf, Catalog, Row, numbers, quoted, rows_of
from leadline.files.salvage.grants import BOOTSTRAP
from leadline.files.salvage.node_names import string
from leadline.files.salvage.relations import is_temporary
from leadline.files.salvage.written import Writer

DATA, DOUBTFUL, DEAD = "data", "doubtful", "dead"
Progress = Callable[[int, int], None]
NAME_BYTES = 200  # of a file, with what is added to it
PAGE_BYTES = 2048  # of a large object in a row of pg_largeobject, where blocks have 8 kB
OPTIONS = {"copy": "", "csv": " with (format csv, header)"}


@dataclass
class Table:
    """What became of the rows of one table.

    doubtful: rows that are not whole, or of which nothing tells whether they are visible, which are in a file of their own; dead: versions
    of rows that are not visible, if they are wanted. losses: what of it could not be read, in words. source: where the rows are from, when
    the catalog of the database does not say it.
    """

    table: str
    rows: int = 0
    file: str = ""
    doubtful: int = 0
    doubtful_file: str = ""
    dead: int = 0
    dead_file: str = ""
    source: dict[str, Any] | None = None
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


@dataclass(frozen=True)
class Wanted:
    """How rows are saved. dead: versions that are not visible too, in files of their own. stopped: the server ended in order."""

    form: str
    threads: int
    stopped: bool
    dead: bool = False
    as_of: AsOf = None


class Source(Protocol):
    """Rows that can be read again."""

    def __call__(self, *, dead: bool = False) -> RowScan:
        """Raises LeadlineError."""


def save(catalog: Catalog, row: Row, folder: Path, wanted: Wanted, progress: Progress | None) -> tuple[Table, list[str]]:
    """Writes the rows of a table; what became of it, and the lines that load it."""
    schema, name = catalog.schema(int(row["relnamespace"])), str(row["relname"])
    found = Table(f"{schema}.{name}")
    columns = stored_columns(catalog, row)

    def source(*, dead: bool = False) -> RowScan:
        return catalog.scan(int(row["oid"]), columns, dead=dead, as_of=wanted.as_of)

    if not write(found, source, folder, file_name(schema, name, int(row["oid"])), wanted, progress):
        return found, []
    found.losses += [f"column {column} has the OIDs of the dead cluster" for column in with_oids(catalog, row) if found.rows]
    target = catalog.relation(int(row["oid"]))
    if not columns:
        return found, [f"insert into {target} select from generate_series(1, {found.rows});"]
    names = ", ".join(quoted(column) for column in columns)
    if "\n" in target + names:
        found.losses.append("a name with a line feed: load the file by hand")
        return found, []
    return found, [load_line(f"{target} ({names})", found.file)]


def load_line(target: str, file: str) -> str:
    """psql's command that loads a file; of Parquet, which the server does not read, a comment."""
    form = file.rpartition(".")[2]
    return f"-- {file}: into {target}" if form == "parquet" else f"\\copy {target} from '{file}'{OPTIONS[form]}"


def write(found: Table, source: Source, folder: Path, file: str, wanted: Wanted, progress: Progress | None) -> bool:
    """Writes rows into files of this name, and into `found` what became of them; whether they are there."""
    try:
        scan = source()
        path = folder / DATA / f"{file}.{wanted.form}"
        found.rows, _ = scan.export(str(path), wanted.threads, progress, "all" if wanted.form == "parquet" else "sure")
        status = scan.status()
        if wanted.form == "parquet" and (status["unknown_rows"] or status["unread_values"]):
            path.unlink()
            found.losses.append("some rows are doubtful: the others are in CSV, as Parquet has all rows or none")
            return write(found, source, folder, file, replace(wanted, form="csv"), progress)
        if status["unknown_rows"] or status["unread_values"]:
            found.doubtful, found.doubtful_file = _beside(source(), folder, DOUBTFUL, file, wanted, "doubtful")
        if wanted.dead:
            found.dead, found.dead_file = _beside(source(dead=True), folder, DEAD, file, wanted, "dead")
    except LeadlineError as e:
        found.losses.append(": ".join(filter(None, (e.message, e.detail))))
        return False
    found.file = f"{DATA}/{path.name}"
    found.losses += row_losses.losses(status)
    if found.rows and not wanted.stopped and scan.describe()["unlogged"]:
        found.losses.append("unlogged: after a crash the server would have emptied it, and nothing says that its rows are whole")
    found.unreadable = [{name: dict(loss)[name] for name in unreadable.OF_TABLE} for loss in status["unreadable"]]
    found.unreadable_left_out = status["unreadable_left_out"]
    unreadable.write(folder / DATA / f"{file}.unreadable.csv", status["unreadable"])
    return True


def has_foreign_values(table: Table) -> bool:
    """Whether values stand for things of the dead catalog, such as labels of enums: then the file is said to be not loaded."""
    is_so = any("not valid for the type" in loss for loss in table.losses)
    if is_so:
        table.losses.append(f"values stand for what is in the lost catalog: {table.file} is not loaded")
    return is_so


def _beside(scan: RowScan, folder: Path, kind: str, file: str, wanted: Wanted, which: str) -> tuple[int, str]:
    """Writes rows that are not loaded; how many there are, and the file, which there is only with some."""
    path = folder / kind / f"{file}.csv"
    path.parent.mkdir(exist_ok=True)
    rows, _ = scan.export(str(path), wanted.threads, None, which)
    if not rows and which == "dead":
        path.unlink()
        return 0, ""
    return rows, f"{kind}/{path.name}"


def sequence_values(writer: Writer) -> Iterator[str]:
    """Statements that set each sequence to where it was."""
    catalog = writer.catalog
    for row in catalog.rows("pg_class"):
        if row["relkind"] != "S" or not writer.is_mine("pg_class", row) or row["relpersistence"] == "t":
            continue
        schema = catalog.schema(int(row["relnamespace"]))
        try:
            value = next(rows_of(catalog.scan(int(row["oid"]))))
            name = string(catalog.relation(int(row["oid"])))
            yield f"select pg_catalog.setval({name}, {value['last_value']}, {'true' if value['is_called'] == 't' else 'false'});"
        except (LeadlineError, StopIteration, KeyError) as e:
            why = e.message if isinstance(e, LeadlineError) else "its file has no value"
            writer.lose(f"value of sequence {schema}.{row['relname']}", why)


def large_objects(writer: Writer) -> Iterator[str]:
    """Statements that make the large objects again, with their OIDs."""
    catalog = writer.catalog
    try:
        rows = list(rows_of(catalog.scan(catalog.tables.find("pg_catalog", "pg_largeobject_metadata"))))
    except LeadlineError as e:
        writer.lose("large objects", e.message)
        return
    owners = {int(row["oid"]): int(row["lomowner"]) for row in rows}
    for oid, owner in owners.items():
        yield f"select pg_catalog.lo_create({oid});"
        if owner in catalog.by_oid("pg_authid") and owner != BOOTSTRAP:
            yield f"alter large object {oid} owner to {catalog.role(owner)};"
    try:
        scan = catalog.scan(catalog.tables.find("pg_catalog", "pg_largeobject"))
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
