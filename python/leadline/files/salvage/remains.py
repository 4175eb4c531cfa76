"""What is left of the catalogs of a dead database, read by the layout that the catalogs of a template have."""

from __future__ import annotations

import functools
from pathlib import Path

from leadline._core.pages import page_read
from leadline.errors import LeadlineError
from leadline.files.salvage.catalog import Catalog, Row, rows_of


class Remains:
    """Rows that can be read, and nothing where none can."""

    def __init__(self, template: Catalog, data_dir: Path, database: int) -> None:
        self.template, self.folder = template, data_dir / "base" / str(database)

    def file(self, name: str) -> Path:
        """Of a catalog: as the map or pg_class have it, else as initdb made it."""
        oid = self.template.tables.find("pg_catalog", name)
        return self.folder / str(self._numbers.get(oid) or (self._of_class.get(oid) if name != "pg_class" else None) or oid)

    def rows(self, name: str) -> list[Row]:
        """Those of pg_catalog.NAME that are visible, or may be."""
        oid = self.template.tables.find("pg_catalog", name)
        try:
            return list(rows_of(self.template.tables.scan(oid, file=str(self.file(name)))))
        except LeadlineError:
            return []

    @functools.cached_property
    def classes(self) -> dict[tuple[str, str], Row]:
        """Of pg_class, by the names of schema and relation."""
        schemas = {row["oid"]: row["nspname"] for row in self.rows("pg_namespace")}
        rows = (row for row in self._classes if row["relnamespace"] in schemas)
        return {(schemas[row["relnamespace"]], row["relname"]): row for row in rows}

    @functools.cached_property
    def _classes(self) -> list[Row]:
        return [row for row in self.rows("pg_class") if row["oid"] and row["relname"]]

    @functools.cached_property
    def _of_class(self) -> dict[int, int]:
        return {int(row["oid"]): int(row["relfilenode"] or 0) for row in self._classes}

    @functools.cached_property
    def _numbers(self) -> dict[int, int]:
        try:
            parts = page_read(str(self.folder / "pg_filenode.map"), 0)["parts"]
            fields = [part["fields"] for part in parts if part["part"] == "mapping"]
            return {int(each["mapoid"]["value"]): int(each["mapfilenumber"]["value"]) for each in fields}
        except (LeadlineError, KeyError):
            return {}
