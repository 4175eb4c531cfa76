"""Columns and rows for both the screen and plain text: which columns fit a width, and cells cut and padded to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from leadline.columns import excess, room
from leadline.figures import bar, harmless

GAP = 1
NARROWEST = 5  # a column that is cut is not shown with less


@dataclass(frozen=True)
class Column:
    """width: cells it always has. share: of the room left over, up to `most` cells. from_width: left out on narrower screens."""

    title: str
    width: int
    right: bool = False
    share: int = 0
    most: int = 1000
    from_width: int = 0
    sort: str = ""


@dataclass(frozen=True)
class Bar:
    """A cell filled to `part` (0 to 1) of its width."""

    part: float
    colour: str


Cell = Text | str | Bar


@dataclass
class Row:
    """key: the same thing has the same key at the next refresh. Cells of columns that are left out are skipped."""

    key: str
    cells: Sequence[Cell]
    dim: bool = False

    def matches(self, text: str) -> bool:
        """Whether a cell contains the text, in any case."""
        wanted = text.casefold()
        texts = (c.plain if isinstance(c, Text) else c for c in self.cells if not isinstance(c, Bar))
        return any(wanted in text.casefold() for text in texts)


@dataclass
class Grid:
    """One table of the view. empty: what to say when it has no rows. note: a line below."""

    columns: Sequence[Column]
    rows: list[Row] = field(default_factory=list)
    empty: str = ""
    note: str = ""

    def filtered(self, text: str) -> list[Row]:
        return [row for row in self.rows if row.matches(text)] if text else self.rows


def widths(columns: Sequence[Column], width: int) -> list[tuple[int, int]]:
    """(index, cells) of the columns that fit. On a narrow screen the last one is cut, and those after it are left out."""
    chosen = [i for i, c in enumerate(columns) if width >= c.from_width]
    cells: dict[int, int] = {}
    room = width
    for i in chosen:
        if room < columns[i].width:
            if room >= NARROWEST or not cells:
                cells[i] = max(room, 1)
            break
        cells[i] = columns[i].width
        room -= columns[i].width + GAP
    chosen = list(cells)
    left = -excess(list(cells.values()), width, GAP)
    growing = [i for i in chosen if columns[i].share]
    while left > 0 and growing:
        total = sum(columns[i].share for i in growing)
        given = 0
        for i in list(growing):
            more = min(max(left * columns[i].share // total, 1), columns[i].most - cells[i], left - given)
            cells[i] += more
            given += more
            if cells[i] >= columns[i].most:
                growing.remove(i)
        if not given:
            break
        left -= given
    return [(i, cells[i]) for i in chosen]


def cell(content: Cell, width: int, right: bool = False, dim: bool = False) -> Text:
    """The content in exactly `width` cells, with an ellipsis when it was cut."""
    if isinstance(content, Bar):
        text = Text(bar(content.part, width), content.colour)
    else:
        text = content.copy() if isinstance(content, Text) else Text(content)
        if not text.plain.isprintable():  # whoever made it: the terminal would do what it says
            text.plain = harmless(text.plain)
    size = cell_len(text.plain)
    if size > width:
        text.truncate(max(width - 1, 0))
        text.append("…" if width > 0 else "")
        size = cell_len(text.plain)
    if size < width:
        if right:
            text.pad_left(width - size)
        else:
            text.pad_right(width - size)
    if dim:
        text.stylize("dim")
    return text


def whole(grid: Grid) -> list[tuple[int, int]]:
    """(index, cells) of all columns, with room for what is in them."""
    return list(enumerate(room([column.width for column in grid.columns], [row.cells for row in grid.rows], _size)))


def _size(content: Cell) -> int:
    return 0 if isinstance(content, Bar) else cell_len(content.plain if isinstance(content, Text) else content)


def header(columns: Sequence[Column], width: int) -> list[tuple[Column, int, str]]:
    """Column, cells and title as shown."""
    return [(columns[i], cells, _title(columns[i], cells)) for i, cells in widths(columns, width)]


def _title(column: Column, cells: int) -> str:
    return (column.title.rjust(cells) if column.right else column.title.ljust(cells))[:cells]


def lines(grid: Grid, width: int | None, most: int = 1000) -> list[Text]:
    """The grid as plain lines: titles, rows, and what was left out. width: None where nothing bounds it, and no value is cut."""
    if not grid.rows:
        room = cell_len(grid.empty)
        return [Text(set_cell_size(grid.empty, room if width is None else min(width, room)), "dim")]
    shape = whole(replace(grid, rows=grid.rows[:most])) if width is None else widths(grid.columns, width)
    out = [Text(" ".join(_title(grid.columns[i], cells) for i, cells in shape).rstrip(), "dim")]
    for row in grid.rows[:most]:
        line = Text(" ").join(cell(row.cells[i], cells, grid.columns[i].right, row.dim) for i, cells in shape)
        line.rstrip()
        out.append(line)
    if len(grid.rows) > most:
        out.append(Text(f"and {len(grid.rows) - most} more", "dim"))
    return out
