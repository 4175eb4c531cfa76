"""Statement texts with their literals replaced by $n, so that the same statement always reads the same and no data is stored.

Comments go, blanks become one, constants become parameters; IN lists, ARRAY[...] and rows of VALUES are cut to their first.
A text the server cut in the middle of a literal loses that literal too. One pass of one regular expression: this runs for
every new text while the server is measured. What it does not know: nested comments, standard_conforming_strings = off.
"""

from __future__ import annotations

import hashlib
import re

_TOKEN = re.compile(
    r"""
      (?P<comment> --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<keep> "[^"]*(?:"|\Z) | \$\d+ )                                     # quoted names, parameters
    | (?P<constant>
          (?<![\w$])[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\\?\Z)            # strings with escapes
        | (?:(?<![\w$])(?:[bBxXnN]|[uU]&))?'[^']*(?:''[^']*)*(?:'|\Z)        # other strings
        | (?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z)       # dollar quotes
        | (?<![\w$])(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+)
        | (?<![\w$])(?:\d[\d_]*(?:\.(?!\.)[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?
      )
    | (?P<space> \s+ )
    """,
    re.X | re.S,
)
_LIST = re.compile(r"(\bin ?\(|\barray ?\[)( ?-?\$\d+)(?: ?, ?-?\$\d+)+ ?(?=[)\]])", re.I)
_ROWS = re.compile(r"(\bvalues ?(\([^()]*\)))(?: ?, ?\([^()]*\))+", re.I)


def normalise(text: str) -> str:
    """The statement with constants as $n, numbered on from the parameters it has. Never fails: any text gives a text."""
    number = max((int(n) for n in re.findall(r"\$(\d{1,6})", text)), default=0) if "$" in text else 0

    def replace(match: re.Match[str]) -> str:
        nonlocal number
        kind = match.lastgroup
        if kind == "space" or kind == "comment":
            return " "
        if kind == "keep":
            return match.group()
        number += 1
        return f"${number}"

    found = _TOKEN.sub(replace, text)
    if "  " in found:
        found = re.sub("  +", " ", found)
    found = found.strip("; ")
    return _ROWS.sub(r"\1, ...", _LIST.sub(r"\1\2, ...", found))


def statement_id(normalised: str) -> int:
    """A 64-bit number for a normalised text; never 0, which means unknown."""
    digest = hashlib.blake2b(normalised.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1
