"""A capture on the terminal: its sections, one below the other. Plain text first; colour where the console has it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from leadline.capture.reader import Capture
from leadline.findings import Evaluation
from leadline.views.grid import Grid
from leadline.views.sections import Context
from leadline.views.sections.frame import header
from leadline.views.text import grid_lines


def print_capture(capture: Capture, evaluation: Evaluation, console: Console) -> None:
    """Prints the whole view. console: made by the caller, who knows the stream; the lines have their width already."""
    text = Text("\n").join(lines(capture, evaluation))  # printed as one, in a third of the time of each line by itself
    console.print(text, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)


def lines(capture: Capture, evaluation: Evaluation) -> Iterator[Text]:
    """The view line by line."""
    of = Context(capture, evaluation)
    sections = [section for section in of.sections() if section.in_text]
    of.prepare(sections)
    yield from header(of)
    for section in sections:
        data = of.data(section)
        if section.text is not None:
            yield from section.text(of, data)
        elif isinstance(data, Grid):
            yield from grid_lines(section.title, data)
