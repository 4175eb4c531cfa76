"""Names from the catalog files of a data directory: no connection, no slot, works when the server is saturated.

Reads pg_filenode.map, pg_class, pg_namespace, pg_index, pg_am, pg_database and pg_authid (oid and rolname only, never the
password). Offsets are of the fixed-width leading columns, which hold no nulls. Relations created or rewritten since the last
write of their catalog pages are missing here, and stay numbers in the capture.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leadline._core import block_sizes
from leadline.errors import LeadlineError
from leadline.postgres.catalog.heap import Status, live_tuples, transaction_status
from leadline.postgres.catalog.sql import Collected, Row

SUPPORTED = range(12, 19)
DEFAULT_SPACE, GLOBAL_SPACE = 1663, 1664
PG_CLASS, PG_NAMESPACE, PG_INDEX, PG_AM, PG_DATABASE, PG_AUTHID = 1259, 2615, 2610, 2601, 1262, 1260
STORED_KINDS = frozenset("riStmpI")
_MAP_MAGIC = 0x592717
_MAX_MAPPINGS = 64
MAX_CATALOG_BYTES = 256 << 20  # a pg_class beyond that is not read: it would take longer than most captures


@dataclass(frozen=True)
class ClassLayout:
    """Offsets within a pg_class tuple that moved between majors."""

    reltoastrelid: int
    relkind: int


def class_layout(major: int) -> ClassLayout:
    shift = 4 if major >= 18 else 0  # relallfrozen came in 18
    return ClassLayout(reltoastrelid=108 + shift, relkind=115 + shift)


def tablespace_offset(major: int) -> int:
    """Offset of pg_database.dattablespace: 15 moved datcollate and datctype to the end."""
    return 92 if major >= 15 else 224


@dataclass(frozen=True)
class _Class:
    oid: int
    name: str
    namespace: int
    am: int
    filenode: int
    space: int
    pages: int
    tuples: float
    toast: int
    shared: bool
    kind: str


class CatalogFiles:
    """The catalogs of one data directory. Raises LeadlineError('unsupported') for a major it does not know."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir
        try:
            version = (data_dir / "PG_VERSION").read_text(encoding="utf-8").strip()
        except OSError as e:
            raise LeadlineError("rights", f"the data directory may not be read: {e.strerror}", where=str(data_dir)) from e
        if not version.isdigit() or int(version) not in SUPPORTED:
            raise LeadlineError(
                "unsupported",
                f"catalog files of PostgreSQL {version} are not known to this version",
                hint=f"known: {SUPPORTED[0]} to {SUPPORTED[-1]}; give a connection string for names over SQL",
                where=str(data_dir),
            )
        self.major = int(version)
        self.block_size, _ = block_sizes(str(data_dir))
        self._status: Status = transaction_status(data_dir / "pg_xact", self.block_size)

    def collect(self, datids: list[int] | None = None) -> Collected:
        """Databases, roles and relations. datids: databases to list relations of; None for all. Failures become notes."""
        found = Collected()
        databases = list(self.databases())
        found.add("database", [(oid, name, space, self._database_bytes(oid, space)) for oid, name, space in databases])
        found.add("role", list(self.roles()))
        shared_done = False
        for oid, name, space in databases:
            if datids is not None and oid not in datids:
                continue
            try:
                rows = self.relations(oid, space)
            except (OSError, LeadlineError) as e:
                found.notes.append(f"relations of database {name} were not read from its files: {e}")
                continue
            found.add("relation", [row for row in rows if row[0] or not shared_done])
            shared_done = True
        found.notes.append(
            "names were read from the catalog files: what was created or renamed since their last write may be missing and stays a number"
        )
        return found

    def databases(self) -> Iterator[tuple[int, str, int]]:
        """(oid, name, default tablespace)."""
        at = tablespace_offset(self.major)
        for row in self._shared(PG_DATABASE):
            if len(row) >= at + 4:
                yield _u32(row, 0), _name(row, 4), _u32(row, at)

    def roles(self) -> Iterator[tuple[int, str]]:
        """(oid, name)."""
        for row in self._shared(PG_AUTHID):
            if len(row) >= 68:
                yield _u32(row, 0), _name(row, 4)

    def relations(self, datid: int, default_space: int) -> list[Row]:
        """Rows of table relation for one database, shared relations (datid 0) with it."""
        folder = self._folder(default_space, datid)
        mapped, shared_map = read_filenode_map(folder / "pg_filenode.map"), self._shared_map()
        classes = {c.oid: c for c in (self._class(row) for row in self._heap(folder, mapped[PG_CLASS]))}

        def tuples_of(catalog: int) -> Iterator[bytes]:
            return self._heap(folder, classes[catalog].filenode) if catalog in classes else iter(())

        namespaces = {_u32(row, 0): _name(row, 4) for row in tuples_of(PG_NAMESPACE)}
        methods = {_u32(row, 0): _name(row, 4) for row in tuples_of(PG_AM)}
        tables = {_u32(row, 0): _u32(row, 4) for row in tuples_of(PG_INDEX)}
        owners = {c.toast: c.oid for c in classes.values() if c.toast}
        sizes: dict[Path, dict[int, int]] = {}
        rows: list[Row] = []
        for c in classes.values():
            if c.kind not in STORED_KINDS:
                continue
            filenode = c.filenode or (shared_map if c.shared else mapped).get(c.oid, 0)
            space = c.space or (GLOBAL_SPACE if c.shared else default_space)
            place = self._folder(space, 0 if c.shared else datid)
            if place not in sizes:
                sizes[place] = main_fork_sizes(place)
            table = tables.get(c.oid, c.oid)
            rows.append((
                0 if c.shared else datid, c.oid, filenode, space, namespaces.get(c.namespace, f"schema {c.namespace}"), c.name, c.kind,
                methods.get(c.am, ""), owners.get(table, table), sizes[place].get(filenode, -1) if filenode else 0, c.tuples,
            ))  # fmt: skip
        return rows

    def _class(self, row: bytes) -> _Class:
        layout = class_layout(self.major)
        if len(row) < layout.relkind + 1:
            raise LeadlineError("invalid", "a pg_class row is shorter than its major has it", where=str(self.root))
        (tuples,) = struct.unpack_from("<f", row, 100)
        return _Class(
            oid=_u32(row, 0), name=_name(row, 4), namespace=_u32(row, 68), am=_u32(row, 84), filenode=_u32(row, 88),
            space=_u32(row, 92), pages=_u32(row, 96), tuples=tuples, toast=_u32(row, layout.reltoastrelid),
            shared=row[layout.relkind - 2] != 0, kind=chr(row[layout.relkind]),
        )  # fmt: skip

    def _shared(self, catalog: int) -> Iterator[bytes]:
        return self._heap(self.root / "global", self._shared_map()[catalog])

    def _shared_map(self) -> dict[int, int]:
        return read_filenode_map(self.root / "global" / "pg_filenode.map")

    def _heap(self, folder: Path, filenode: int) -> Iterator[bytes]:
        """Live tuples of a relation's main fork, all segments."""
        part = 0
        while True:
            path = folder / (f"{filenode}.{part}" if part else str(filenode))
            if not path.exists():
                return
            if path.stat().st_size > MAX_CATALOG_BYTES:
                raise LeadlineError("unsupported", "a catalog is too large to be read from its file", where=str(path))
            yield from live_tuples(path.read_bytes(), self._status, self.block_size)
            part += 1

    def _folder(self, space: int, datid: int) -> Path:
        """Where the files of a database in a tablespace are."""
        if space == GLOBAL_SPACE:
            return self.root / "global"
        if space == DEFAULT_SPACE:
            return self.root / "base" / str(datid)
        versions = sorted((self.root / "pg_tblspc" / str(space)).glob(f"PG_{self.major}_*"))
        return (versions[0] if versions else self.root / "pg_tblspc" / str(space)) / str(datid)

    def _database_bytes(self, datid: int, space: int) -> int:
        try:
            return sum(f.stat().st_size for f in self._folder(space, datid).iterdir())
        except OSError:
            return -1


def read_filenode_map(path: Path) -> dict[int, int]:
    """pg_filenode.map: catalog oid -> file number. Raises LeadlineError."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise LeadlineError("storage", f"the relation map cannot be read: {e.strerror}", where=str(path)) from e
    magic, count = struct.unpack_from("<ii", data) if len(data) >= 8 else (0, 0)
    if magic != _MAP_MAGIC or not 0 <= count <= _MAX_MAPPINGS or len(data) < 8 + 8 * count:
        raise LeadlineError("invalid", "this is not a relation map of PostgreSQL", where=str(path))
    return dict(struct.unpack_from("<II", data, 8 + 8 * i) for i in range(count))


_MAIN_FORK = re.compile(r"(\d+)(?:\.\d+)?")


def main_fork_sizes(folder: Path) -> dict[int, int]:
    """Bytes of each relation's main fork in a folder, all segments; empty when it may not be read."""
    sizes: dict[int, int] = {}
    try:
        for entry in folder.iterdir():
            match = _MAIN_FORK.fullmatch(entry.name)
            if match:
                sizes[int(match.group(1))] = sizes.get(int(match.group(1)), 0) + entry.stat().st_size
    except OSError:
        return sizes
    return sizes


def _u32(row: bytes, offset: int) -> int:
    value: int = struct.unpack_from("<I", row, offset)[0]
    return value


def _name(row: bytes, offset: int) -> str:
    return row[offset : offset + 64].split(b"\0", 1)[0].decode("utf-8", "replace")
