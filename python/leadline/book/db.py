"""What a store is made of, whichever database holds it: a connection, its rows, and how its errors are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from leadline.book.place import NotOurs, Place
from leadline.errors import LeadlineError

Row = dict[str, Any]
AS_BEFORE = "leadline goes on recording beside it"


class Cursor(Protocol):
    """What `execute` gives."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Db(Protocol):
    """A connection: to be used as it is within `Store.writing`."""

    dialect: str
    errors: type[Exception]  # what a statement raises
    word_run: str  # of run_words w: the id of its run
    word_match: str  # and a condition: one of its words begins with the parameter

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor: ...
    def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None: ...
    def lost(self) -> bool:
        """Whether the connection is of no use any more."""

    def begin(self) -> None:
        """A transaction of the only writer."""

    def begin_reading(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def version(self) -> int: ...
    def set_version(self, number: int) -> None: ...
    def put_words(self, of: Sequence[tuple[int, str]]) -> None:
        """What runs (their ids) are found by: words with blanks between them. Replaces those they had."""

    def forget_words(self, runs: Sequence[int]) -> None:
        """For runs that are removed."""

    def bytes_used(self) -> int:
        """What the store takes on the disk of this host; 0 where it is elsewhere."""

    def shrink(self) -> None:
        """Gives room of removed rows back, where that is done on demand."""

    def word_value(self, word: str) -> str:
        """The parameter of `word_match`."""

    def runs_with_word(self, word: str) -> tuple[str, list[Any]]:
        """What to select from: `few`, with a column `run` of all that have a word that begins with it, found by the index of words."""

    def answers(self, asked: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Row]]:
        """The rows of each query, in one round trip."""

    def close(self) -> None: ...


def refused(e: NotOurs) -> LeadlineError:
    return LeadlineError("rights", "the directory of the book is not safe", detail=str(e.strerror), hint=e.hint, where=str(e.filename))


def where(place: Place) -> str:
    """For an error: the store, without a password."""
    from leadline.book.redact import redact_text

    return str(place.store) if place.dsn is None else redact_text(place.dsn)
