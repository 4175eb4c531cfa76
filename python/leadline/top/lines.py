"""Lines of the screen that are drawn again only where they changed, and move nothing else as long as their number stays."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget


class Lines(Widget):
    """Texts below each other, none of them wrapped."""

    DEFAULT_CSS = "Lines { height: auto; }"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._lines: list[Text] = []

    def show(self, lines: Sequence[Text]) -> None:
        before, self._lines = self._lines, list(lines)
        if len(before) != len(self._lines):
            self.refresh(layout=True)
            return
        changed = [y for y, (old, new) in enumerate(zip(before, self._lines)) if old != new]
        if changed:
            self.refresh(*(Region(0, y, self.outer_size.width, 1) for y in changed))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        width, style = self.size.width, self.rich_style
        if y >= len(self._lines):
            return Strip.blank(width, style)
        return Strip(self._lines[y].render(self.app.console)).adjust_cell_length(width).apply_style(style)
