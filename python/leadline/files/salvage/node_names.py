"""What a node tree refers to by number, and whoever writes a tree has to name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class NotWritten(Exception):
    """A tree that cannot be written as SQL that surely means the same. reason: names the node or the object."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Names(Protocol):
    """Names as SQL has them: quoted where they must be, and with their schema unless it is pg_catalog.

    Each raises NotWritten for what does not exist or cannot be read.
    """

    def function(self, oid: int) -> str: ...

    def operator(self, oid: int) -> str:
        """How it stands between or before its operands: `+`, or `OPERATOR(schema.+)`. NotWritten if it stands after its operand."""

    def type_name(self, oid: int, typmod: int = -1) -> str:
        """As format_type prints it: `character varying(10)`; without a length `bpchar` and `"bit"`, as their other names mean length 1."""

    def relation(self, oid: int) -> str: ...

    def column(self, relid: int, attnum: int) -> str:
        """NotWritten for a dropped column."""

    def columns(self, relid: int) -> list[str | None]:
        """All columns, in order, None for each dropped one."""

    def collation(self, oid: int) -> str: ...

    def fields(self, type_oid: int) -> list[str | None] | None:
        """The columns of a composite type or the row type of a table, None for each dropped one; None for any other type. A domain has
        those of its base type.
        """

    def outputs(self, function_oid: int) -> list[str] | None:
        """The names of OUT and TABLE arguments of a function that returns a record; None if it has none."""

    def registered(self, type_oid: int, oid: int) -> str | None:
        """What a value of regconfig, regdictionary, regproc, regprocedure, regoper, regoperator, regnamespace or regrole (`type_oid`)
        stands for, as its input takes it.
        """

    def quoted(self, name: str) -> str:
        """A name of a query's own, quoted as quote_ident does."""

    def value(self, type_oid: int, payload: bytes) -> str | None:
        """The text of a value as the server prints it; None if it is not known. `payload` has no length word and no NUL at its end."""


def string(text: str) -> str:
    """A literal that means the same with any setting of standard_conforming_strings."""
    escaped = text.replace("'", "''")
    return f"E'{escaped}'".replace("\\", "\\\\") if "\\" in text else f"'{escaped}'"


def bounded(write: Callable[[], T]) -> T:
    """What is nested deeper than Python goes is not written."""
    try:
        return write()
    except RecursionError:
        raise NotWritten("the tree is nested too deeply") from None
