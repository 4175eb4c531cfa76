"""Text that another program printed, line by line, whatever its size and whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leadline.errors import LeadlineError

LONGEST = 4096  # bytes; no line of these listings comes near it
SHOWN = 5
INT32, INT64 = 2**31, 2**63


@dataclass
class Unknown:
    """Lines of a form that is not known: how many, and the first of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, number: int, line: str) -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(f"line {number}: {line.strip()[:100]}")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its end) of a regular file. What a line has beyond LONGEST bytes is a line of its own.

    Raises LeadlineError where the file cannot be read, and where it has so many zero bytes in a row.
    """
    try:
        if path.exists() and not path.is_file():
            raise LeadlineError("usage", "not a regular file", hint="save the output of the tool to a file first", where=str(path))
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST):
                number += 1
                if len(line) == LONGEST and not line.strip(b"\0"):  # a sparse file has terabytes of them
                    detail = f"line {number} is {LONGEST} zero bytes"
                    raise LeadlineError("invalid", "this is not text", detail=detail, where=str(path))
                yield number, line.decode("utf-8", "replace").rstrip("\r\n")
    except FileNotFoundError as e:
        raise LeadlineError("not_found", "no such file", where=str(path)) from e
    except PermissionError as e:
        hint = "run as a user with read permission, or as root"
        raise LeadlineError("rights", "cannot read the file", detail=str(e.strerror), hint=hint, where=str(path)) from e
    except OSError as e:
        raise LeadlineError("storage", f"cannot read the file: {e.strerror}", where=str(path)) from e


def number(text: str, below: int, base: int = 10) -> int | None:
    """Digits as a number from 0 to below; None for all else."""
    if len(text) > 20 or not text.isascii() or not text.isalnum():
        return None  # int() takes underscores, signs and digits of other scripts
    try:
        value = int(text, base)
    except ValueError:
        return None
    return value if value < below else None
