"""A table of the screen that is filled anew at each refresh and keeps its place: the cursor stays on the same thing.

A row is put together when it comes or changes, and drawn when its line of the screen shows another one. Textual's DataTable draws all
cells anew as soon as one of them has changed, and lays out the whole screen when a row comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from leadline.top.grid import GAP, Cell, Column, Grid, Row, cell, header
from leadline.top.lines import segments, strip

DIM, MARKED = Style(dim=True), Style(bold=True, underline=True)
TITLES = 1  # line above the rows
SPARE = 10  # empty lines that may lie below the rows


class LiveTable(ScrollView, can_focus=True):
    """Shows the rows of a Grid in the columns that fit."""

    DEFAULT_CSS = """
    LiveTable { height: 1fr; background: #12161b; padding: 0 0 0 1; scrollbar-size-vertical: 1; overflow-x: hidden; }
    LiveTable > .table--titles { color: #8b97a4; }
    LiveTable > .table--cursor { background: #252c35; }
    LiveTable:focus > .table--cursor { background: #2c3641; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--titles", "table--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "detail"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,ctrl+home", "first", show=False),
        Binding("end,ctrl+end", "last", show=False),
        Binding("tab,right", "app.next_tab(1)", show=False),
        Binding("shift+tab,left", "app.next_tab(-1)", show=False),
    ]

    @dataclass
    class RowSelected(Message):
        """Enter on a row, or a click on the row under the cursor."""

        key: str

    @dataclass
    class TitleSelected(Message):
        """A click on the title of a column."""

        column: Column

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        self.cursor_row = 0
        self._lines: list[list[Segment]] = []  # of the rows, or what is said in their place
        self._columns: list[tuple[Column, int, str]] = []
        self._places: list[int] = []  # of the columns among the cells of a row
        self._titles: list[Segment] = []
        self._shape: tuple[object, ...] = ()
        self._base = Style()

    @property
    def row_count(self) -> int:
        return len(self.rows)

    def key_at_cursor(self) -> str:
        """Key of the row under the cursor; empty when there is none."""
        return self.rows[self.cursor_row].key if self.rows else ""

    # -- what it shows -------------------------------------------------------------------------------------------------

    def show(self, grid: Grid, rows: Sequence[Row], width: int, sort: str = "", empty: str = "") -> None:
        """width: cells to fill. sort: the column the rows are sorted by is marked. empty: what to say without rows."""
        shape = (tuple(grid.columns), width, sort)
        reshaped, self._shape = shape != self._shape, shape
        if reshaped:
            self._set_columns(grid.columns, width, sort)
        chosen, cursor, before = self.key_at_cursor(), self.cursor_row, self._lines
        known = {} if reshaped else {row.key: (row, line) for row, line in zip(self.rows, before)}
        shown: dict[str, Row] = {}
        for row in rows:
            shown.setdefault(row.key, row)
        self.rows = list(shown.values())
        self._lines = [known[row.key][1] if row.key in known and _same(known[row.key][0], row) else self._line(row) for row in self.rows]
        if not self.rows:
            self._lines = [[Segment(line)] for line in wrap(empty, max(width, 1))]
        places = {row.key: place for place, row in enumerate(self.rows)}
        self.cursor_row = places.get(chosen, min(cursor, max(len(self.rows) - 1, 0)))
        self._fit()
        if reshaped:
            self.refresh()
            return
        lines = zip_longest(before, self._lines)
        changed = {y for y, (old, new) in enumerate(lines) if old is not new and old != new}
        self._draw(changed | ({cursor, self.cursor_row} if cursor != self.cursor_row else set()))

    def _set_columns(self, columns: Sequence[Column], width: int, sort: str) -> None:
        self._columns = header(columns, width)
        self._places = [columns.index(column) for column, _, _ in self._columns]
        marked = [MARKED if sort and column.sort == sort else None for column, _, _ in self._columns]
        self._titles = [Segment(title + " " * GAP, style) for (_, _, title), style in zip(self._columns, marked)]

    def _line(self, row: Row) -> list[Segment]:
        """The row in pieces, those without a style of their own together."""
        pieces: list[Segment] = []
        plain = ""
        for place, (column, cells, _) in zip(self._places, self._columns):
            for text, style, _ in _pieces(row.cells[place], cells, column.right):
                if style is None:
                    plain += text
                    continue
                if plain:
                    pieces.append(Segment(plain))
                    plain = ""
                pieces.append(Segment(text, style))
            plain += " " * GAP
        pieces.append(Segment(plain))
        return list(Segment.apply_style(pieces, DIM)) if row.dim else pieces

    def _fit(self, spare: int = SPARE) -> None:
        """Room for all rows. Each change lays out the screen: it is never less than there is, and not taken back for a few rows."""
        needed, height = max(len(self._lines) + TITLES, self.size.height), self.virtual_size.height
        if needed > height or height - needed > spare:
            self.virtual_size = Size(1, needed)
        if self.scroll_offset.y > self._last_offset():
            self.scroll_to(y=self._last_offset(), animate=False)

    def on_resize(self) -> None:
        self._fit(spare=0)

    def _last_offset(self) -> int:
        return max(len(self._lines) + TITLES - self.size.height, 0)

    def _draw(self, rows: Iterable[int]) -> None:
        """Draws these rows anew where they can be seen."""
        seen = (row + TITLES - self.scroll_offset.y for row in rows)
        regions = [Region(0, y, self.size.width, 1) for y in seen if TITLES <= y < self.size.height]
        if regions:
            self.refresh(*regions)

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # looks through all that it stands in: not for each line
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        row = y - TITLES + self.scroll_offset.y
        line: Sequence[Segment] = ()
        style = self._base
        if y < TITLES:
            line, style = self._titles, self.get_component_rich_style("table--titles")
        elif row < len(self._lines):
            line = self._lines[row]
            if not self.rows:
                style = self.get_component_rich_style("table--titles")
            elif row == self.cursor_row:
                style = self.get_component_rich_style("table--cursor")
        return strip(line, self.size.width, style)

    # -- keys and mouse ------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter means something where rows are sessions."""
        return self.id in ("sessions", "locks") if action == "select_cursor" else True

    def action_select_cursor(self) -> None:
        if self.rows:
            self.post_message(self.RowSelected(self.key_at_cursor()))

    def action_move(self, rows: int) -> None:
        self._go_to(self.cursor_row + rows)

    def action_page(self, pages: int) -> None:
        self._go_to(self.cursor_row + pages * max(self.size.height - TITLES, 1))

    def action_first(self) -> None:
        self._go_to(0)

    def action_last(self) -> None:
        self._go_to(len(self.rows) - 1)

    def _go_to(self, row: int) -> None:
        """Moves the cursor, and scrolls as far as that takes."""
        before, self.cursor_row = self.cursor_row, max(min(row, len(self.rows) - 1), 0)
        self._draw({before, self.cursor_row})
        first, fit = self.scroll_offset.y, max(self.size.height - TITLES, 1)
        wanted = min(max(first, self.cursor_row - fit + 1), self.cursor_row)
        if wanted != first:
            self.scroll_to(y=wanted, animate=False)

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None:
            return
        if at.y < TITLES:
            self._select_title(at.x)
            return
        row = at.y - TITLES + self.scroll_offset.y
        if row < len(self.rows):
            if row == self.cursor_row and self.check_action("select_cursor", ()):
                self.action_select_cursor()
            self._go_to(row)

    def _select_title(self, x: int) -> None:
        ends = 0
        for column, cells, _ in self._columns:
            ends += cells + GAP
            if x < ends:
                self.post_message(self.TitleSelected(column))
                return


def _pieces(content: Cell, width: int, right: bool) -> Iterable[Segment]:
    """A cell of that width."""
    if isinstance(content, str) and len(content) <= width and content.isascii() and content.isprintable():
        return (Segment(content.rjust(width) if right else content.ljust(width)),)
    return segments(cell(content, width, right))


def _same(a: Row, b: Row) -> bool:
    """Whether they look alike; texts that are equal may still differ in the style of the whole."""
    return a == b and all(x.style == y.style for x, y in zip(a.cells, b.cells) if isinstance(x, Text) and isinstance(y, Text))
