"""A table of the screen that is filled anew at each refresh and keeps its place: the cursor stays on the same thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.geometry import Region
from textual.widgets import DataTable

from leadline.top.grid import GAP, Column, Grid, Row, cell, header


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

    _drawn_later = False

    def __init__(self, id: str) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=0, zebra_stripes=False, cursor_foreground_priority="renderable")
        self._shape: list[tuple[str, int]] = []
        self._shown: dict[str, list[Text]] = {}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter means something where rows are sessions."""
        return self.id in ("sessions", "locks") if action == "select_cursor" else True

    def show(self, grid: Grid, rows: Sequence[Row], width: int, sort: str = "") -> None:
        """width: cells to fill. sort: the column the rows are sorted by is marked."""
        columns = header(grid.columns, width)
        shape = [(column.title + ("*" if column.sort == sort and sort else ""), cells) for column, cells, _ in columns]
        places = [grid.columns.index(column) for column, _, _ in columns]
        shown: dict[str, list[Text]] = {}
        for row in rows:
            if row.key not in shown:
                shown[row.key] = [cell(row.cells[i], cells, column.right, row.dim) for i, (column, cells, _) in zip(places, columns)]
        if shape == self._shape and list(shown) == list(self._shown):
            self._change(shown)
        else:
            self._fill(shown, None if shape == self._shape else columns, sort)
        self._shape, self._shown = shape, shown
        self.show_cursor = bool(rows)

    def _change(self, shown: dict[str, list[Text]]) -> None:
        """The same rows: only those with another cell are drawn."""
        for index, (key, cells) in enumerate(shown.items()):
            before = self._shown[key]
            changed = [i for i, (old, new) in enumerate(zip(before, cells)) if old != new or old.style != new.style]
            if not changed:
                continue
            self._drawn_later = True  # not the whole table for each cell
            for i in changed:
                self.update_cell_at(Coordinate(index, i), cells[i])
            self._drawn_later = False
            self.refresh_row(index)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        return self if self._drawn_later else super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def _fill(self, shown: dict[str, list[Text]], columns: list[tuple[Column, int, str]] | None, sort: str) -> None:
        """Other rows, and other columns if any are given."""
        before, offset = self.key_at_cursor(), self.scroll_offset
        self.clear(columns=columns is not None)
        for column, cells, title in columns or ():
            marked = Text(title, "bold underline" if sort and column.sort == sort else "")
            self.add_column(marked, width=cells + GAP, key=column.sort or column.title or "bar")
        for key, row in shown.items():
            self.add_row(*row, key=key)
        if before in shown:
            self.move_cursor(row=self.get_row_index(before), scroll=False)
        self.scroll_to(y=offset.y, animate=False, immediate=True)

    def key_at_cursor(self) -> str:
        """Key of the row under the cursor; empty when there is none."""
        if not self.row_count or not self.is_valid_row_index(self.cursor_row):
            return ""
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value or ""
