"""How commands print rows: JSON, CSV, or a plain table that fits the width."""

from __future__ import annotations

import functools
import io
import math
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from leadline import columns
from leadline.columns import NARROWEST
from leadline.errors import LeadlineError
from leadline.figures import cell, fit, width_of

if TYPE_CHECKING:
    import json

WIDTH = 80  # of text for people where there is no terminal
PART = 1 << 16
UNLIMITED = 1 << 30
MOST_COUNTED = 10_000  # rows that a list counts beyond those that it shows
MOST_PADDED = 400  # columns that a value is filled up to where no terminal bounds it: one of a megabyte does not fill up all others
CRLF = "\r\n"
FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"  # spreadsheets take text that begins with one of these for a formula


def to_json(value: Any) -> str:
    """JSON for programs: not-a-number and infinity become null, times and other types their text, what is no UTF-8 a ?."""
    try:
        text = _encoder().encode(value)
    except (ValueError, TypeError):  # not a number, or a key that is no text: seldom, and ten times as slow
        text = _encoder().encode(_plain(value))
    return text if text.isascii() else text.encode(errors="replace").decode()


@functools.cache
def _encoder() -> json.JSONEncoder:
    import json

    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain)


def print_json_list(rows: Iterable[Mapping[str, Any]]) -> None:
    """A list with one object per line, without holding all of them. What fails later is told after a whole list of those before."""
    print_json_parts(together((to_json(row) for row in rows), ",\n"))


def together(lines: Iterable[str], between: str = "") -> Iterator[bytes]:
    """Texts in parts of some kilobytes: each part is a write of its own. What there is comes before what fails."""
    part: list[str] = []
    size = 0
    try:
        for line in lines:
            part.append(line)
            size += len(line)
            if size >= PART:
                yield between.join(part).encode()
                part, size = [], 0
    except Exception:
        if part:
            yield between.join(part).encode()
        raise
    if part:
        yield between.join(part).encode()


def print_json_parts(parts: Iterable[bytes]) -> bool:
    """The same of rows that are JSON already: each part is some objects with commas between them. Whether there were any."""
    import click

    before = b"["
    try:
        for part in parts:
            click.echo(before + part, nl=False)
            before = b",\n"
    except LeadlineError:
        if before != b"[":
            click.echo("]")
        raise
    click.echo("[]" if before == b"[" else "]")
    return before != b"["


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if _is_decimal(type(value)):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(v) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _is_decimal(kind: type) -> bool:
    """decimal is as large as all else that is imported for this: who has a Decimal has imported it."""
    decimal = sys.modules.get("decimal")
    return decimal is not None and issubclass(kind, decimal.Decimal)


def _is_real(kind: type) -> bool:
    return issubclass(kind, float) or _is_decimal(kind)


def to_csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterable[str]:
    """CSV lines, the names first; null is an empty field, and text that a spreadsheet would take for a formula is marked as text."""
    import csv

    line = io.StringIO()
    writer = csv.writer(line, lineterminator=CRLF)  # which also has a lone \r quoted
    for row in [names, *rows]:
        writer.writerow(["" if v is None else _no_formula(v) if isinstance(v, str) else v for v in row])
        yield line.getvalue().removesuffix(CRLF) + "\n"
        line.seek(0)
        line.truncate()


def print_csv(rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows by name: a list may lack some names, of others all have those of the first row. What is a list or an object stays JSON."""
    import click

    def values() -> Iterator[list[Any]]:
        yield from ([_in_csv(row.get(name)) for name in names] for row in rows)

    if not isinstance(rows, Sequence):
        first = next(rows := iter(rows), None)
        rows, names = [] if first is None else chain([first], rows), list(first or ())
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
    if names:
        for part in together(to_csv(names, values())):
            click.echo(part, nl=False)


def _in_csv(value: Any) -> Any:
    value = _plain(value)
    return to_json(value) if isinstance(value, bool | dict | list) else value


def _no_formula(text: str) -> str:
    """Text with an apostrophe before it where it begins as formulas do in spreadsheets: clients and users choose names and statements.

    The first characters are those that OWASP lists (CSV Injection). Numbers stay as they are.
    """
    if not text or text[0] not in FORMULA:
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text if text.isascii() else f"'{text}"


def terminal_width() -> int | None:
    """Of the terminal that stdout is; what COLUMNS says of one that does not tell; None for a pipe or a file."""
    import os

    if (here := _columns()) is None:
        return None
    said = os.environ.get("COLUMNS", "")
    return max(here or (int(said) if re.fullmatch("[1-9][0-9]{0,5}", said) else WIDTH), NARROWEST)


def _columns() -> int | None:
    import os

    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal, or no file at all
        return None


def width_here() -> int:
    """Of text in sentences: WIDTH, or the width of the terminal that stdout is where that has fewer columns."""
    return min(terminal_width() or WIDTH, WIDTH)


def shown(text: str, width: int | None = None) -> str:
    """A value in a place of `width` columns, or of all there are: cut to it on a terminal, whole in a pipe or a file."""
    terminal = terminal_width()
    return text if terminal is None else fit(text, terminal if width is None else width)


def more_than(shown: int, counted: int | None, hint: str, most: int = 0) -> str:
    """What a list says that stops before its end. counted: the rows there are, of which at most `most` beyond those shown were counted;
    None where nobody has counted."""
    if counted is None:
        return f"there are more than these {shown:,}: {hint}"
    left = counted - shown
    return f"{f'more than {left - 1:,}' if most and left >= most else f'{left:,}'} more: {hint}"


def stopped_at(limit: int | None, printed: int) -> str:
    """What a list says that ended at the --limit it was given, where to look for more could take as long as to print it; else nothing."""
    return "" if limit is None or printed < limit else f"stopped at --limit {limit:,}: there may be more"


def to_table(names: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None = None, whole: Collection[str] = ()) -> str:
    """A table of at most `width` columns: text is cut to fit, numbers never; too many columns give one value per line.

    width: by default that of the terminal. In a pipe or a file no value is cut, as what reads it may go on with it.
    whole: names of columns whose text is not cut either.
    """
    width = (terminal_width() or UNLIMITED) if width is None else width
    values = [[row[i] for row in rows] for i in range(len(names))]
    kinds = [set(map(type, column)) for column in values]
    texts = [_column(column) if any(map(_is_real, of)) else list(map(cell, column)) for column, of in zip(values, kinds)]
    cells = [list(row) for row in zip(*texts)]
    numeric = [any(issubclass(kind, int) or _is_real(kind) for kind in of) for of in kinds]
    numeric = [n and not any(issubclass(kind, str | bool) for kind in of) for n, of in zip(numeric, kinds)]
    needed = columns.room_of_texts(names, cells)
    elastic = [not n and name not in whole for n, name in zip(numeric, names)]
    least = [max(NARROWEST, width_of(name)) if gives else needs for name, needs, gives in zip(names, needed, elastic)]
    widths = columns.narrowed(needed, least, width)
    if widths is None:
        return "\n".join(columns.records(names, cells, width))
    if width >= UNLIMITED:
        widths, cut = [min(w, MOST_PADDED) for w in widths], columns.as_it_is
    else:
        cut = fit
    fits = [cut] * len(names)
    lines = [columns.line(names, widths, numeric, fits), "  ".join("-" * w for w in widths)]
    return "\n".join([*lines, *(columns.line(row, widths, numeric, fits) for row in cells)])


def _column(values: Sequence[Any]) -> list[str]:
    """The values of one column as text; floats with the same number of decimals, as many as they need up to three."""
    floats = [float(v) for v in values if _is_real(type(v))]
    if not floats or not all(math.isfinite(v) and (v == 0 or 1e-3 <= abs(v) < 1e15) for v in floats):
        return [cell(v) for v in values]
    decimals = next(d for d in range(4) if d == 3 or all(abs(v - round(v, d)) < 5e-7 for v in floats))
    return [f"{v:.{decimals}f}" if _is_real(type(v)) else cell(v) for v in values]
