"""A table of figures with a title's worth of meaning: what most sections show, on the terminal, in the report and as JSON.

Values stay numbers here; each view writes them for people by the kind of their column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leadline.columns import as_it_is, excess, line, records, room_of_texts
from leadline.figures import cell, figure, fit, fit_path, percent, quantity, seconds
from leadline.output import UNLIMITED, terminal_width
from leadline.units import sized

FORMATS: dict[str, Callable[[Any], str]] = {
    "text": cell,
    "path": cell,
    "count": lambda v: f"{v:,.0f}",
    "bytes": lambda v: sized(v),
    "seconds": seconds,
    "share": percent,
    "rate": quantity,
    "figure": figure,
}

FITTED = {"text": fit, "path": fit_path}  # kinds that give way where there is little room


@dataclass(frozen=True)
class Column:
    """name: the key in JSON; head: what people read above it; kind: one of FORMATS; minor: left out where there is little room."""

    name: str
    head: str
    kind: str = "count"
    minor: bool = False

    def shown(self, value: Any) -> str:
        return "" if value is None else FORMATS[self.kind](value)


@dataclass(frozen=True)
class Stack:
    """A picture: `values` are (from, to, name, amount), stacked along an axis from 0 to `end`."""

    values: list[tuple[float, float, str, float]]
    end: float
    axis: str
    amount: str
    unit: str = ""


@dataclass(frozen=True)
class Curves:
    """A picture: `values` are (x, y, name), points joined by a line for each name. log_x, log_y: logarithmic axes.

    x_text: what stands below a place on the x axis, as an expression of Vega about `datum.value`; empty for the number.
    """

    values: list[tuple[float, float, str]]
    axis: str
    amount: str
    log_x: bool = True
    log_y: bool = True
    x_text: str = ""


@dataclass(frozen=True)
class Grid:
    """rows: values in the order of columns. note: what the numbers are; rest: what was left out of rows, and how to see it."""

    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    note: str = ""
    rest: str = ""
    empty: str = "none"
    picture: Stack | Curves | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        columns: tuple[Column, ...],
        rows: Sequence[Mapping[str, Any]],
        note: str = "",
        rest: str = "",
        empty: str = "none",
        picture: Stack | Curves | None = None,
    ) -> Grid:
        """From rows by name, as a query gives them."""
        return cls(columns, [tuple(row[c.name] for c in columns) for row in rows], note, rest, empty, picture)

    def as_dicts(self) -> list[dict[str, Any]]:
        return [dict(zip((c.name for c in self.columns), row)) for row in self.rows]

    def cells(self) -> list[list[str]]:
        return [[c.shown(value) for c, value in zip(self.columns, row)] for row in self.rows]

    def lines(self, width: int | None = None) -> list[str]:
        """Head and rows; the first text column gives way, then the minor columns; where even that is too wide, one value per line.

        width: by default that of the terminal. In a pipe or a file no value is cut, and no column left out.
        """
        width = (terminal_width() or UNLIMITED) if width is None else width
        columns = list(self.columns)
        while True:
            picked = [self.columns.index(c) for c in columns]
            cells = [[row[i] for i in picked] for row in self.cells()]
            heads = [c.head for c in columns]
            widths = room_of_texts(heads, cells)
            over = excess(widths, width)
            elastic = max((i for i, c in enumerate(columns) if c.kind in FITTED), key=lambda i: widths[i], default=0)
            if over <= 0:
                break
            if widths[elastic] - over >= 16 or not any(c.minor for c in columns):
                if columns[elastic].kind not in FITTED or widths[elastic] - over < 8:
                    return ["", *records(heads, cells, width)]
                widths[elastic] -= over
                break
            columns.remove([c for c in columns if c.minor][-1])
        at_right, fits = [c.kind not in FITTED for c in columns], [FITTED.get(c.kind, as_it_is) for c in columns]
        return [line(row, widths, at_right, fits) for row in (heads, *cells)]
