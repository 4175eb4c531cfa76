"""A table of the screen that is filled anew at each refresh and keeps its place: the cursor stays on the same thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from leadline.top.grid import GAP, Grid, Row, cell, header


class LiveTable(DataTable[Text]):
    """Shows the rows of a Grid in the columns that fit."""

    DEFAULT_CSS = """
    LiveTable { height: 1fr; background: #12161b; padding: 0 0 0 1; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    LiveTable > .datatable--odd-row, LiveTable > .datatable--even-row { background: #12161b; }
    LiveTable > .datatable--header { background: #12161b; color: #8b97a4; text-style: none; }
    LiveTable > .datatable--cursor { background: #252c35; color: #e3e8ee; text-style: none; }
    LiveTable:focus > .datatable--cursor { background: #2c3641; }
    LiveTable > .datatable--header-hover, LiveTable > .datatable--hover { background: #1f262e; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "detail"),
        Binding("tab,right", "app.next_tab(1)", show=False),
        Binding("shift+tab,left", "app.next_tab(-1)", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=0, zebra_stripes=False, cursor_foreground_priority="renderable")
        self._shape: list[tuple[str, int]] = []

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter means something where rows are sessions."""
        return self.id in ("sessions", "locks") if action == "select_cursor" else True

    def show(self, grid: Grid, rows: Sequence[Row], width: int, sort: str = "") -> None:
        """width: cells to fill. sort: the column the rows are sorted by is marked."""
        columns = header(grid.columns, width)
        shape = [(column.title + ("*" if column.sort == sort and sort else ""), cells) for column, cells, _ in columns]
        before = self.key_at_cursor()
        offset = self.scroll_offset
        if shape != self._shape:
            self._shape = shape
            self.clear(columns=True)
            for column, cells, title in columns:
                marked = Text(title, "bold underline" if sort and column.sort == sort else "")
                self.add_column(marked, width=cells + GAP, key=column.sort or column.title or "bar")
        else:
            self.clear()
        places = [grid.columns.index(column) for column, _, _ in columns]
        seen: set[str] = set()
        for row in rows:
            if row.key in seen:
                continue
            seen.add(row.key)
            shown = [cell(row.cells[i], cells, column.right, row.dim) for i, (column, cells, _) in zip(places, columns)]
            self.add_row(*shown, key=row.key)
        self.show_cursor = bool(rows)
        if before in seen:
            self.move_cursor(row=self.get_row_index(before), scroll=False)
        self.scroll_to(y=offset.y, animate=False, immediate=True)

    def key_at_cursor(self) -> str:
        """Key of the row under the cursor; empty when there is none."""
        if not self.row_count or not self.is_valid_row_index(self.cursor_row):
            return ""
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value or ""
