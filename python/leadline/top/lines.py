"""Lines of the screen that are drawn again only where they changed, and move nothing else as long as their number stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, reduce
from itertools import pairwise

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Span, Text
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget


@cache
def _parsed(style: str) -> Style:
    return Style.parse(style)


def style_of(style: Style | str) -> Style | None:
    """None where it says nothing."""
    return (_parsed(style) if isinstance(style, str) else style) if style else None


def segments(text: Text) -> Iterator[Segment]:
    """A line in pieces of one style each. Text.render takes several times as long: it looks up each style in a theme and adds all up."""
    plain, base, at = text.plain, style_of(text.style), 0
    spans = text.spans
    if any(before.end > after.start for before, after in pairwise(spans)):
        yield from _overlapping(plain, base, spans)
        return
    for start, end, style in spans:
        if start > at:
            yield Segment(plain[at:start], base)
        if end > start:
            yield Segment(plain[start:end], _sum(base, style_of(style)))
        at = end
    if at < len(plain):
        yield Segment(plain[at:], base)


def _overlapping(plain: str, base: Style | None, spans: Sequence[Span]) -> Iterator[Segment]:
    """Where styles lie upon each other, the later one counts more."""
    ends = sorted({0, len(plain), *(min(place, len(plain)) for span in spans for place in (span.start, span.end))})
    for start, end in pairwise(ends):
        upon = (style_of(span.style) for span in spans if span.start <= start and span.end >= end)
        yield Segment(plain[start:end], reduce(_sum, upon, base))


def _sum(below: Style | None, upon: Style | None) -> Style | None:
    return upon if below is None else below if upon is None else below + upon


def strip(pieces: Iterable[Segment], width: int, base: Style) -> Strip:
    """A line of that width on the colours of what it lies on. In one step: a Strip takes longer to make than most of what is done to it."""
    found = [Segment(text, base if style is None else base + style) for text, style, _ in pieces]
    missing = width - sum(cell_len(text) for text, _, _ in found)
    if missing < 0:
        return Strip(found).adjust_cell_length(width)
    if missing:
        found.append(Segment(" " * missing, base))
    return Strip(found, width)


class Lines(Widget):
    """Texts below each other, none of them wrapped."""

    DEFAULT_CSS = "Lines { height: auto; }"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._lines: list[Text] = []
        self._base = Style()

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

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # looks at all that it lies in: not for each line
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        return strip(segments(self._lines[y]) if y < len(self._lines) else (), self.size.width, self._base)
