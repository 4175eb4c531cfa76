"""A layout of storage as the level of a factor: where tables, indexes, large objects and the WAL of a private server lie."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg

from leadline.engines.postgres.server.private import watcher_of
from leadline.engines.postgres.server.user import server_user
from leadline.errors import LeadlineError

OBJECTS = ("tables", "indexes", "large_objects", "wal")
HINT = "a directory for all, or some of its own: '/mnt/a indexes=/mnt/b wal=/mnt/c'"
TABLESPACES = {"indexes": "leadline_indexes", "large_objects": "leadline_large_objects"}
# In a session of a superuser; the catalog of large objects is moved as a table is.
MOVES = {
    "indexes": ("alter index all in tablespace pg_default set tablespace leadline_indexes",),
    "large_objects": (
        "set allow_system_table_mods = on",
        "alter table pg_catalog.pg_largeobject set tablespace leadline_large_objects",
        "alter index pg_catalog.pg_largeobject_loid_pn_index set tablespace leadline_large_objects",
    ),
}


def parse(text: str) -> dict[str, str]:
    """The directory of each of OBJECTS. A word without a name is for all that have none of their own. Raises LeadlineError('usage')."""
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
    missing = [name for name in OBJECTS if name not in found and "" not in found]
    if missing:
        raise LeadlineError("usage", f"the layout says nothing of {', '.join(missing)}", hint=HINT)
    return {name: found.get(name, found.get("", "")) for name in OBJECTS}


class Layout:
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
    def apart(self) -> list[str]:
        """What needs a tablespace: it does not lie where the tables are."""
        return [name for name in TABLESPACES if self.directories[name].parent != self.directories["tables"].parent]

    def create(self, connection: psycopg.Connection[object]) -> None:
        """Once on a new server."""
        for name in self.apart:
            directory = str(self.directories[name]).replace("'", "''")
            connection.execute(f"create tablespace {TABLESPACES[name]} location '{directory}'".encode())

    def move(self, connection: psycopg.Connection[object]) -> None:
        """What the database holds, to its places; what is there already stays."""
        for name in self.apart:
            for statement in MOVES[name]:
                connection.execute(statement.encode())

    def remove(self) -> None:
        for directory, watcher in self._made:
            shutil.rmtree(directory, ignore_errors=True)
            watcher.communicate(b"done\n")
        self._made = []


def check(levels: Mapping[str, str]) -> None:
    """Raises LeadlineError."""
    if len({tuple(parse(text).values()) for text in levels.values()}) < len(levels):
        hint = "--layout one=/mnt/a --layout two='/mnt/a wal=/mnt/b'"
        raise LeadlineError("usage", "two layouts are alike: say what each is", hint=hint, where="--layout")
    for label, text in levels.items():
        for name, where in parse(text).items():
            if not Path(where).is_dir():
                raise LeadlineError("not_found", f"layout {label} puts {name} where there is no directory", hint=HINT, where=where)
