"""What the views of a capture consist of: sections, in one order for the terminal, the report and JSON.

A section declares the tables it needs, as a finding does, and is there when the capture has looked for them. Its numbers are made
once; the views only lay them out. A new depth adds a file here and a line in `all_sections`; an engine
has its own (`Engine.sections`).
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from leadline.capture.reader import Capture
from leadline.capture.steps import for_each
from leadline.engines import all_engines, named
from leadline.findings import Evaluation
from leadline.views import where
from leadline.views.grid import Column, Curves, Grid, Stack

if TYPE_CHECKING:
    from rich.text import Text

    from leadline.duck import duckdb


class Context:
    """One capture that is looked at, and the numbers of its sections."""

    def __init__(self, capture: Capture, evaluation: Evaluation) -> None:
        self.capture, self.evaluation = capture, evaluation
        self._data: dict[str, Any] = {}

    @functools.cached_property
    def window(self) -> where.Window:
        return where.window(self.capture)

    def prepare(self, sections: Iterable[Section]) -> None:
        """Makes their numbers, of a few at once."""

        def make(cursor: duckdb.DuckDBPyConnection, section: Section) -> None:
            self._data[section.key] = section.data(Context(replace(self.capture, db=cursor), self.evaluation))

        for_each(self.capture.db, reversed(list(sections)), make)  # the last take longest: begun last, they would run alone

    def grid(
        self, columns: tuple[Column, ...], rows: Sequence[Mapping[str, Any]], most: int, see: str,
        note: str = "", empty: str = "none", picture: Stack | Curves | None = None,
    ) -> Grid:  # fmt: skip
        """The first `most` of these rows. Where there are more, it says how many, and `see`, the query that has them."""
        left = len(rows) - most
        rest = f'{left:,} more: leadline sql {shlex.quote(str(self.capture.path))} "from {see}"' if left > 0 else ""
        return Grid.of(columns, rows[:most], note, rest, empty, picture)

    def data(self, section: Section) -> Any:
        if section.key not in self._data:
            self._data[section.key] = section.data(self)
        return self._data[section.key]

    def sections(self) -> list[Section]:
        """Those of which the capture has the tables."""
        there = (s for s in all_sections() if all(self.capture.unavailable(table) is None for table in s.needs))
        return [s for s in there if s.applies(self)]


@dataclass(frozen=True)
class Tile:
    """A headline number of the report."""

    label: str
    value: str
    note: str
    unit: str = ""


@dataclass(frozen=True)
class Section:
    """key: its name in JSON and the anchor in the report. data: a Grid, or what text and html know how to lay out.

    text: its lines on the terminal; a Grid has them by itself. html: its template beside the report's; a Grid needs none.
    tiles: headline numbers it gives to the report. in_text, in_html, in_json: whether those views have it. applies: whether there is
    anything to say, beyond the tables.
    """

    key: str
    title: str
    needs: tuple[str, ...]
    data: Callable[[Context], Any]
    text: Callable[[Context, Any], Iterator[Text]] | None = None
    html: str = "grid.html.j2"
    tiles: Callable[[Context, Any], list[Tile]] | None = None
    in_text: bool = True
    in_html: bool = True
    in_json: bool = True
    applies: Callable[[Context], bool] = lambda of: True


def plain(data: Any) -> Any:
    """Numbers of a section as JSON has them."""
    if isinstance(data, Grid):
        return data.as_dicts()
    if is_dataclass(data) and not isinstance(data, type):
        return asdict(data)
    return [plain(item) for item in data] if isinstance(data, list) else data


@functools.cache
def all_sections() -> tuple[Section, ...]:
    """Every section, in the order in which views have them."""
    from leadline.views.sections import flame, frame, host, kernel, load, sessions, sockets, wire, wire_sessions

    return (
        *sessions.TIME,
        *load.SECTIONS,
        *host.SECTIONS,
        *kernel.SECTIONS,
        *flame.SECTIONS,
        *sockets.SECTIONS,
        *wire.SECTIONS,
        *wire_sessions.SECTIONS,
        *(section for engine in all_engines() if engine.sections for section in named(engine.sections)),
        frame.FINDINGS,
        *sessions.DETAIL,
        *host.BESIDE,
        frame.NOT_MEASURED,
        frame.TARGET,
    )
