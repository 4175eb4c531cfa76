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

import functools
import json
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from leadline._core.rows import database_names
from leadline.errors import LeadlineError, cannot_be_written
from leadline.files.backup_rows import Source
from leadline.files.salvage import cluster, data, lost_catalog, rescue, schema
from leadline.files.salvage.catalog import Catalog, Key
from leadline.files.salvage.data import Table, Wanted, file_name
from leadline.files.salvage.given import GivenTable
from leadline.files.salvage.heap_files import HeapFile, heap_files
from leadline.files.salvage.written import Item, Lost

MANIFEST, GLOBALS = "manifest.json", "globals.sql"
FIRST = (
    "set check_function_bodies = false;\nset client_encoding = 'UTF8';\nset client_min_messages = warning;\nset xmloption = content;\n"
    "set row_security = off;\n"
)
NO_ROLES = "-- The roles are lost, with the catalogs of all databases.\n"
SEARCH_PATH = "select pg_catalog.set_config('search_path', '', false);\n"
RESTORE = "\\set ON_ERROR_STOP on\n\\i schema.sql\n\\i load.sql\n\\i constraints.sql\n"
Progress = Callable[[str, int, int], None]
"""Called with what is read, blocks done and blocks there are."""


@dataclass
class Database:
    """What became of one database. objects: how many are written; lost: what could not be, and why. template: the data directory and the
    database that the definitions are from, if they are not its own."""

    database: str
    folder: str
    create: str
    objects: int = 0
    rows: int = 0
    tables: list[Table] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    catalog_losses: list[str] = field(default_factory=list)
    template: str | None = None

    @property
    def is_whole(self) -> bool:
        has_losses = any(table.losses or table.doubtful for table in self.tables)
        return self.template is None and not (self.lost or self.catalog_losses or has_losses)


@dataclass(frozen=True)
class Help:
    """What is known of a database whose catalog is lost: a data directory with the same schema, its database, and by numbers of files the
    tables that they are; columns of tables."""

    template: Path | None = None
    template_database: str | None = None
    match: dict[int, str] = field(default_factory=dict)
    columns: list[GivenTable] = field(default_factory=list)


def salvage(
    source: Source, out: Path, names: Iterable[str], wanted: Wanted, progress: Progress | None, given: Help | None = None
) -> list[Database]:
    """Writes the databases, all without names. `out` is there when it is whole, in place of what was there. Raises LeadlineError."""
    data_dir = source.data_dir
    there = {name: (is_template, oid) for name, is_template, oid in database_names(str(data_dir))}
    chosen = list(names) or [name for name, (is_template, _) in there.items() if not is_template]
    if missing := [name for name in chosen if name not in there]:
        raise LeadlineError(
            "not_found", f"no database named {missing[0]}", detail=f"existing databases: {', '.join(there)}", where=str(data_dir)
        )
    partial = out.absolute().with_name(f".{out.absolute().name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        work = _Work(data_dir, partial, wanted, progress, given or Help(), there)
        found = work.databases(chosen)
        made = {"data_dir": str(source.path.resolve()), "databases": [asdict(each) for each in found], "unread_files": source.lost}
        text = source.named(json.dumps(made, ensure_ascii=False, indent=1))
        (partial / MANIFEST).write_text(f"{text}\n", encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    except BaseException as e:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(e, OSError):
            raise cannot_be_written("the database", e, out) from e
        raise
    return found


@dataclass
class _Work:
    """What is written, and where."""

    data_dir: Path
    out: Path
    wanted: Wanted
    progress: Progress | None
    given: Help
    there: dict[str, tuple[bool, int]]

    def databases(self, names: list[str]) -> list[Database]:
        """One whose catalogs cannot be read keeps none of the others. Raises LeadlineError when none can be."""
        found, failed = list[Database](), list[LeadlineError]()
        for name in names:
            try:
                found.append(self._database(name))
            except LeadlineError as e:
                failed.append(e)
                why = ": ".join(filter(None, (e.message, e.detail)))
                found.append(Database(name, "", "", lost=[Lost("the database", why)]))
        if failed and len(failed) == len(names):
            raise failed[0]
        return found

    def _database(self, name: str) -> Database:
        """Raises LeadlineError."""
        if self.given.template is not None:
            return self._by_catalog(name, self._template(name, self.given.template))
        dead, why = None, None
        try:
            dead = Catalog(self.data_dir, name)
        except LeadlineError as e:
            if e.kind not in ("not_found", "invalid", "storage"):
                raise
            why = e
        if dead is None or not dead.rows("pg_class"):
            return self._by_files(name, dead, why)
        return self._by_catalog(name, dead)

    def _template(self, name: str, template: Path) -> Catalog:
        """The catalog of the template that is that of this database. Raises LeadlineError."""
        majors = [_major(each) for each in (template, self.data_dir)]
        if majors[0] != majors[1]:
            detail = f"its major is {majors[0]}, that of the dead cluster {majors[1]}: rows do not lie the same"
            raise LeadlineError("unsupported", "the template is of another major", detail=detail, where=str(template))
        there = database_names(str(template))
        of_users = [each for each, is_template, _ in there if not is_template]
        same = [each for each, _, _ in there if each == name]
        if lost_catalog.is_copy_of(template, self.data_dir):
            same = same or [each for each, _, oid in there if oid == self.there[name][1]]
        chosen = self.given.template_database or (same or of_users)[0]
        if not same and not self.given.template_database and len(of_users) != 1:
            raise LeadlineError(
                "usage", f"the template has no database {name}", detail=f"its databases: {', '.join(of_users)}",
                hint="choose one with --template-database", where=str(template),
            )  # fmt: skip
        return Catalog(template, chosen)

    def _by_catalog(self, name: str, catalog: Catalog) -> Database:
        """By the definitions of a catalog, which is that of a template where it is not that of the database."""
        folder = self._folder(name)
        writer = schema.written(catalog)
        made = Database(name, folder.name, cluster.create_database(catalog, name), len({i.key for i in [*writer.before, *writer.after]}))
        defined = {item.key.oid for item in [*writer.before, *writer.after] if item.key.catalog == "pg_class"}
        tables = data.tables_of(writer, defined)
        places = None
        if self.given.template is not None:
            oid = self.there[name][1]
            places = lost_catalog.places(catalog, self.data_dir, oid, self.given.match)
            catalog.places = places
            made.template = f"{self.given.template}: {catalog.database}"
        loads = []
        for row in tables:
            oid = int(row["oid"])
            show = functools.partial(self.progress, row["relname"]) if self.progress else None
            table, lines = data.save(catalog, row, folder, self.wanted, show)
            made.tables.append(table)
            if places is not None:
                table.source = places.source(oid)
                lines = [] if data.has_foreign_values(table) else lines
            if oid in defined:
                loads += lines
            elif table.file:
                of_extension = Key("pg_class", oid) in writer.members
                why = "it belongs to an extension" if of_extension else "its definition could not be written"
                table.losses.append(f"{why}: {table.file} is not loaded")
        loads += data.sequence_values(writer)
        before = FIRST + SEARCH_PATH + _sql(writer.before)
        if places is not None:
            more, lines = self._left(places.matching.left, places.matching.toasts, folder, made)
            before += more
            loads += lines
        (folder / "schema.sql").write_text(before, encoding="utf-8")
        with (folder / "load.sql").open("w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in [FIRST.rstrip(), *loads]))
            file.writelines(f"{line}\n" for line in data.large_objects(writer))
        (folder / "constraints.sql").write_text(FIRST + SEARCH_PATH + _sql(writer.after), encoding="utf-8")
        (folder / "restore.sql").write_text(RESTORE, encoding="utf-8")
        made.rows = sum(table.rows for table in made.tables)
        made.lost += writer.lost
        made.catalog_losses = catalog.losses
        if self.wanted.as_of is not None:
            made.lost.append(
                Lost("rows as of an earlier time", "those that VACUUM has removed since are in no file, and objects are as they are")
            )
        self._globals(catalog)
        return made

    def _by_files(self, name: str, dead: Catalog | None, why: LeadlineError | None) -> Database:
        """Without definitions: by columns that are given, or guessed. Raises the error of the catalogs where there is no file of rows."""
        all_files = heap_files(self.data_dir, self.there[name][1])
        toasts = {file.number: file for file in all_files if file.is_toast}
        files = [(file, list[str]()) for file in all_files if file.number not in toasts]
        if not files:
            raise why or LeadlineError("invalid", "pg_class has no rows, and no file has rows of a table", where=str(self.data_dir))
        folder = self._folder(name)
        made = Database(name, folder.name, f"createdb -T template0 -E UTF8 {shlex.quote(name)}")
        reason = ": ".join(filter(None, (why.message, why.detail))) if why else "pg_class has no rows"
        made.lost.append(Lost("the catalog", f"{reason}; columns are given or guessed. With --template it is taken from elsewhere"))
        sql, loads = self._left(files, toasts, folder, made)
        made.rows = sum(table.rows for table in made.tables)
        for script, text in (("schema.sql", FIRST + SEARCH_PATH + sql), ("load.sql", FIRST + "".join(f"{line}\n" for line in loads))):
            (folder / script).write_text(text, encoding="utf-8")
        (folder / "constraints.sql").write_text(FIRST, encoding="utf-8")
        (folder / "restore.sql").write_text(RESTORE, encoding="utf-8")
        self._globals_of_any()
        return made

    def _left(
        self, files: list[tuple[HeapFile, list[str]]], toasts: dict[int, HeapFile], folder: Path, made: Database
    ) -> tuple[str, list[str]]:
        """Saves files that no catalog describes; the SQL and the loads of those whose columns are given. The others are guessed."""
        placed, lost = rescue.place([file for file, _ in files], self.given.columns)
        made.lost += lost
        sql, loads = "", list[str]()
        for file, _ in files:
            if file.number in placed:
                table, create, lines = rescue.save_given(file, placed[file.number], toasts, folder, self.wanted)
                made.tables.append(table)
                sql += f"\n{create}\n"
                loads += lines
        rest = [(file, may_be) for file, may_be in files if file.number not in placed]
        made.tables += rescue.save_guessed(rest, toasts, folder, self.wanted)
        return sql, loads

    def _folder(self, name: str) -> Path:
        folder = self.out / file_name(name, "", 0).rstrip(".")
        (folder / data.DATA).mkdir(parents=True)
        return folder

    def _globals_of_any(self) -> None:
        """What all databases share can be read through each whose catalogs can."""
        for name in self.there:
            try:
                return self._globals(Catalog(self.data_dir, name))
            except LeadlineError:
                continue
        (self.out / GLOBALS).write_text(NO_ROLES, encoding="utf-8")

    def _globals(self, catalog: Catalog) -> None:
        if not (self.out / GLOBALS).exists():
            (self.out / GLOBALS).write_text(cluster.globals_sql(catalog), encoding="utf-8")


def _major(data_dir: Path) -> str:
    try:
        return (data_dir / "PG_VERSION").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise LeadlineError("invalid", "not a PostgreSQL data directory", detail=str(e), where=str(data_dir)) from e


def _sql(items: list[Item]) -> str:
    return "".join(f"\n{item.sql}\n" for item in items)
