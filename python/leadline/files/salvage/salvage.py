"""A dead cluster's databases as files that bring them into a new server: SQL, and one file for each table.

globals.sql                     roles
manifest.json                   what was written, and what could not be
DATABASE/restore.sql            runs the others: cd DATABASE; psql -d NEW -f restore.sql
DATABASE/schema.sql             what must be there before the rows
DATABASE/load.sql               loads the rows, large objects and values of sequences
DATABASE/constraints.sql        indexes, keys, triggers, policies, owners, grants
DATABASE/data/SCHEMA.TABLE.copy
DATABASE/doubtful/...           rows that are not whole, or of which nothing tells whether they are visible
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from leadline._core.rows import database_names
from leadline.errors import LeadlineError, cannot_be_written
from leadline.files import condition
from leadline.files.salvage import cluster, data, schema
from leadline.files.salvage.catalog import Catalog, Key
from leadline.files.salvage.data import Table, file_name
from leadline.files.salvage.written import Item, Lost

MANIFEST, GLOBALS = "manifest.json", "globals.sql"
FIRST = (
    "set check_function_bodies = false;\nset client_encoding = 'UTF8';\nset client_min_messages = warning;\nset xmloption = content;\n"
    "set row_security = off;\n"
)
SEARCH_PATH = "select pg_catalog.set_config('search_path', '', false);\n"
RESTORE = "\\set ON_ERROR_STOP on\n\\i schema.sql\n\\i load.sql\n\\i constraints.sql\n"
Progress = Callable[[str, int, int], None]
"""Called with what is read, blocks done and blocks there are."""


@dataclass
class Database:
    """What became of one database. objects: how many are written; lost: what could not be, and why."""

    database: str
    folder: str
    create: str
    objects: int = 0
    rows: int = 0
    tables: list[Table] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    catalog_losses: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not (self.lost or self.catalog_losses or any(table.losses or table.doubtful for table in self.tables))


def salvage(data_dir: Path, out: Path, names: Iterable[str], form: str, threads: int, progress: Progress | None) -> list[Database]:
    """Writes the databases, all without names. `out` is there when it is whole, in place of what was there. Raises LeadlineError."""
    there = dict(database_names(str(data_dir)))
    wanted = list(names) or [name for name, is_template in there.items() if not is_template]
    if missing := [name for name in wanted if name not in there]:
        raise LeadlineError(
            "not_found", f"no database named {missing[0]}", detail=f"existing databases: {', '.join(there)}", where=str(data_dir)
        )
    partial = out.absolute().with_name(f".{out.absolute().name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        found = _databases(data_dir, partial, wanted, form, threads, progress)
        made = {"data_dir": str(data_dir.resolve()), "databases": [asdict(each) for each in found]}
        (partial / MANIFEST).write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    except BaseException as e:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(e, OSError):
            raise cannot_be_written("the database", e, out) from e
        raise
    return found


def _databases(
    data_dir: Path, out: Path, names: list[str], form: str, threads: int, progress: Progress | None
) -> list[Database]:
    """One whose catalogs cannot be read keeps none of the others. Raises LeadlineError when none can be."""
    found, failed = list[Database](), list[LeadlineError]()
    for name in names:
        try:
            found.append(_database(data_dir, out, name, form, threads, progress))
            if not (out / GLOBALS).exists():
                (out / GLOBALS).write_text(cluster.globals_sql(Catalog(data_dir, name)), encoding="utf-8")
        except LeadlineError as e:
            failed.append(e)
            why = ": ".join(filter(None, (e.message, e.detail)))
            found.append(Database(name, "", "", lost=[Lost("the database", why)]))
    if failed and len(failed) == len(names):
        raise failed[0]
    return found


def _database(data_dir: Path, out: Path, name: str, form: str, threads: int, progress: Progress | None) -> Database:
    catalog = Catalog(data_dir, name)
    folder = out / file_name(name, "", 0).rstrip(".")
    (folder / data.DATA).mkdir(parents=True)
    writer = schema.written(catalog)
    made = Database(name, folder.name, cluster.create_database(catalog), len({item.key for item in [*writer.before, *writer.after]}))
    loads = []
    defined = {item.key.oid for item in [*writer.before, *writer.after] if item.key.catalog == "pg_class"}
    around = condition.of(str(data_dir))
    stopped = around is not None and around["server"] == "stopped"
    for row in data.tables_of(writer, defined):
        show = (lambda done, blocks, row=row: progress(row["relname"], done, blocks)) if progress else None
        table, lines = data.save(catalog, row, folder, form, threads, show, stopped=stopped)
        made.tables.append(table)
        if int(row["oid"]) in defined:
            loads += lines
        elif table.file:
            of_extension = Key("pg_class", int(row["oid"])) in writer.members
            why = "it belongs to an extension" if of_extension else "its definition could not be written"
            table.losses.append(f"{why}: {table.file} is not loaded")
    made.rows = sum(table.rows for table in made.tables)
    loads += data.sequence_values(writer)
    (folder / "schema.sql").write_text(FIRST + SEARCH_PATH + _sql(writer.before), encoding="utf-8")
    with (folder / "load.sql").open("w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in [FIRST.rstrip(), *loads]))
        file.writelines(f"{line}\n" for line in data.large_objects(writer))
    (folder / "constraints.sql").write_text(FIRST + SEARCH_PATH + _sql(writer.after), encoding="utf-8")
    (folder / "restore.sql").write_text(RESTORE, encoding="utf-8")
    made.lost, made.catalog_losses = writer.lost, catalog.losses
    return made


def _sql(items: list[Item]) -> str:
    return "".join(f"\n{item.sql}\n" for item in items)
