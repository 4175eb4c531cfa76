"""What `leadline sql` prints on a terminal: at most one screenful, the local time beside each `ts`, and how many rows are left out.

Only for people: what goes into a pipe or a file is printed in full by sql.py.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import Any

from leadline.capture.reader import Capture
from leadline.duck import duckdb
from leadline.figures import count
from leadline.output import to_table

CLOCK_COLUMNS = {"ts", "ts_from", "ts_to"}  # the names that the tables give to times on CLOCK_MONOTONIC
FEWEST_LINES = 5  # of a table, on however small a terminal
BESIDE = 3  # lines of the screen that are not the table's: the note below it, the command, the next prompt
BATCH = 10_000
BESIDE_NS = 600 * 10**9  # before and after the window: what was read then has its time too


def one_screen(capture: Capture, query: str, size: os.terminal_size) -> tuple[str, str]:
    """The first rows of the query as text for a terminal of this size, and a note on the rows left out (empty when there are none)."""
    most = max(size.lines - BESIDE, FEWEST_LINES)
    cursor = capture.db.execute(query)
    names = [column[0] for column in cursor.description or []]
    rows = cursor.fetchmany(most + 1)
    text, shown = _fit(*with_local_time(capture, names, rows), size.columns, most)
    if shown == len(rows):
        return text, "" if rows else "no rows"
    total = _total(capture, query)
    return text, f"{total - shown:,} of {count(total, 'row')} not shown; --table prints all of them"


def _fit(names: Sequence[str], rows: Sequence[Sequence[Any]], width: int, most: int) -> tuple[str, int]:
    """A table of the first rows in at most `most` lines, and how many rows that are. One row at least."""
    shown = rows[: most - 2]  # two lines of a table are its head
    text = to_table(names, shown, width)
    if text.count("\n") >= most:  # too wide: one value per line, and a line above each row
        shown = rows[: max(most // (len(names) + 1), 1)]
        text = to_table(names, shown, width)
    return text, len(shown)


def _total(capture: Capture, query: str) -> int:
    """How many rows the query has. They are not fetched, unless something follows the semicolon at its end."""
    try:
        [[total]] = capture.db.sql(query.strip().rstrip(";")).aggregate("count(*)").fetchall()
        return int(total)
    except duckdb.ParserException:
        cursor, total = capture.db.execute(query), 0
        while batch := cursor.fetchmany(BATCH):
            total += len(batch)
        return total


def with_local_time(capture: Capture, names: list[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], Sequence[Sequence[Any]]]:
    """Names and rows with a column of local times behind each column that has times of the capture's window."""
    window = capture.rows("select ts_from, ts_to, wall_offset_ns from capture")[0]
    if None in window.values():
        return names, rows
    clocks = [i for i, name in enumerate(names) if name in CLOCK_COLUMNS and _is_near(window, [row[i] for row in rows])]
    columns = list(zip(*rows)) or [()] * len(names)
    new: list[tuple[str, Sequence[Any]]] = []
    for i, (name, values) in enumerate(zip(names, columns)):
        new.append((name, values))
        if i in clocks:
            new.append((f"{name} (local)", local_times(values, window["wall_offset_ns"])))
    return [name for name, _ in new], list(zip(*(values for _, values in new)))


def _is_near(window: dict[str, int], values: list[Any]) -> bool:
    """Whether they are times of this capture: a query may give the name ts to anything."""
    known = [v for v in values if v is not None]
    is_whole = all(isinstance(v, int) and not isinstance(v, bool) for v in known)
    return bool(known) and is_whole and all(window["ts_from"] - BESIDE_NS <= v <= window["ts_to"] + BESIDE_NS for v in known)


def local_times(values: Sequence[int | None], wall_offset_ns: int) -> list[str | None]:
    """Times on CLOCK_MONOTONIC as times here, to the millisecond; with the date unless all are of one day."""
    times = [None if v is None else divmod(v + wall_offset_ns, 10**9) for v in values]
    moments = [None if t is None else datetime.datetime.fromtimestamp(t[0]) for t in times]
    is_one_day = len({m.date() for m in moments if m}) == 1
    form = "%H:%M:%S" if is_one_day else "%Y-%m-%d %H:%M:%S"
    return [None if m is None or t is None else f"{m:{form}}.{t[1] // 10**6:03d}" for m, t in zip(moments, times)]
