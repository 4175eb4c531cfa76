"""Rows as CSV, JSON lines and Arrow, read by what others read them with: DuckDB, Python's csv and json, pyarrow."""

from __future__ import annotations

import csv as csv_of_python
import importlib.util
import io
import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
from leadline.errors import LeadlineError
from leadline.export.rows import BATCH, Counted, Writer, arrow, arrow_stream, checked, csv, jsonl
from pyarrow import ipc

ODD = r"""
select * from (values
  (1, null, null, null::double, null::blob, null::integer[], null::boolean),
  (2, '', 'a "quoted", one', 0.1::double, '\xFF\x00'::blob, [1, null], true),
  (3, ' a', 'two' || chr(10) || 'lines' || chr(13) || chr(10), 'nan'::double, ''::blob, [], false),
  (9223372036854775807, '\.', 'NUL' || chr(0) || ' and ' || chr(1), '-inf'::double, 'a,b'::blob, [3], null),
  (-9223372036854775808, '=1+1', 'ключ 注文 🐘', 1e300::double, null, null, null),
  (9007199254740993, 'null', 'NULL', 5e-324::double, null, null, null)
) t(number, text, other, real, bytes, list, yes)
"""


def written(writer: Writer, sql: str) -> tuple[bytes, int]:
    """The file, and how many rows it is said to have."""
    with duckdb.connect(":memory:") as db:
        counted = Counted()
        return b"".join(writer(checked(db.sql(sql)), counted)), counted.rows


def rows(sql: str) -> list[dict[str, Any]]:
    with duckdb.connect(":memory:") as db:
        found = db.sql(sql)
        return [dict(zip(found.columns, row)) for row in found.fetchall()]


def test_csv_reads_back_as_it_was(tmp_path: Path) -> None:
    data, counted = written(csv, ODD)
    (tmp_path / "a.csv").write_bytes(data)
    types = {"number": "bigint", "text": "varchar", "other": "varchar", "real": "double", "bytes": "varchar", "list": "json"}
    types |= {"yes": "boolean"}
    read = rows(f"from read_csv('{tmp_path}/a.csv', header = true, columns = {types}, allow_quoted_nulls = false)")
    expected = rows(ODD)
    assert counted == len(read) == len(expected) == 6
    for one, other in zip(read, expected):
        for name in ("number", "text", "other", "yes"):
            assert one[name] == other[name], name
        assert repr(one["real"]) == repr(other["real"])
        assert one["bytes"] == (None if other["bytes"] is None else "\\x" + other["bytes"].hex())
        assert (None if one["list"] is None else json.loads(one["list"])) == other["list"]


def test_csv_has_nothing_for_null_and_quotes_for_an_empty_text() -> None:
    """dbeaver#4024, brimdata/super#5868: without the difference one cannot be read back."""
    assert written(csv, "select null as a, '' as b, 'x' as c, 0.5::double as \"d,\"\"\"")[0] == b'a,b,c,"d,"""\n,"",x,0.5\n'


def test_csv_is_that_of_python_too() -> None:
    data, _ = written(csv, ODD)
    read = list(csv_of_python.DictReader(io.StringIO(data.decode(), newline="")))
    assert [row["text"] for row in read] == [row["text"] or "" for row in rows(ODD)]
    assert [row["other"] for row in read] == [row["other"] or "" for row in rows(ODD)]


def test_json_lines_are_json_and_exact() -> None:
    """Not a number and infinity are none of JSON's: jeroen/jsonlite#281. Integers keep digits that a double has not."""
    data, counted = written(jsonl, ODD)
    lines = data.decode().split("\n")[:-1]

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    read = [json.loads(line, parse_constant=refuse) for line in lines]
    expected = rows(ODD)
    assert counted == len(read) == 6
    for one, other in zip(read, expected):
        assert (one["number"], one["text"], one["other"], one["list"], one["yes"]) == tuple(
            other[name] for name in ("number", "text", "other", "list", "yes")
        )
        assert one["bytes"] == (None if other["bytes"] is None else other["bytes"].hex())
    assert [one["real"] for one in read] == [None, 0.1, None, None, 1e300, 5e-324]
    assert b'"number":9007199254740993,' in data and b'"number":9223372036854775807,' in data


@pytest.mark.parametrize("stream", [False, True])
def test_arrow_keeps_types_and_values(stream: bool) -> None:
    data, counted = written(arrow_stream if stream else arrow, ODD)
    table = (ipc.open_stream if stream else ipc.open_file)(data).read_all()
    with duckdb.connect(":memory:") as db:
        expected = db.sql(ODD).to_arrow_table()
    assert table.schema == expected.schema and counted == table.num_rows == 6
    assert str(table.to_pylist()) == str(expected.to_pylist())
    assert table.schema.field("number").type == pyarrow.int64() and table.schema.field("bytes").type == pyarrow.binary()


@pytest.mark.parametrize("rows_", [0, 1, 23, BATCH, BATCH + 1, 3 * BATCH])
@pytest.mark.parametrize("writer", [csv, jsonl, arrow, arrow_stream])
def test_each_row_comes_once_and_in_order(rows_: int, writer: Writer) -> None:
    data, counted = written(writer, f"select range as n from range({rows_}) order by n")
    assert counted == rows_
    if writer is csv:
        assert data.decode().split() == ["n", *map(str, range(rows_))]
    elif writer is jsonl:
        assert [json.loads(line)["n"] for line in data.splitlines()] == list(range(rows_))
    else:
        table = (ipc.open_file if writer is arrow else ipc.open_stream)(data).read_all()
        assert table.column("n").to_pylist() == list(range(rows_))


@pytest.mark.parametrize("writer", [csv, jsonl, arrow])
def test_two_columns_of_one_name_are_refused(writer: Writer) -> None:
    with pytest.raises(LeadlineError, match="two columns of the query are called ts"):
        written(writer, "select 1 as ts, 2 as ts")


@pytest.mark.parametrize("sql", ["select 1 as a;", "select 1 as a -- the end", "describe select 1 as a", "with t as (select 1 a) from t"])
def test_any_form_of_a_query(sql: str) -> None:
    assert [written(writer, sql)[1] for writer in (csv, jsonl, arrow)] == [1, 1, 1]


def test_long_texts_of_a_batch_fit_into_arrow() -> None:
    """A column of text holds less than 2^31 bytes a batch: duckdb/duckdb#15486. A server keeps at most 1 MB of a statement."""
    assert BATCH * (2**20 - 1) < 2**31


def test_many_rows_take_little_memory() -> None:
    code = f"""
import resource, sys
sys.path[:0] = {sys.path!r}
from leadline.export import rows
from leadline.capture.reader import memory_database
db = memory_database()
for writer in (rows.csv, rows.jsonl, rows.arrow_stream):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = sum(map(len, writer(db.sql("select range as n, repeat('x', 300) as text from range(400000)"), rows.Counted())))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert size > 100_000_000 and grown < 90_000, (writer, size, grown)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_arrow_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> ModuleSpec | None:
        return None if name == "pyarrow" else find(name, *rest)

    monkeypatch.setattr("leadline.export.rows.find_spec", without)
    with pytest.raises(LeadlineError, match=r"needs the package pyarrow: pip install 'leadline\[arrow\]'") as told:
        written(arrow, "select 1 as a")
    assert told.value.kind == "unsupported"
