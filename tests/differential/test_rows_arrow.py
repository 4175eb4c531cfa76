"""`leadline rows` as Arrow. Oracles: the same rows as Parquet, which pyarrow reads, and COPY of the server, which DuckDB reads."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
from conftest import Server
from leadline._core.rows import RowScan
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.files.arrow_rows import arrow_rows
from page_tasks import example_with
from pyarrow import ipc, parquet

# Columns: type of PostgreSQL, two values of it, and the types of Arrow and DuckDB.
TYPES = {
    "a_bool": ("bool", "true", "false", pyarrow.bool_(), "BOOLEAN"),
    "a_int2": ("int2", "-32768", "1", pyarrow.int16(), "SMALLINT"),
    "a_int4": ("int4", "2147483647", "1", pyarrow.int32(), "INTEGER"),
    "a_int8": ("int8", "9223372036854775807", "1", pyarrow.int64(), "BIGINT"),
    "a_oid": ("oid", "4294967295", "1", pyarrow.uint32(), "UINTEGER"),
    "a_float4": ("float4", "'NaN'", "0.1", pyarrow.float32(), "FLOAT"),
    "a_float8": ("float8", "'-Infinity'", "0.1", pyarrow.float64(), "DOUBLE"),
    "a_decimal": ("numeric(12,2)", "-1234567890.12", "0", pyarrow.decimal128(12, 2), "DECIMAL(12,2)"),
    "a_wide": ("numeric(38,6)", "99999999999999999999999999999999.999999", "-0.000001", pyarrow.decimal128(38, 6), "DECIMAL(38,6)"),
    "a_numeric": ("numeric", "12.50", "'NaN'", pyarrow.string(), "VARCHAR"),
    "a_date": ("date", "'2024-02-29'", "'1900-01-01'", pyarrow.date32(), "DATE"),
    "a_time": ("time", "'23:59:59.999999'", "'00:00'", pyarrow.time64("us"), "TIME"),
    "a_timestamp": ("timestamp", "'2024-02-29 12:34:56.789012'", "'1969-12-31 23:59:59.9'", pyarrow.timestamp("us"), "TIMESTAMP"),
    "a_tz": ("timestamptz", "'2024-02-29 12:34:56+02'", "'1900-01-01 00:00+00'", pyarrow.timestamp("us", "UTC"), "TIMESTAMPTZ"),
    "a_bytea": ("bytea", "'\\x00ff'", "''", pyarrow.binary(), "BLOB"),
    "a_text": ("text", "E'a,\"b\"\\nü'", "''", pyarrow.string(), "VARCHAR"),
    "a_json": ("jsonb", "'{\"a\": [1, null]}'", "'null'", pyarrow.string(), "VARCHAR"),
    "a_array": ("int[]", "'{1,null}'", "'{}'", pyarrow.string(), "VARCHAR"),
}


@pytest.fixture(scope="module")
def server(servers: Callable[[int], Server]) -> Server:
    return servers(18)


def fill(server: Server, table: str, columns: str, rows: str) -> None:
    with server.connect() as connection:
        connection.execute(f"drop table if exists {table}")
        connection.execute(f"create table {table} ({columns}) with (autovacuum_enabled = off)")
        connection.execute(f"insert into {table} {rows}")
        connection.execute("checkpoint")


def written(server: Server, table: str, out: Path, *more: str) -> pyarrow.Table:
    """What the command writes into a file of this name, read by pyarrow."""
    assert run(["rows", str(server.private.data_dir), table, "--database", "postgres", "-o", str(out), "--force", *more]) == 0
    if out.suffix == ".parquet":
        return parquet.read_table(out)
    content = out.read_bytes()
    return (ipc.open_file(content) if out.suffix == ".arrow" else ipc.open_stream(content)).read_all()


def printed(server: Server, table: str, *more: str) -> pyarrow.Table:
    """What the command prints."""
    line = [sys.executable, "-m", "leadline", "rows", str(server.private.data_dir), table, "--database", "postgres", "--arrow", *more]
    return ipc.open_stream(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout).read_all()


def copied(server: Server, table: str, types: dict[str, str], path: Path) -> duckdb.DuckDBPyRelation:
    """What COPY of the server writes, as DuckDB reads it."""
    with server.connect() as connection, connection.cursor().copy(f"copy {table} to stdout (format csv)") as parts:
        path.write_bytes(b"".join(parts))
    read = {name: f"unhex({name}[3:])" if kind == "BLOB" else f"{name}::{kind}" for name, kind in types.items()}
    texts = ", ".join(f"'{name}': 'varchar'" for name in types)
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    options = f"header=false, delim=',', quote='\"', escape='\"', new_line='\\n', allow_quoted_nulls=false, columns={{{texts}}}"
    values = ", ".join(f"{value} as {name}" for name, value in read.items())
    return db.sql(f"select {values} from read_csv('{path}', {options})")


def as_texts(relation: duckdb.DuckDBPyRelation) -> list[tuple[str | None, ...]]:
    """DuckDB's text of each value, as NaN is not equal to itself in Python."""
    return relation.project("columns(*)::varchar").order("all").fetchall()


def duckdb_of(table: pyarrow.Table) -> duckdb.DuckDBPyRelation:
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    return db.from_arrow(table.drop_columns(["ctid"]))


def test_each_type_is_the_one_of_parquet_and_values_are_those_of_copy(server: Server, tmp_path: Path) -> None:
    nulls = ", ".join("null" for _ in TYPES)
    rows = ", ".join(f"({', '.join(of[n] for of in TYPES.values())})" for n in (1, 2))
    fill(server, "ar_types", ", ".join(f"{name} {of[0]}" for name, of in TYPES.items()), f"values {rows}, ({nulls})")
    stream = written(server, "ar_types", tmp_path / "t.arrows")
    assert dict(zip(stream.schema.names, stream.schema.types)) == {"ctid": pyarrow.string(), **{name: of[3] for name, of in TYPES.items()}}
    as_parquet = written(server, "ar_types", tmp_path / "t.parquet")
    assert stream.schema == as_parquet.schema
    assert str(stream.to_pylist()) == str(as_parquet.to_pylist())
    assert as_texts(duckdb_of(stream)) == as_texts(copied(server, "ar_types", {n: of[4] for n, of in TYPES.items()}, tmp_path / "copy"))
    assert str(written(server, "ar_types", tmp_path / "t.arrow").to_pylist()) == str(stream.to_pylist())
    assert str(printed(server, "ar_types").to_pylist()) == str(stream.to_pylist())


def test_a_uuid_is_one(server: Server, tmp_path: Path) -> None:
    fill(server, "ar_uuid", "u uuid", "values ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'), (null)")
    found = written(server, "ar_uuid", tmp_path / "t.arrows")
    assert found == written(server, "ar_uuid", tmp_path / "t.parquet")
    assert as_texts(duckdb_of(found)) == as_texts(copied(server, "ar_uuid", {"u": "UUID"}, tmp_path / "copy"))


def test_many_rows_come_in_batches_that_do_not_grow_with_the_table(server: Server, tmp_path: Path) -> None:
    """60 MB of texts of 200 kB that cannot be compressed: by their number alone, all of them would be one batch."""
    text = "(select string_agg(md5(i::text || j::text), '') from generate_series(1, 6250) j)"
    fill(server, "ar_wide", "i int, t text", f"select i, {text} from generate_series(1, 300) i")
    with server.connect() as connection:
        expected = connection.execute("select i, md5(t) from ar_wide order by 1").fetchall()
    found = printed(server, "ar_wide")
    assert duckdb_of(found).project("i, md5(t)").order("1").fetchall() == expected
    batches = found.to_batches()
    assert sum(batch.nbytes for batch in batches) > 60_000_000
    assert max(batch.nbytes for batch in batches) < 20_000_000


def test_texts_that_were_compressed_well_come_in_many_batches(server: Server) -> None:
    """200 MB in one row group, as Parquet and TOAST compress them."""
    fill(server, "ar_dense", "i int, t text", "select i, i || repeat('x', 1000000) from generate_series(1, 200) i")
    batches = printed(server, "ar_dense").to_batches()
    assert [i for batch in batches for i in batch["i"].to_pylist()] == list(range(1, 201))
    assert sum(batch.nbytes for batch in batches) > 200_000_000
    assert max(batch.nbytes for batch in batches) < 80_000_000


def test_some_rows_and_columns(server: Server, tmp_path: Path) -> None:
    fill(server, "ar_many", "i int, t text", "select i, 'x' || i from generate_series(1, 100000) i")
    some = ("--columns", "t", "--where", "i > 99000", "--limit", "3")
    found = printed(server, "ar_many", *some)
    assert (found.column_names, found["t"].to_pylist()) == (["ctid", "t"], ["x99001", "x99002", "x99003"])
    whole = written(server, "ar_many", tmp_path / "t.arrows", "--threads", "2")
    assert whole["i"].to_pylist() == list(range(1, 100_001))
    dead = written(server, "ar_many", tmp_path / "t.arrow", "--dead", "--limit", "1")
    assert (dead.num_rows, dead.column_names[0], dead.column_names[-2:]) == (1, "ctid", ["i", "t"])
    assert "status" in dead.column_names


def test_an_empty_table_has_its_columns(server: Server, tmp_path: Path) -> None:
    fill(server, "ar_empty", "i int, d date", "select 1, null where false")
    found = printed(server, "ar_empty")
    assert (found.num_rows, found.schema.types) == (0, [pyarrow.string(), pyarrow.int32(), pyarrow.date32()])


def test_a_column_whose_type_cannot_hold_a_value_is_text(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(server, "ar_unfit", "i int, d date", "values (1, '2024-01-01'), (2, 'infinity')")
    found = written(server, "ar_unfit", tmp_path / "t.arrows")
    assert found.drop_columns(["ctid"]).to_pydict() == {"i": [1, 2], "d": ["2024-01-01", "infinity"]}
    assert "the type of the file cannot hold all values (such as infinity): d" in capsys.readouterr().err
    written(server, "ar_unfit", tmp_path / "t.arrows", "--json")
    assert json.loads(capsys.readouterr().out)["as_text"] == ["d"]


def test_the_function_gives_a_reader(server: Server, tmp_path: Path) -> None:
    fill(server, "ar_reader", "i int, n numeric(9,2)", "select i, i / 100.0 from generate_series(1, 1000) i")
    scan = RowScan(str(server.private.data_dir), relation="ar_reader", database="postgres", conditions="i > 500")
    reader = arrow_rows(scan)
    assert reader.schema == pyarrow.schema([("ctid", pyarrow.string()), ("i", pyarrow.int32()), ("n", pyarrow.decimal128(9, 2))])
    assert duckdb.connect().from_arrow(reader).aggregate("count(*), sum(i), sum(n)::varchar").fetchall() == [(500, 375250, "3752.50")]
    assert scan.status()["unread_rows"] == 0


def test_the_examples_of_the_guide_run(server: Server, tmp_path: Path) -> None:
    with server.connect() as connection:
        connection.execute("create schema if not exists shop")
    fill(server, "shop.orders", "id int, total numeric(9,2), paid date", "select i, i * 1.5, null from generate_series(1, 3) i")
    script, data_dir = tmp_path / "load.py", str(server.private.data_dir)
    script.write_text(example_with("sys.stdin.buffer", {}, "rows.md"))
    line = [sys.executable, "-m", "leadline", "rows", data_dir, "shop.orders", "--database", "postgres", "--arrow"]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as rows:
        loaded = subprocess.run([sys.executable, str(script)], stdin=rows.stdout, capture_output=True, text=True, check=True)
    assert (rows.returncode, loaded.stdout) == (0, "3 ['ctid', 'id', 'total', 'paid']\n")
    places = {"/var/lib/postgresql/18/main": data_dir, "public.orders": "shop.orders", 'database="shop"': 'database="postgres"'}
    script.write_text(example_with("arrow_rows(scan)", places, "rows.md"))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[(3, Decimal('9.00'))]\n0 rows could not be read\n"


def test_a_reader_that_has_enough_is_no_error(server: Server) -> None:
    """As of `head -c 100`: more than a pipe holds is behind it."""
    fill(server, "ar_more", "i int, t text", "select i, md5(i::text) from generate_series(1, 20000) i")
    line = [sys.executable, "-m", "leadline", "rows", str(server.private.data_dir), "ar_more", "--database", "postgres", "--arrow"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as rows:
        assert rows.stdout is not None and rows.stderr is not None
        assert len(rows.stdout.read(100)) == 100
        rows.stdout.close()
        said = rows.stderr.read().decode()
    assert rows.returncode == 0, said
    assert "Error" not in said and "Traceback" not in said


def test_without_pyarrow_the_error_says_what_to_install(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> ModuleSpec | None:
        return None if name == "pyarrow" else find(name, *rest)

    monkeypatch.setattr("leadline.files.arrow_rows.find_spec", without)
    out = tmp_path / "t.arrows"
    assert run(["rows", str(server.private.data_dir), "pg_class", "--database", "postgres", "-o", str(out)]) == 2
    assert "pip install 'leadline[arrow]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LeadlineError, match="Arrow needs the package pyarrow"):
        arrow_rows(RowScan(str(server.private.data_dir), relation="pg_class", database="postgres"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--arrow", "-o", "OUT.arrows"], "--arrow prints rows, and -o writes them to a file"),
        (["-o", "OUT.feather"], "the output name must end in .csv, .parquet, .arrow or .arrows"),
        (["-o", "NONE/t.arrows"], "cannot write the rows: No such file or directory"),
    ],
)
def test_what_cannot_be_is_said(
    server: Server, tmp_path: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [part.replace("OUT", str(tmp_path / "t")).replace("NONE", str(tmp_path / "none")) for part in more]
    assert run(["rows", str(server.private.data_dir), "pg_class", "--database", "postgres", *places]) == 2
    assert f"error: {said}\n" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
