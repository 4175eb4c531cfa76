"""The macros of macros.sql, here and of each engine: what rules share. open_capture creates them, views.sql has them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from leadline.engines import directories
from leadline.tables.thresholds import Threshold, parse_threshold, with_defaults

FILE = "macros.sql"


@dataclass(frozen=True)
class Macros:
    """thresholds: of the header lines. sql: statements that create the macros in any DuckDB."""

    thresholds: tuple[Threshold, ...]
    sql: str


@functools.cache
def macros() -> Macros:
    """Those of any engine first: those of an engine may use them. Raises AssertionError when a file breaks its form."""
    files = [path for directory in (Path(__file__).parent, *directories("tables")) if (path := directory / FILE).exists()]
    parts = [_part(path.read_text(encoding="utf-8")) for path in files]
    return Macros(tuple(t for part in parts for t in part.thresholds), "\n".join(part.sql for part in parts))


def _part(text: str) -> Macros:
    head = "-- threshold:"
    lines = text.splitlines()
    thresholds = tuple(parse_threshold(FILE, line.removeprefix(head).strip()) for line in lines if line.startswith(head))
    body = "\n".join(line for line in lines if not line.startswith(head)).strip()
    return Macros(thresholds, with_defaults(body, thresholds) + "\n")
