"""Writes catalog and host rows into a capture; a row whose key was written before is left out, so a second reading only adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from leadline.engines import BUILT_IN
from leadline.tables import all_tables

if TYPE_CHECKING:
    from leadline._core.capture import Written

Row = tuple[Any, ...]


def add_written(totals: dict[str, Written], more: Mapping[str, Written]) -> None:
    """Adds what another has written to the totals by table: two may write the same one."""
    for table, b in more.items():
        a = totals.get(table, {"rows": 0, "bytes": 0, "segments": 0})
        totals[table] = {"rows": a["rows"] + b["rows"], "bytes": a["bytes"] + b["bytes"], "segments": a["segments"] + b["segments"]}


class Writer(Protocol):
    """What writes one table: `_core.capture.TableWriter`."""

    def append(self, rows: list[Row]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> Written: ...


OpenWriter = Callable[[str, str], Writer]


def core_writer(capture_dir: str, table: str, *, growing: bool = True) -> Writer:
    """growing: few files; not where a reader takes segments away."""
    from leadline import _core

    about = all_tables()[table]
    if about.engine not in ("", *BUILT_IN):  # its file was not there when the extension was built
        _core.capture.define_table(about.name, about.clock, [(c.name, c.type, c.nullable) for c in about.columns])
    return _core.capture.TableWriter(capture_dir, table, growing=growing)


class Store:
    """The tables of one capture that are written a few times only. Raises LeadlineError('storage')."""

    def __init__(self, capture_dir: str, open_writer: OpenWriter = core_writer) -> None:
        self.capture_dir, self._open_writer = capture_dir, open_writer
        self._writers: dict[str, Writer] = {}
        self._seen: dict[str, set[Row]] = {}

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Appends rows and puts them on disk at once."""
        new = self._unseen(table, rows) if all_tables()[table].key else list(rows)
        if not new:
            return
        if table not in self._writers:
            self._writers[table] = self._open_writer(self.capture_dir, table)
        self._writers[table].append(new)
        self._writers[table].flush()

    def add_all(self, rows: dict[str, list[Row]]) -> None:
        for table, part in rows.items():
            self.add(table, part)

    def close(self) -> dict[str, Written]:
        """What was written, by table."""
        return {table: writer.close() for table, writer in self._writers.items()}

    def _unseen(self, table: str, rows: Iterable[Row]) -> list[Row]:
        names = [column.name for column in all_tables()[table].columns]
        places = [names.index(key) for key in all_tables()[table].key]
        seen = self._seen.setdefault(table, set())
        new = []
        for row in rows:
            key = tuple(row[place] for place in places)
            if key not in seen:
                seen.add(key)
                new.append(row)
        return new
