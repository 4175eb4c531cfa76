"""Output of commands as a terminal or a page may have it: colours are kept, and whatever else could steer it is replaced."""

from __future__ import annotations

import codecs
import re
import unicodedata

# A CSI sequence that ends in m sets colours and weights; every other escape, and C0 and C1 but tab and line ends, does more than that.
STEERING = re.compile(r"\x1b(?!\[[\d;:]{0,40}m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\x80-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BEGUN = re.compile(r"\x1b(\[[\d;:]{0,40})?\Z")
RESET = "\x1b[0m"


def visible(text: str) -> str:
    """For a page: control and direction characters, and what is not seen, as U+FFFD; tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c == "\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co") else "\ufffd" for c in text)


def visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


class Tame:
    """Makes pieces of an output harmless, wherever they are cut."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""

    def __call__(self, piece: bytes, *, last: bool = False) -> str:
        text = self._kept + self._decoder.decode(piece, last)
        begun = None if last else _BEGUN.search(text)
        self._kept = text[begun.start() :] if begun else ""
        return STEERING.sub("\ufffd", text[: begun.start()] if begun else text)


_ESCAPES = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[@-_])")


def without_escapes(text: str) -> str:
    """For where colours would only be in the way."""
    return _ESCAPES.sub("", text)
