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
_NOT_SECRET = re.compile(  # a number of them, or whether there is one
    rf"(?:.{{0,100}}[_\-.])?(?:max|min|num|count|total|requires?|required|has|is|enable|disable|allow|needs?|update|ask|use|no|generate)"
    rf"[_-]{_SECRET}", re.IGNORECASE,
)  # fmt: skip
_FOLDER = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
_BEFORE = re.compile(r"[\w\-.]{0,100}\Z")
_OPTION = re.compile(rf"-{{1,2}}{_NAME}", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a value of this name is to be hidden."""
    return re.fullmatch(_NAME, name, re.IGNORECASE) is not None and not _is_open(name)


def _is_open(name: str, value: str = "") -> bool:
    """Of a name that ends like that of a secret: whether it is none. PWD is the working directory of every shell."""
    if name in ("PWD", "OLDPWD") or _NOT_SECRET.fullmatch(name):
        return True
    return name[-3:].lower() == "pwd" and _FOLDER.match(value) is not None


def redact_text(text: str) -> str:
    """Passwords of connection strings and values of names that say secret are hidden."""
    return _AS_VALUE.sub(_hide, _IN_URI.sub(rf"\1:{HIDDEN}@", text))


def _hide(found: re.Match[str]) -> str:
    start = found.start()
    before = _BEFORE.search(found.string[max(0, start - 100) : start])
    word = re.split(r"[\"'\s=:]", found[1], maxsplit=1)[0]
    name = (before[0] if before else "") + word
    return found[0] if _is_open(name.lstrip("-."), found[2].strip("\"'")) else found[1] + HIDDEN


def redact(arguments: Iterable[str]) -> list[str]:
    """The same for a command line, with the value that follows an option such as --password."""
    out, hide = [], False
    for argument in arguments:
        out.append(HIDDEN if hide else redact_text(argument))
        hide = bool(_OPTION.fullmatch(argument)) and not _is_open(argument.lstrip("-"))
    return out
