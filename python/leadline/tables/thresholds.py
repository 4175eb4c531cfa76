"""Numbers that SQL compares with: each has a name, a default, where that comes from, and may be set by a user.

SQL reads one as getvariable('name'). A rule sets its own before it runs; views and macros, which anybody may use without
setting anything, have their default written into them (with_defaults).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A number of a rule, view or macro that a user may set. origin: where the default comes from."""

    name: str
    value: float
    origin: str


def parse_threshold(file: str, text: str) -> Threshold:
    """`name = number (where from)`. Raises AssertionError when it is not."""
    match = re.fullmatch(r"(\w+) = (-?[\d.]+) \((.+)\)", text)
    assert match, f"{file}: a threshold reads 'name = number (where from)', not: {text}"
    return Threshold(match[1], float(match[2]), match[3])


def number(value: float) -> str:
    """As DuckDB reads it, always of type double so that a whole number computes like any other: 60.0::double."""
    return f"{float(value)!r}::double"


def with_defaults(sql: str, thresholds: Iterable[Threshold]) -> str:
    """The SQL with each threshold's default in it, for when the variable is not set."""
    for threshold in thresholds:
        variable = f"getvariable('{threshold.name}')"
        sql = sql.replace(variable, f"coalesce({variable}, {number(threshold.value)})")
    return sql
