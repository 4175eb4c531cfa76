"""Rows of a backup: the files that they are read from are put into a temporary directory, as those of a data directory, and no others.

First the catalogs of all databases, which say what the files of tables are called; then, as they are asked for, those of tables. They are
as the backup has them: nothing replays its WAL.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from leadline._core.backups import BackupFiles
from leadline._core.rows import database_names, files_of_catalogs, files_of_database, files_of_table
from leadline.errors import LeadlineError
from leadline.files import condition, store
from leadline.files.extracted import must_have_room, temporary
from leadline.units import sized

if TYPE_CHECKING:
    from leadline._core.datadir import Condition

File = tuple[int, int, int]
"""Tablespace, database and number."""
DEFAULT_SPACE, GLOBAL_SPACE = 1663, 1664
FIRST_OF_USERS = 16384
# Catalogs that may be as large as tables, and that no other file is found by: pg_largeobject, pg_statistic, pg_statistic_ext_data.
LARGE = {2613, 2619, 2840, 3429, 3430}
STATE = re.compile(
    r"PG_VERSION|backup_label|postmaster\.pid|(standby|recovery)\.signal|global/pg_control|(pg_xact|pg_multixact|pg_commit_ts)/.+"
    r"|(.+/)?(pg_filenode\.map|PG_VERSION)"
)
RELATION = re.compile(r"(?:global|base/(\d+)|pg_tblspc/(\d+)/PG_[^/]+/(\d+))/(\d+)(?:_(?:fsm|vm|init))?(?:\.\d+)?")
LOSSES = ("not_found", "invalid", "storage")  # kinds of errors of what is not there or damaged
WITH_ROWS = re.compile(r"[^/]+|pg_tblspc/[^/]+")  # archives and tablespaces
SHOWN = 3  # of what is lost, beside an error
MAP = "pg_filenode.map"
MAP_MAGIC = 0x592717
RESTORE = "restore it, and let a server replay its WAL; or read the files as they are"


@dataclass
class Source:
    """Where rows are read from: a data directory, or files of a backup as those of one. lost: of the files that were needed those of which
    not all could be read, and why."""

    path: Path
    """As it was named."""
    data_dir: Path
    kind: str = ""
    lost: list[tuple[str, str]] = field(default_factory=list)
    extracted: int = 0
    """Bytes that were written."""
    _backup: BackupFiles | None = None
    _left: dict[str, int] = field(default_factory=dict)

    @property
    def is_backup(self) -> bool:
        return self._backup is not None

    def named(self, text: str) -> str:
        """A text in which files are named as those of the backup."""
        return text.replace(str(self.data_dir), str(self.path)) if self.is_backup else text

    def condition(self) -> Condition | None:
        found = condition.of(str(self.data_dir))
        for remark in found["remarks"] if found and self.is_backup else ():
            if remark["name"] in ("restoring", "crashed", "copied"):
                remark["hint"] = RESTORE
        return found

    def losses(self) -> list[str]:
        return [f"{name} is damaged in the backup, or not whole: {self.named(why)}" for name, why in self.lost]

    def lines(self) -> Iterator[str]:
        """What is to be said of the backup, for stderr."""
        yield from (f"warning: {text}" for text in self.losses())
        if self.is_backup:
            yield f"note: {self.kind}: {sized(self.extracted)} of its files were read by way of {self.data_dir.parent}"

    def need_table(self, table: str | None, database: str | None) -> None:
        """Raises LeadlineError, also where there is no such table."""
        if self.is_backup:
            files, is_certain = files_of_table(str(self.data_dir), table, database)
            self._need(files, set() if is_certain else {of for _, of, _ in files})

    def need_databases(self, names: list[str], *, all_files: bool) -> None:
        """All that have rows; of a database whose catalog is damaged all files, as with all_files. Raises LeadlineError."""
        if not self.is_backup:
            return
        for name, is_template, oid in database_names(str(self.data_dir)):
            if name in names or not (names or is_template):
                try:
                    files, is_certain = files_of_database(str(self.data_dir), name)
                except LeadlineError as e:
                    if e.kind not in LOSSES:
                        raise
                    files, is_certain = [], False
                self._need(files, set() if is_certain and not all_files else {oid})

    def begin(self) -> None:
        """The catalogs, and what says which transactions committed. Raises LeadlineError."""
        mapped = self._mapped()
        self._extract({name for name in self._left if STATE.fullmatch(name) or _is_catalog(name, mapped)})
        self._need([file for file in files_of_catalogs(str(self.data_dir)) if file[2] not in LARGE], set())

    def _need(self, files: list[File], databases: set[int]) -> None:
        """These, and all of some databases."""
        wanted = set(files)
        self._extract({name for name in self._left if _file(name) in wanted or _database_of(name) in databases})

    def _extract(self, names: set[str]) -> None:
        assert self._backup is not None
        needed = sum(self._left[name] for name in names)
        must_have_room(self.data_dir, needed, self.kind)
        if names:
            self.lost += self._backup.extract(str(self.data_dir), names)
            self.extracted += needed
            for name in names:
                del self._left[name]

    def _mapped(self) -> set[int] | None:
        """Numbers of the catalogs that are found by their maps; None where a map says nothing, and any file may be one."""
        assert self._backup is not None
        found: set[int] = set()
        for name in self._left:
            if name.rpartition("/")[2] == MAP:
                content = self._backup.small(name) or b""
                if len(content) < 8:
                    return None
                magic, count = struct.unpack_from("<II", content)
                if magic != MAP_MAGIC or 8 + 8 * count > len(content):
                    return None
                found.update(struct.unpack_from("<II", content, 8 + 8 * each)[1] for each in range(count))
        return found


def _file(name: str) -> File | None:
    """The relation that a file is of."""
    match = RELATION.fullmatch(name)
    if match is None:
        return None
    default, space, database, number = (int(part or 0) for part in match.groups())
    if space:
        return space, database, number
    return (DEFAULT_SPACE, default, number) if default else (GLOBAL_SPACE, 0, number)


def _database_of(name: str) -> int | None:
    file = _file(name)
    return file[1] if file else None


def _is_catalog(name: str, mapped: set[int] | None) -> bool:
    file = _file(name)
    if file is None or file[2] in LARGE:
        return False
    return mapped is None or file[2] < FIRST_OF_USERS or file[2] in mapped or file[0] == GLOBAL_SPACE


@contextlib.contextmanager
def opened(path: Path, bases: tuple[Path, ...], key: str | None) -> Iterator[Source]:
    """A data directory or a file of one is itself; of a backup the catalogs are extracted, and removed with all else at the end.

    bases: of an incremental backup those that it is based on, the full one first. key: of an encrypted repository. Raises LeadlineError,
    in which files are named as those of the backup.
    """
    store.reachable([path, *bases])
    backup = BackupFiles.open(str(path), [str(base) for base in bases], key)
    if backup is None:
        yield Source(path, path)
        return
    with temporary(str(path)) as directory:
        source = Source(path, directory, backup.kind(), _backup=backup, _left=backup.files())
        source.lost += [(name, why) for name, why in backup.unread() if WITH_ROWS.fullmatch(name) or _file(name) or STATE.fullmatch(name)]
        try:
            source.begin()
            yield source
        except LeadlineError as e:
            e.detail = "; ".join(filter(None, [e.detail, *source.losses()[:SHOWN]]))  # which may be why
            raise
