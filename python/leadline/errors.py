"""The one error shape of leadline: what went wrong, why, and what to do about it.

Rust errors arrive as this class too (crates/py/src/error.rs). Only the command line prints and exits.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path  # not when a command starts

    from leadline._core.capture import ErrorObject

KINDS = (
    "usage",  # the call makes no sense as given
    "not_found",  # no such capture, table, process, server
    "rights",  # a right is missing; the hint has the command that grants it
    "unsupported",  # a server major, build or platform leadline does not know
    "layout",  # shared memory does not look as the layout tables say
    "connection",  # the server cannot be reached, or does not answer as it should
    "gone",  # the server went away or was restarted
    "storage",  # evidence cannot be written or read
    "invalid",  # a file or memory holds what it should not
    "query",  # SQL of the user does not run
    "fault",  # leadline itself failed: please report it
)


class LeadlineError(Exception):
    """kind: one of KINDS. message: one line. detail, hint, where: one line each or empty."""

    def __init__(self, kind: str, message: str, detail: str = "", hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail
        self.hint = hint
        self.where = where

    def __reduce__(self) -> tuple[type[LeadlineError], tuple[str, ...]]:
        """As a process tells it to another; what only a derived class has stays behind."""
        return LeadlineError, (self.kind, self.message, self.detail, self.hint, self.where)

    def as_dict(self) -> ErrorObject:
        return {
            "kind": self.kind,
            "message": self.message,
            "detail": self.detail,
            "hint": self.hint,
            "where": self.where,
        }

    def as_text(self) -> str:
        lines = [f"error: {_printable(self.message)}"]
        said = (("at", self.where), ("detail", self.detail), ("hint", self.hint))
        return "\n".join([*lines, *(f"  {key}: {_printable(value)}" for key, value in said if value)])


def _printable(text: str) -> str:
    """Names of others may have control characters, which the terminal would obey; `figures.one_line` would take blanks out of them too."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def cannot_be_written(what: str, error: OSError, where: Path) -> LeadlineError:
    """The error of a file or directory of ours that the system did not let us write, in the words of the table writers for a full disk."""
    hint = "write to another place with -o"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LeadlineError("storage", f"no space left to write {what}", detail=str(error.strerror), hint=hint, where=str(where))
    return LeadlineError("storage", f"cannot write {what}: {error.strerror}", hint=hint, where=str(where))
