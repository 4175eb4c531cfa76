"""The store of the book: tables in SQLite or PostgreSQL, by the same SQL, with numbered steps from each schema to the next.

Parameters are `?`, rows are dictionaries, and both stores have one writer at a time. What the two do differently is in
sqlite.py and postgres.py; a new step is schema/NNNN_name.sql.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any

from leadline.book.db import AS_BEFORE, Db, Row, where
from leadline.book.place import Place
from leadline.errors import LeadlineError

DIALECTS = ("sqlite", "postgresql")


def steps(dialect: str) -> list[tuple[int, list[str]]]:
    """Numbers and statements of the schema's steps, in order."""
    files = [file for file in resources.files("leadline.book").joinpath("schema").iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name.partition("_")[0]), _statements(file.read_text(encoding="utf-8"), dialect)) for file in files)


def _statements(text: str, dialect: str) -> list[str]:
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    out = []
    for statement in filter(None, (part.strip() for part in plain.split(";\n"))):
        only, _, rest = statement.partition("] ")
        if only[:1] != "[":
            out.append(statement.rstrip(";"))
        elif only[1:] == dialect:
            out.append(rest.rstrip(";"))
    return out


class Store:
    """An open store, with the schema that this leadline knows. Raises LeadlineError."""

    def __init__(self, place: Place, to: int | None = None) -> None:
        """to: the step of the schema to stop at; by default the last."""
        self.place = place
        self.db = _connect(place)
        try:
            self.migrate(to)
        except self.db.errors as e:
            raise LeadlineError("storage", "the book cannot be opened", detail=str(e).strip(), hint=AS_BEFORE, where=where(place)) from e

    def migrate(self, to: int | None = None) -> None:
        """Takes the steps that the store has not seen. to: the last of them; by default all."""
        known = steps(self.db.dialect)
        newest = known[-1][0]
        if self.version > newest:
            what = f"the book has schema {self.version}; this leadline knows up to {newest}"
            raise LeadlineError("unsupported", what, hint="use a newer leadline", where=where(self.place))
        if to is not None and self.version > to:
            raise LeadlineError("usage", f"the book has schema {self.version}; only up to {to} was asked for", where=where(self.place))
        if self.version == (to or newest):
            return
        with self.writing() as db:
            for number, statements in known:
                if self.version < number <= (to or newest):  # another process may have done it meanwhile
                    for statement in statements:
                        db.execute(statement)
                    db.set_version(number)

    @property
    def version(self) -> int:
        return self.db.version()

    @contextmanager
    def writing(self) -> Iterator[Db]:
        """A transaction that may write from its first statement on: one that began by reading could not wait for others."""
        self.db.begin()
        try:
            yield self.db
        except BaseException:
            self.db.rollback()
            raise
        self.db.commit()

    @contextmanager
    def reading(self) -> Iterator[Db]:
        """Several queries of one state of the store."""
        self.db.begin_reading()
        try:
            yield self.db
        finally:
            self.db.rollback()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self.db.execute(sql, parameters).fetchall()

    def close(self) -> None:
        self.db.close()


@contextmanager
def told() -> Iterator[None]:
    """For a command: what a store raises (no room, read-only, gone) is one clear error."""
    import sqlite3

    psycopg = sys.modules.get("psycopg")
    errors = (sqlite3.Error,) if psycopg is None else (sqlite3.Error, psycopg.Error)
    try:
        yield
    except errors as e:
        detail = str(e).strip().partition("\n")[0]
        raise LeadlineError("storage", "the book cannot be read or written", detail=detail, hint=AS_BEFORE) from e


def _connect(place: Place) -> Db:
    if place.dsn is None:
        from leadline.book.sqlite import Sqlite

        return Sqlite(place)
    from leadline.book.postgres import Postgres

    return Postgres(place)
