"""What `leadline rows -o` writes: types, values that Parquet has no type for, order, memory, damaged pages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Server, running
from leadline._core.rows import RowScan
from leadline.cli import run
from test_rows import told

MAJOR = 18
TYPES = {
    "a_bool": ("bool", "true", "BOOLEAN"),
    "a_int2": ("int2", "1", "SMALLINT"),
    "a_int4": ("int4", "1", "INTEGER"),
    "a_int8": ("int8", "1", "BIGINT"),
    "a_oid": ("oid", "4294967295", "UINTEGER"),
    "a_xid8": ("xid8", "'18446744073709551615'", "UBIGINT"),
    "a_float4": ("float4", "'NaN'", "FLOAT"),
    "a_float8": ("float8", "'-Infinity'", "DOUBLE"),
    "a_decimal": ("numeric(12,2)", "-1234567890.12", "DECIMAL(12,2)"),
    "a_wide": ("numeric(39,0)", "1", "VARCHAR"),
    "a_numeric": ("numeric", "'NaN'", "VARCHAR"),
    "a_date": ("date", "'4713-01-01 BC'", "DATE"),
    "a_time": ("time", "'23:59:59.999999'", "TIME"),
    "a_timestamp": ("timestamp", "'0044-03-15 12:00 BC'", "TIMESTAMP"),
    "a_timestamptz": ("timestamptz", "'294246-12-31 23:59:59+00'", "TIMESTAMP WITH TIME ZONE"),
    "a_uuid": ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "UUID"),
    "a_bytea": ("bytea", "'\\x00ff'", "BLOB"),
    "a_text": ("text", "'x'", "VARCHAR"),
    "a_jsonb": ("jsonb", "'{\"a\": 1}'", "VARCHAR"),
    "a_interval": ("interval", "'1 day'", "VARCHAR"),
    "a_array": ("int[]", "'{1,2}'", "VARCHAR"),
    "a_domain": ("e_size", "5", "INTEGER"),
}
# What no type of Parquet holds, in columns that have one otherwise.
UNFIT = {
    "a_date": ("date", ["'infinity'", "'-infinity'"]),
    "a_timestamp": ("timestamp", ["'infinity'", "'-infinity'", "'294276-12-31 23:59:59.999999'"]),
    "a_timestamptz": ("timestamptz", ["'-infinity'"]),
    "a_time": ("time", ["'24:00'"]),
    "a_decimal": ("numeric(12,2)", ["'NaN'"]),
}


@pytest.fixture(scope="module")
def server(servers: Callable[[int], Server]) -> Server:
    return servers(MAJOR)


def scan(server: Server, relation: str) -> RowScan:
    return RowScan(str(server.private.data_dir), relation=relation, database="postgres")


def export(server: Server, relation: str, out: Path, threads: int = 2) -> tuple[int, list[str]]:
    return scan(server, relation).export(str(out), threads, None)


def fresh_table(connection: Any, name: str, columns: str) -> None:
    connection.execute(f"drop table if exists {name}")
    connection.execute(f"create table {name} ({columns}) with (autovacuum_enabled = off)")


def test_each_type_is_the_one_that_parquet_has_for_it(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    with server.connect() as connection:
        connection.execute("drop domain if exists e_size cascade")
        connection.execute("create domain e_size as int check (value > 0)")
        fresh_table(connection, "e_types", ", ".join(f"{name} {of[0]}" for name, of in TYPES.items()))
        connection.execute(f"insert into e_types values ({', '.join(of[1] for of in TYPES.values())})")
        connection.execute("insert into e_types (a_bool) values (null)")
        connection.execute("checkpoint")
    assert export(server, "e_types", out) == (2, [])
    with duckdb.connect() as reader:
        types = {row[0]: row[1] for row in reader.execute(f"describe select * from '{out}'").fetchall()}
        first, second = reader.execute(f"select * exclude (ctid, a_timestamp, a_timestamptz, a_date) from '{out}'").fetchall()
        before_christ = reader.execute(f"select a_date::varchar, a_timestamp::varchar, year(a_timestamptz) from '{out}'").fetchone()
    assert types == {"ctid": "VARCHAR"} | {name: of[2] for name, of in TYPES.items()}
    assert before_christ == ("4713-01-01 (BC)", "0044-03-15 (BC) 12:00:00", 294246)
    assert set(second) == {None}
    assert list(map(str, first[:6])) == ["True", "1", "1", "1", "4294967295", "18446744073709551615"]
    assert list(map(str, first[6:11])) == ["nan", "-inf", "-1234567890.12", "1", "NaN"]


def test_a_column_with_a_value_that_does_not_fit_is_text_and_only_that(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    with server.connect() as connection:
        columns = {"n": "int", **{name: of[0] for name, of in UNFIT.items()}, "other": "date"}
        # Enough rows before those that do not fit that row groups were written already.
        for name, (_, values) in UNFIT.items():
            fresh_table(connection, "e_unfit", ", ".join(f"{c} {kind}" for c, kind in columns.items()))
            connection.execute(
                "insert into e_unfit select i, '2024-01-01', '2024-01-01', '2024-01-01', '12:00', 1.5, '2024-01-01'"
                " from generate_series(1, 20000) i"
            )
            for value in values:
                connection.execute(f"insert into e_unfit (n, {name}) values (0, {value})")
            connection.execute("checkpoint")
            assert export(server, "e_unfit", out) == (20000 + len(values), [name])
            with duckdb.connect() as reader:
                types = {row[0]: row[1] for row in reader.execute(f"describe select * from '{out}'").fetchall()}
                assert [c for c in columns if types[c] == "VARCHAR"] == [name]
                ours = reader.execute(f"select {name} from '{out}' where n in (0, 1, 20000)").fetchall()
            connection.execute("set timezone = 'UTC'")
            assert [list(row) for row in ours] == told(connection, f"select {name} from e_unfit where n in (0, 1, 20000)")


# How a column's values come about from the row number i, and how both engines print one; more rows than a page and a row group have.
ENCODED = {
    "number": (
        "bigint",
        "case when i % 1000 = 7 then (case when i % 2000 = 7 then -1 else 1 end) * 9223372036854775807 else i::bigint * i end",
        "{}::text",
    ),
    "small": ("smallint", "(i % 65536 - 32768)::int", "{}::text"),
    "unsigned": ("oid", "(4294967295 - i)::bigint::oid", "{}::text"),
    "few": ("text", "'value ' || i % 5", "{}"),
    "few_then_many": ("text", "case when i < 30000 then 'same' else repeat(md5(i::text), 4) end", "{}"),
    "packed": ("text", "repeat('x', 300) || i", "{}"),
    "noise": ("text", "md5(i::text)", "{}"),
    "other_letters": ("text", "case when i % 3 = 0 then 'übergröße ' || i else '' end", "{}"),
    "half_null": ("int", "case when i % 2 = 0 then i end", "{}::text"),
    "first_null": ("text", "case when i > 20000 then 'a' || i end", "{}"),
    "all_null": ("timestamptz", "null", "{}::text"),
    "money_like": ("numeric(9,2)", "(i - 35000) * 1.37", "{}::text"),
    "medium": ("numeric(18,4)", "(35000 - i) * 1234567.8901", "{}::text"),
    "wide": ("numeric(38,5)", "(i - 35000) * 123456789012345678901234567.12345", "{}::text"),
    "flag": ("bool", "case when i % 7 > 0 then i % 3 = 0 end", "{}::text"),
    "key": ("uuid", "case when i % 5 > 0 then md5(i::text)::uuid end", "{}::text"),
    "bytes": ("bytea", "decode(repeat(md5(i::text), i % 4), 'hex')", "{}"),
    "day": ("date", "date '1600-01-01' + i * 3", "{}::text"),
    "moment": ("timestamp", "timestamp '2024-01-01' + i * interval '1.37 second'", "{}"),
}


def test_every_way_of_encoding_gives_the_values_back(server: Server, tmp_path: Path) -> None:
    rows, out = 70_000, tmp_path / "t.parquet"
    with server.connect() as connection:
        fresh_table(connection, "e_encoded", "i int, " + ", ".join(f"{name} {of[0]}" for name, of in ENCODED.items()))
        values = ", ".join(of[1] for of in ENCODED.values())
        connection.execute(f"insert into e_encoded select i, {values} from generate_series(1, {rows}) i")
        connection.execute("checkpoint")
        shown = {name: of[2].format(name) for name, of in ENCODED.items()}
        by_server = {"bytes": "encode(bytes, 'hex')", "moment": "(extract(epoch from moment) * 1000000)::bigint::text"}
        by_duckdb = {"bytes": "lower(hex(bytes))", "moment": "epoch_us(moment)::text"}
        query = "select " + ", ".join(f"count({n}), md5(string_agg({{{n}}}, ',' order by i))" for n in shown) + " from {source}"
        theirs = told(connection, query.format(source="e_encoded", **shown | by_server))
        ends = told(connection, "select min(number), max(number), min(day), max(day) from e_encoded")
    assert export(server, "e_encoded", out) == (rows, [])
    with duckdb.connect() as reader:
        ours = reader.execute(query.format(source=f"'{out}'", **shown | by_duckdb)).fetchall()
        about = f"from parquet_metadata('{out}')"
        encodings = dict(reader.execute(f"select path_in_schema, string_agg(encodings || compression) {about} group by 1").fetchall())
        ends_of = "min(stats_min_value) filter (path_in_schema = '{0}'), max(stats_max_value) filter (path_in_schema = '{0}')"
        # All of them are text here, and the least of the numbers is a negative one.
        ours_ends = reader.execute(f"select {ends_of.format('number')}, {ends_of.format('day')} {about}").fetchall()
        nulls = dict(reader.execute(f"select path_in_schema, sum(stats_null_count) {about} group by 1").fetchall())
        places = reader.execute(f"select count(distinct ctid), min(ctid) from '{out}'").fetchone()
        [groups] = reader.execute(f"select count(distinct row_group_id) {about}").fetchone() or (0,)
    for (name, of), (count, digest), (want_count, want) in zip(ENCODED.items(), pairs(ours[0]), pairs(theirs[0])):
        assert (name, str(count), digest) == (name, want_count, want), of
    both = ("RLE_DICTIONARY", "DELTA_LENGTH_BYTE_ARRAY")
    assert both[0] in encodings["few"] and all(one in encodings["few_then_many"] for one in both), encodings
    assert both[1] in encodings["packed"] and both[1] in encodings["noise"], encodings
    assert "LZ4_RAW" in encodings["packed"] and "LZ4_RAW" not in encodings["noise"], encodings
    assert [str(end) for end in ours_ends[0]] == ends[0]
    assert (nulls["all_null"], nulls["first_null"], nulls["number"]) == (rows, 20_000, 0)
    assert places == (rows, "(0,1)") and groups > 1


def pairs(flat: Any) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2]))


def test_several_such_columns_and_what_the_command_says(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.parquet"
    with server.connect() as connection:
        fresh_table(connection, "e_both", "n int, d date, t timestamp, x numeric(5,1), fine date")
        connection.execute("insert into e_both values (1, 'infinity', '2024-01-01', 1, '2024-01-01')")
        connection.execute("insert into e_both select i, '2024-01-01', '2024-01-01', 1, null from generate_series(1, 20000) i")
        connection.execute("insert into e_both values (2, '2024-01-01', 'infinity', 'NaN', null)")
        connection.execute("checkpoint")
    command = ["rows", str(server.private.data_dir), "e_both", "--database", "postgres", "-o", str(out)]
    assert run([*command, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["rows"], made["as_text"]) == (20002, ["d", "t", "x"])
    assert run([*command, "--force"]) == 0
    assert "not hold all values (such as infinity): d, t, x" in capsys.readouterr().err
    with duckdb.connect() as reader:
        assert reader.execute(f"select d, t, x from '{out}' where n = 2 and d = 'infinity' or x = 'NaN'").fetchall() == [
            ("2024-01-01", "infinity", "NaN")
        ]


def test_rows_come_in_order_whatever_the_number_of_threads(server: Server, tmp_path: Path) -> None:
    with server.connect() as connection:
        fresh_table(connection, "e_order", "n int, pad text")
        connection.execute("insert into e_order select i, repeat('x', 400) from generate_series(1, 20000) i")
        connection.execute("delete from e_order where n % 3 = 0")
        connection.execute("checkpoint")
    files = [tmp_path / f"{threads}.csv" for threads in (1, 2, 5)]
    for threads, out in zip((1, 2, 5), files):
        assert export(server, "e_order", out, threads) == (13334, [])
    lines = files[0].read_text().splitlines()
    assert [line.split(",")[2] for line in lines[1:]] == [str(n) for n in range(1, 20001) if n % 3]
    assert files[1].read_text() == files[2].read_text() == files[0].read_text()


def test_dead_rows_are_written_with_where_they_are(server: Server, tmp_path: Path) -> None:
    with server.connect() as connection:
        fresh_table(connection, "e_dead", "n int, t text")
        connection.execute("insert into e_dead select i, repeat('x', 3000) from generate_series(1, 10) i")
        connection.execute("delete from e_dead where n > 8")
        connection.execute("checkpoint")
        [[path]] = told(connection, "select pg_relation_filepath('e_dead')")
        xmins = {xmin for [xmin] in told(connection, "select xmin from e_dead")}
    data_dir = server.private.data_dir
    for kind in ("csv", "parquet"):
        out = tmp_path / f"t.{kind}"
        opened = RowScan(str(data_dir), relation="e_dead", database="postgres", dead=True)
        assert opened.export(str(out), 2, None) == (10, [])
        with duckdb.connect() as reader:
            query = f"select ctid, file, block, lp, xmin, xmax <> 0, status, n, length(t) from '{out}' order by n"
            rows = reader.execute(query).fetchall()
        assert [row[7:] for row in rows] == [(n, 3000) for n in range(1, 11)]
        assert [row[5:7] for row in rows] == [(False, "live")] * 8 + [(True, "dead")] * 2
        assert {row[1] for row in rows} == {f"{data_dir}/{path}"} and {str(row[4]) for row in rows} == xmins
        assert all(row[0] == f"({row[2]},{row[3]})" for row in rows)


def test_an_export_can_be_stopped_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    def stop(done: int, blocks: int) -> None:
        raise KeyboardInterrupt

    for kind in ("csv", "parquet"):
        with pytest.raises(KeyboardInterrupt):
            scan(server, "pg_proc").export(str(tmp_path / f"t.{kind}"), 2, stop)
    assert list(tmp_path.iterdir()) == []


PEAK = """
import sys
from leadline._core.rows import RowScan
count, _ = RowScan(sys.argv[1], relation=sys.argv[2], database="postgres").export(sys.argv[3], 2, None)
print(count, next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_memory_does_not_grow_with_the_table(server: Server, tmp_path: Path) -> None:
    """Four times the rows, inline and outside, four times the bytes in the file; the peak stays where it was."""
    peaks: dict[tuple[str, int], int] = {}
    with server.connect() as connection:
        for megabytes in (40, 160):
            fresh_table(connection, "e_large", "n int, inside text, outside text")
            connection.execute("alter table e_large alter outside set storage external")
            # 1 kB in the row, 7 kB outside of it, none of which can be packed much.
            text = "(select string_agg(md5((i * 500 + j)::text), '') from generate_series(1, {}) j)"
            fill = f"insert into e_large select i, {text.format(32)}, {text.format(224)} from generate_series(1, {{}}) i"
            connection.execute(fill.format(megabytes * 1024 // 8))
            connection.execute("checkpoint")
            for kind in ("csv", "parquet"):
                command = [sys.executable, "-c", PEAK, str(server.private.data_dir), "e_large", str(tmp_path / f"t.{kind}")]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                count, peak = map(int, done.stdout.split())
                assert count == megabytes * 1024 // 8
                peaks[kind, megabytes] = peak
        connection.execute("drop table e_large")
    for kind in ("csv", "parquet"):
        assert peaks[kind, 160] < peaks[kind, 40] + 40 * 1024, peaks


def test_rows_of_a_page_with_a_wrong_checksum_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(MAJOR) as server:
        with server.connect() as connection:
            [[checksums]] = told(connection, "show data_checksums")
            assert checksums == "on"
            connection.execute("create table damaged as select i n, repeat('x', 100) pad from generate_series(1, 1000) i")
            connection.execute("checkpoint")
            [[path]] = told(connection, "select pg_relation_filepath('damaged')")
        server.private.stop()
        data_dir = server.private.data_dir
        file = Path(data_dir) / path
        data = bytearray(file.read_bytes())
        data[3 * 8192 - 1] ^= 1  # in the pad of the first row of the third page
        file.write_bytes(data)
        command = ["rows", str(data_dir), "damaged", "--database", "postgres", "-o", str(tmp_path / "t.csv"), "--json"]
        assert run(command) == 1
        captured = capsys.readouterr()
        assert json.loads(captured.out)["rows"] == 1000
        assert "warning: 1 page with a wrong checksum; the rows in them are printed as stored" in captured.err
