"""A layout of storage as the level of a factor: where tables, indexes, large objects and the WAL lie.

The places of a private server are directories, those of a server that the user named are its tablespaces.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from leadline.engines.postgres.server.private import watcher_of
from leadline.engines.postgres.server.user import server_user
from leadline.errors import LeadlineError

OBJECTS = ("tables", "indexes", "large_objects", "wal")
HINT = "a directory for all, or some of its own: '/mnt/a indexes=/mnt/b wal=/mnt/c'"
OF_NAMED = ("tables", "indexes", "large_objects")
HINT_OF_NAMED = "a tablespace for all, or some of its own: 'fast indexes=slow'; make one with CREATE TABLESPACE"
TABLESPACES = {"indexes": "leadline_indexes", "large_objects": "leadline_large_objects"}
# The catalog of large objects is moved as a table is.
MOVES = {
    "indexes": ("alter index all in tablespace {tables} set tablespace {to}",),
    "large_objects": (
        "set allow_system_table_mods = on",
        "alter table pg_catalog.pg_largeobject set tablespace {to}",
        "alter index pg_catalog.pg_largeobject_loid_pn_index set tablespace {to}",
    ),
}


def parse(text: str) -> dict[str, str]:
    """The directory of each of OBJECTS. Raises LeadlineError('usage')."""
    return _all(_words(text), OBJECTS, HINT)


def spaces(text: str) -> dict[str, str]:
    """The tablespace of each of OF_NAMED. Raises LeadlineError('usage')."""
    found = _words(text)
    if "wal" in found:
        raise LeadlineError("usage", "a study cannot move the WAL of a server that is not its own", hint="leave out wal=", where="--layout")
    if paths := [where for where in found.values() if "/" in where]:
        what = f"on a server that you name, places are its tablespaces, not directories: {paths[0][:60]}"
        raise LeadlineError("usage", what, hint=HINT_OF_NAMED, where="--layout")
    return _all(found, OF_NAMED, HINT_OF_NAMED)


def _words(text: str) -> dict[str, str]:
    """By name of what lies there. A word without a name is for all that have none of their own."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise LeadlineError("usage", "a layout cannot be divided into words", detail=str(e), hint=HINT) from None
    found: dict[str, str] = {}
    for word in words:
        name, equals, directory = word.partition("=")
        if not equals:
            name, directory = "", word
        if name not in ("", *OBJECTS) or name in found or not directory:
            raise LeadlineError("usage", f"{word[:60]!r} is no place of a layout", detail=f"places: {', '.join(OBJECTS)}", hint=HINT)
        found[name] = directory
    return found


def _all(found: Mapping[str, str], objects: Sequence[str], hint: str) -> dict[str, str]:
    missing = [name for name in objects if name not in found and "" not in found]
    if missing:
        raise LeadlineError("usage", f"the layout says nothing of {', '.join(missing)}", hint=hint)
    return {name: found.get(name, found.get("", "")) for name in objects}


class Layout(ABC):
    """What lies where on a server. of_tables: the tablespace in which databases are made."""

    of_tables = "pg_default"

    @property
    @abstractmethod
    def apart(self) -> dict[str, str]:
        """The tablespace of indexes and of large objects, as far as it is not that of the tables."""

    def move(self, connection: psycopg.Connection[Any]) -> None:
        """What the database holds, to its places; what is there already stays. For large objects the user must be a superuser."""
        for name, tablespace in self.apart.items():
            for statement in MOVES[name]:
                connection.execute(SQL(statement).format(tables=Identifier(self.of_tables), to=Identifier(tablespace)))


class Spaces(Layout):
    """Tablespaces of a server that is not ours."""

    def __init__(self, text: str) -> None:
        self.spaces = spaces(text)
        self.of_tables = self.spaces["tables"]

    @property
    def apart(self) -> dict[str, str]:
        return {name: space for name, space in self.spaces.items() if space != self.of_tables}


class Directories(Layout):
    """Directories of one layout, made for the study and removed with it, also if this process is killed."""

    def __init__(self, text: str) -> None:
        self.user, self.directories = server_user(), dict[str, Path]()
        self._made: list[tuple[Path, subprocess.Popen[bytes]]] = []
        made: dict[str, Path] = {}
        try:
            for name, where in parse(text).items():
                if where not in made:
                    made[where] = self._make(Path(where))
                self.directories[name] = made[where] / name
                self.directories[name].mkdir(mode=0o700)
                self.user.own(self.directories[name])
        except BaseException:
            self.remove()
            raise

    def _make(self, place: Path) -> Path:
        try:
            directory = Path(tempfile.mkdtemp(prefix="leadline-study-", dir=place.absolute()))
        except OSError as e:
            raise LeadlineError("storage", "a place of the layout cannot be written", detail=e.strerror or str(e), where=str(place)) from e
        self._made.append((directory, watcher_of(directory)))
        self.user.own(directory)
        if not self.user.can_execute(directory):
            hint = f"user {self.user.name}, as whom the server runs, must be able to enter it"
            raise LeadlineError("rights", "a place of the layout cannot be entered", hint=hint, where=str(place))
        return directory

    @property
    def apart(self) -> dict[str, str]:
        of_tables = self.directories["tables"].parent
        return {name: space for name, space in TABLESPACES.items() if self.directories[name].parent != of_tables}

    def create(self, connection: psycopg.Connection[Any]) -> None:
        """Once on a new server."""
        for name, space in self.apart.items():
            directory = str(self.directories[name]).replace("'", "''")
            connection.execute(f"create tablespace {space} location '{directory}'".encode())

    def remove(self) -> None:
        for directory, watcher in self._made:
            shutil.rmtree(directory, ignore_errors=True)
            watcher.communicate(b"done\n")
        self._made = []


def check(levels: Mapping[str, str]) -> None:
    """Raises LeadlineError."""
    _differ([parse(text) for text in levels.values()], hint="--layout one=/mnt/a --layout two='/mnt/a wal=/mnt/b'")
    for label, text in levels.items():
        for name, where in parse(text).items():
            if not Path(where).is_dir():
                raise LeadlineError("not_found", f"layout {label} puts {name} where there is no directory", hint=HINT, where=where)


def check_spaces(levels: Mapping[str, str], connection: psycopg.Connection[Any]) -> None:
    """Of a server that is not ours. Raises LeadlineError."""
    _differ([spaces(text) for text in levels.values()], hint="--layout one=fast --layout two='fast indexes=slow'")
    has = {str(name) for (name,) in connection.execute("select spcname from pg_tablespace").fetchall()}
    for label, text in levels.items():
        for name, space in spaces(text).items():
            if space not in has:
                hint = f"tablespaces of this server: {', '.join(sorted(has - {'pg_global'}))}"
                raise LeadlineError("not_found", f"layout {label} puts {name} where there is no tablespace", hint=hint, where=space)


def _differ(layouts: Sequence[Mapping[str, str]], *, hint: str) -> None:
    if len({tuple(layout.values()) for layout in layouts}) < len(layouts):
        raise LeadlineError("usage", "two layouts are alike: say what each is", hint=hint, where="--layout")
