"""The rows of a query as CSV, JSON lines or Arrow, in batches as DuckDB gives them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from leadline.duck import duckdb
from leadline.errors import LeadlineError

# Rows of a batch. In Arrow a column of text holds less than 2^31 bytes a batch, and servers keep less than 2^20 of a statement.
BATCH = 2_048
INTEGERS = {f"{sign}{size}" for sign in ("", "u") for size in ("tinyint", "smallint", "integer", "bigint", "hugeint")}
FLOATS = {"float", "double"}
NESTED = {"list", "array", "struct", "map"}
# What COPY and spreadsheets need in quotes. A line with \. alone would end the data of COPY.
QUOTED = r"""[",\r\n]|^\s|\s$|^\\\.$"""


class Counted:
    """How many rows have gone by."""

    rows = 0


Writer = Callable[[duckdb.DuckDBPyRelation, Counted], Iterator[bytes]]


def checked(query: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Raises LeadlineError('query') where two columns have one name: readers keep only one of them, or refuse both."""
    names = query.columns
    if twice := next((name for name in names if names.count(name) > 1), None):
        hint = "give each a name: select a.ts as began, b.ts as ended"
        raise LeadlineError("query", f"two columns of the query are called {twice}", hint=hint)
    return query


def csv(query: duckdb.DuckDBPyRelation, counted: Counted) -> Iterator[bytes]:
    """As COPY of PostgreSQL and DuckDB read it: a header line; null is nothing, an empty text is "".

    Values are as in the table: nothing is put before what a spreadsheet would take for a formula.
    """
    fields = ", ',', ".join(_field(f"#{number}", kind.id) for number, kind in enumerate(query.types, 1))
    yield (",".join(map(_header, query.columns)) + "\n").encode()
    yield from _lines(query.project(f"concat({fields})"), counted)


def _header(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if not name or re.search(QUOTED, name) else name


def _field(value: str, kind: str) -> str:
    """SQL of one value as text. Floats have all digits that tell them apart; lists and objects are JSON, bytes \\x and hex."""
    if kind == "blob":
        return f"case when {value} is not null then '\\x' || lower(hex({value})) end"
    if kind in INTEGERS | FLOATS | {"boolean", "decimal"}:
        return f"{value}::varchar"
    return _quoted(f"to_json({value})::varchar" if kind in NESTED else f"{value}::varchar")


def _quoted(text: str) -> str:
    return f"""case when {text} = '' or regexp_matches({text}, '{QUOTED}') then '"' || replace({text}, '"', '""') || '"' else {text} end"""


def jsonl(query: duckdb.DuckDBPyRelation, counted: Counted) -> Iterator[bytes]:
    """An object for each line, with the values of `leadline sql --json`: integers with all digits, what is no finite number as null."""
    members = [f"{_literal(name)}, {_member(f'#{n}', kind.id)}" for n, (name, kind) in enumerate(zip(query.columns, query.types), 1)]
    yield from _lines(query.project(f"json_object({', '.join(members)})::varchar"), counted)


def _member(value: str, kind: str) -> str:
    """SQL of a value that JSON has, too."""
    if kind in FLOATS:
        return f"case when isfinite({value}) then {value} end"
    return f"lower(hex({value}))" if kind == "blob" else value


def _lines(query: duckdb.DuckDBPyRelation, counted: Counted) -> Iterator[bytes]:
    """DuckDB makes the lines, as Python would take twenty times as long."""
    while batch := query.fetchmany(BATCH):
        counted.rows += len(batch)
        yield "".join([f"{line}\n" for (line,) in batch]).encode()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def arrow(query: duckdb.DuckDBPyRelation, counted: Counted) -> Iterator[bytes]:
    """Arrow's IPC file format, which can be read from the middle."""
    return _arrow(query, counted, "new_file")


def arrow_stream(query: duckdb.DuckDBPyRelation, counted: Counted) -> Iterator[bytes]:
    """Arrow's IPC streaming format, which can be read through a pipe."""
    return _arrow(query, counted, "new_stream")


def need_arrow() -> None:
    """Raises LeadlineError('unsupported') with the command that installs what is missing."""
    if find_spec("pyarrow") is None:
        raise LeadlineError("unsupported", "Arrow needs the package pyarrow: pip install 'leadline[arrow]'")


def _arrow(query: duckdb.DuckDBPyRelation, counted: Counted, form: str) -> Iterator[bytes]:
    need_arrow()
    from pyarrow import ipc

    batches = query.to_arrow_reader(BATCH)
    parts = _Parts()
    with getattr(ipc, form)(parts, batches.schema) as writer:
        for batch in _told(batches):
            counted.rows += batch.num_rows
            writer.write_batch(batch)
            yield parts.taken()
    yield parts.taken()


def _told(batches: Any) -> Iterator[Any]:
    """As DuckDB would say it: of a query that fails after its first rows, pyarrow says that a file cannot be read."""
    try:
        yield from batches
    except OSError as e:
        raise duckdb.Error(str(e)) from e


class _Parts(io.RawIOBase):
    """A file that hands over what was written to it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._at += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._at

    def taken(self) -> bytes:
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole
