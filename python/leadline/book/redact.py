"""Command lines without their secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
# Every part is bounded: texts are megabytes, and may be one word.
_SECRET = r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key)"
_NAME = rf"[\w-]{{0,100}}{_SECRET}"
_IN_URI = re.compile(r"(?<=://)([^:/@\s]{0,100}):([^@\s]{0,256})@")
_AS_VALUE = re.compile(rf"({_SECRET}[\"']?\s{{0,10}}[=:]\s{{0,10}})('[^']{{0,1000}}'|\"[^\"]{{0,1000}}\"|[^\s,;&]+)", re.IGNORECASE)
_OPTION = re.compile(rf"-{{1,2}}{_NAME}", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a value of this name is to be hidden."""
    return re.fullmatch(_NAME, name, re.IGNORECASE) is not None


def redact_text(text: str) -> str:
    """Passwords of connection strings and values of names that say secret are hidden."""
    return _AS_VALUE.sub(rf"\1{HIDDEN}", _IN_URI.sub(rf"\1:{HIDDEN}@", text))


def redact(arguments: Iterable[str]) -> list[str]:
    """The same for a command line, with the value that follows an option such as --password."""
    out, hide = [], False
    for argument in arguments:
        out.append(HIDDEN if hide else redact_text(argument))
        hide = bool(_OPTION.fullmatch(argument))
    return out
