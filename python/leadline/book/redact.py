"""Command lines without their secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
# Every part is bounded: texts are megabytes, and may be one word. Patterns are compiled when a text may have what they look for: most
# command lines have nothing of it, and to compile them takes as long as to record one.
_WORDS = ("password", "passwd", "passphrase", "pwd", "secret", "token")
_SECRET = rf"(?:{'|'.join(_WORDS)}|api[_-]?key)"
_ENDS = (*_WORDS, "key")
_NAME = rf"[\w-]{{0,100}}{_SECRET}"
_IN_URI = r"(?<=://)([^:/@\s]{0,100}):([^@\s]{0,256})@"
_AS_VALUE = rf"(?i)({_SECRET}[\"']?\s{{0,10}}[=:]\s{{0,10}})('[^']{{0,1000}}'|\"[^\"]{{0,1000}}\"|[^\s,;&]+)"
_NOT_SECRET = (  # a number of them, or whether there is one
    r"(?i)(?:.{0,100}[_\-.])?(?:max|min|num|count|total|requires?|required|has|is|enable|disable|allow|needs?|update|ask|use|no|generate)"
    rf"[_-]{_SECRET}"
)
_DIRECTORY = r"[/~.]|[A-Za-z]:[\\/]"
_BEFORE = r"[\w\-.]{0,100}\Z"
_OPTION = rf"(?i)-{{1,2}}{_NAME}"


def is_secret(name: str) -> bool:
    """Whether a value of this name is to be hidden."""
    return _may_name(name) and re.fullmatch(_NAME, name, re.IGNORECASE) is not None and not _is_open(name)


def _may_name(text: str) -> bool:
    return text.casefold().endswith(_ENDS)


def _is_open(name: str, value: str = "") -> bool:
    """Of a name that ends like that of a secret: whether it is none. PWD is the working directory of every shell."""
    if name in ("PWD", "OLDPWD") or re.fullmatch(_NOT_SECRET, name):
        return True
    return name[-3:].lower() == "pwd" and re.match(_DIRECTORY, value) is not None


def redact_text(text: str) -> str:
    """Passwords of connection strings and values of names that say secret are hidden."""
    if "=" not in text and ":" not in text:
        return text
    return re.sub(_AS_VALUE, _hide, re.sub(_IN_URI, rf"\1:{HIDDEN}@", text))


def _hide(found: re.Match[str]) -> str:
    start = found.start()
    before = re.search(_BEFORE, found.string[max(0, start - 100) : start])
    word = re.split(r"[\"'\s=:]", found[1], maxsplit=1)[0]
    name = (before[0] if before else "") + word
    return found[0] if _is_open(name.lstrip("-."), found[2].strip("\"'")) else found[1] + HIDDEN


def redact(arguments: Iterable[str]) -> list[str]:
    """The same for a command line, with the value that follows an option such as --password."""
    out, hide = [], False
    for argument in arguments:
        out.append(HIDDEN if hide else redact_text(argument))
        hide = _may_name(argument) and re.fullmatch(_OPTION, argument) is not None and not _is_open(argument.lstrip("-"))
    return out
