"""Command lines without their secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
_NAME = r"[\w-]*(?:password|passwd|pwd|secret|token|api[_-]?key)"
_IN_URI = re.compile(r"(?<=://)([^:/@\s]*):([^@\s]*)@")
_AS_VALUE = re.compile(rf"({_NAME}\s*[=:]\s*)('[^']*'|\"[^\"]*\"|[^\s,;&]+)", re.IGNORECASE)
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
