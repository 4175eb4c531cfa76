"""The macros of macros.sql: what rules share. open_capture creates them, views.sql has them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from leadline.tables.thresholds import Threshold, parse_threshold, with_defaults

FILE = "macros.sql"


@dataclass(frozen=True)
class Macros:
    """thresholds: of the header lines. sql: statements that create the macros in any DuckDB."""

    thresholds: tuple[Threshold, ...]
    sql: str


@functools.cache
def macros() -> Macros:
    """Raises AssertionError when the file breaks its form."""
    text = Path(__file__).with_name(FILE).read_text(encoding="utf-8")
    head = "-- threshold:"
    lines = text.splitlines()
    thresholds = tuple(parse_threshold(FILE, line.removeprefix(head).strip()) for line in lines if line.startswith(head))
    body = "\n".join(line for line in lines if not line.startswith(head)).strip()
    return Macros(thresholds, with_defaults(body, thresholds) + "\n")
