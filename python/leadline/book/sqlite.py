"""The store as an SQLite file: what is particular to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadline.book.db import AS_BEFORE, refused, where
from leadline.book.place import NotOurs, Place
from leadline.errors import LeadlineError

PRAGMAS = ("busy_timeout = 30000", "auto_vacuum = incremental", "journal_mode = wal", "synchronous = normal", "foreign_keys = on")


class Sqlite:
    dialect = "sqlite"
    errors: type[Exception] = sqlite3.Error
    word_run, word_match = "w.rowid", "' ' || w.words like ?"

    def __init__(self, place: Place) -> None:
        try:
            place.make()
            self._db = sqlite3.connect(place.store, isolation_level=None, check_same_thread=False)
            place.store.chmod(0o600)
            self._file = place.store
            self._db.row_factory = _as_dict
            for pragma in PRAGMAS:
                self._db.execute(f"pragma {pragma}")
        except NotOurs as e:
            raise refused(e) from None
        except (sqlite3.Error, OSError) as e:
            raise LeadlineError("storage", "the book cannot be opened", detail=str(e), hint=AS_BEFORE, where=where(place)) from e

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._db.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        self._db.executemany(sql, parameters)

    def lost(self) -> bool:
        return False  # what fails for want of room goes on when there is some; to open it anew would need some at once

    def begin(self) -> None:
        self._db.execute("begin immediate")

    def begin_reading(self) -> None:
        self._db.execute("begin")

    def commit(self) -> None:
        self._db.execute("commit")

    def rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("rollback")

    def version(self) -> int:
        return int(self._db.execute("pragma user_version").fetchone()["user_version"])

    def set_version(self, number: int) -> None:
        self._db.execute(f"pragma user_version = {number:d}")

    def put_words(self, of: Sequence[tuple[int, str]]) -> None:
        self._db.executemany("delete from run_words where rowid = ?", [(run,) for run, _ in of])
        self._db.executemany("insert into run_words (rowid, words) values (?, ?)", of)

    def forget_words(self, runs: Sequence[int]) -> None:
        self._db.executemany("delete from run_words where rowid = ?", [(run,) for run in runs])

    def bytes_used(self) -> int:
        return sum(path.stat().st_size for path in (self._file, Path(f"{self._file}-wal")) if path.exists())

    def shrink(self) -> None:
        self._db.executescript("pragma incremental_vacuum")  # `execute` takes one step of it, and so frees one page
        self._db.execute("pragma wal_checkpoint(truncate)").fetchall()

    def word_value(self, word: str) -> str:
        return f"% {word}%"

    def runs_with_word(self, word: str) -> tuple[str, list[Any]]:
        return "(select rowid as run from run_words where run_words match ?) few", [f'"{word}" *']

    def answers(self, asked: Sequence[tuple[str, Sequence[Any]]]) -> list[list[dict[str, Any]]]:
        return [self._db.execute(sql, parameters).fetchall() for sql, parameters in asked]

    def close(self) -> None:
        self._db.close()


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row)}
