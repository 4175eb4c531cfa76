"""leadline rows against the server that wrote the files: every value of every supported type, of each major."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, running
from leadline._core.rows import RowScan
from leadline.cli import run
from servers import MAJORS

TEXT = "string_agg(md5(i::text), '')"
# type: expressions of its values, each a row; since: the first major that has them
VALUES: dict[str, list[str]] = {
    "bool": ["true", "false"],
    "int2": ["-32768", "7"],
    "int4": ["-2147483648", "2147483647"],
    "int8": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["4294967295"],
    "float4": ["1.5", "1e6", "'NaN'", "0.1", "-1.17e-38"],
    "float8": ["0.1", "1e15", "123456789012345", "'-Infinity'", "1e-5", "-0.0", "1.7976931348623157e308", "1e23", "9007199254740993"],
    "numeric": ["0", "12.50", "-0.0005", "'NaN'", "1e100", "12345678901234567890.123456789", "-1e-30", "0.00", "10000", "1e-1000"],
    "text": ["''", "'a,b \"c\"'", f"(select {TEXT} from generate_series(1, 400) i)", "repeat('long ', 4000)"],
    "varchar(9)": ["'naïve'"],
    "char(6)": ["'ab'"],
    '"char"': ["'x'", "''"],
    "name": ["'some_name'"],
    "json": ["'{\"a\": [1, null]}'"],
    "xml": [
        "'<a>1</a>'",
        "'<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>' || e'\\n' || '<a/>'",
        "'<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\" ?><a/>'",
        "e'<?xml\\n version = ''1.1'' ?>\\n<a/>'",
        "e'\\n\\n<?xml-stylesheet b?><a/>'",
    ],
    "bytea": ["'\\x00ff10'", "''"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "date": ["'2024-02-29'", "'0044-03-15 BC'", "'infinity'", "'-infinity'", "'1999-12-31'", "'5874897-12-31'"],
    "time": ["'23:59:59.123456'", "'24:00'", "'00:00:00.5'"],
    "timetz": ["'12:34:56.7+05:30'", "'01:02:03-08'", "'01:02:03+01:02:03'"],
    "timestamp": ["'2024-02-29 12:34:56.789'", "'0001-01-01 00:00:00 BC'", "'infinity'", "'1999-12-31 23:59:59.999999'"],
    "timestamptz": ["'2024-02-29 12:34:56+02'", "'-infinity'", "'4713-01-01 00:00:00+00 BC'"],
    "interval": ["'1 year -2 mons +3 days -04:05:06.7'", "'0'", "'-1 day 30:00:00.000001'", "'178000000 years'", "'-14 months'"],
    "inet": ["'10.1.2.3'", "'10.1.2.3/8'", "'::1'", "'::ffff:1.2.3.4'", "'2001:db8::1:0:0:1/64'", "'::'", "'::1.2.3.4'", "'1::'"],
    "cidr": ["'10.0.0.0/8'", "'2001:db8::/32'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "macaddr8": ["'08:00:2b:01:02:03:04:05'"],
    "money": ["'1234567.89'", "'-0.05'"],
    "bit(11)": ["B'10110011101'"],
    "varbit": ["B''", "B'101'"],
    "jsonb": [
        "'{\"b\": [1, -2.50, {\"x\": null}], \"a\": \"q\\\"\\\\\\n\\u0001é\", \"c\": true}'",
        "'7'",
        "'[]'",
        "'{}'",
        "'\"s\"'",
        "(select jsonb_agg(jsonb_build_object('k' || i, i * 1.1, 'n', array[i, null])) from generate_series(1, 200) i)",
    ],
    "int4[]": ["'{1,NULL,3}'", "'{}'", "'{{1,2},{3,4}}'", "'[2:3]={7,8}'", "'[0:1][-1:0]={{1,2},{3,4}}'"],
    "text[]": ["array['a b', '', 'null', 'x\"y\\z', '{', null, 'plain']"],
    "numeric[]": ["'{1.5,-2,NaN}'"],
    "box[]": ["array[box '(1,2),(3,4)', box '(0,0),(1,1)']"],
    "r_mood": ["'sad'", "'over the moon'"],
    "r_mood[]": ["'{sad,\"over the moon\"}'"],
    "r_pair": ["row(1, 'a \"b\"', null)", "row(null, '', '{1,2}')"],
    "r_pair[]": ["array[row(1, 'x', '{3}')::r_pair, null]"],
    "r_positive": ["5"],
    "int4range": ["'[1,5)'", "'empty'", "'(,)'", "'[3,)'"],
    "numrange": ["'(1.5,2.25]'"],
    "tstzrange": ["'[2024-01-01 00:00+00,2024-01-02 00:00+00)'"],
    "r_textrange": ["'[a b,\"c,d\"]'"],
    "tsvector": ["'a:1A fat:2B,4C cat:5D ''it''''s'''", "''"],
    "tsquery": [
        "'fat:*AB & !(b | c) | d <-> (e <-> f) <3> !''it''''s \\\\x'''",
        "''",
        "'(a | b) & (c & d) & !!e'",
        "'a <-> b <-> (c <2> (d | e))'",
    ],
    "jsonpath": [
        "'$.a[*] ? (@ > 2 && (@.b == \"x\\ty\" || !exists(@.c)))'",
        "'strict $.*.**{2 to last}.** [last, 1 to $v, 0].\"k k\".size()'",
        "'-(1 + $.a * 2 - 3) / (4 % +$)'",
        "'($ like_regex \"^a\" flag \"iq\") is unknown'",
        "'$.d.datetime(\"HH24\").type() starts with \"t\"'",
        "'null == 1.5 || true != false'",
        "'$.a.**{last}.**{3} ? (@.keyvalue().key >= $\"w w\") .ceiling()'",
    ],
    "refcursor": ["'some portal'"],
    "txid_snapshot": ["'10:20:10,14,15'", "'7:7:'"],
    "citext": ["'As it Is'"],
    "citext[]": ["'{A,b,NULL}'"],
    "xid": ["'77'"],
    "cid": ["'5'"],
    "tid": ["'(70000,3)'"],
    "pg_lsn": ["'16/B374D848'"],
    "point": ["'(1.5,-2)'"],
    "lseg": ["'[(0,0),(1,1)]'"],
    "box": ["'(0,0),(1,1)'"],
    "path": ["'((0,0),(1,1))'", "'[(0,0),(1,1),(2,0)]'"],
    "polygon": ["'((0,0),(1,1),(2,0))'"],
    "line": ["'{1,2,3}'"],
    "circle": ["'<(1,2),3>'"],
    "oidvector": ["'1 2 3'"],
}
SINCE_14 = {
    "int4multirange": ["'{}'", "'{[1,3),[5,9)}'", "'{(,0),[4,5),[7,8),[10,12),[20,)}'"],
    "nummultirange": ["'{[1.5,2.5),(3,4]}'"],
    "numeric": ["'Infinity'", "'-Infinity'"],
}
SINCE_15 = {"jsonpath": ["'(1.5).abs() == 1'"]}
SINCE_17 = {
    "interval": ["'infinity'", "'-infinity'"],
    "jsonpath": ["'$.a.decimal(4, -1).decimal(3).decimal().bigint().time_tz(2).timestamp().string()'"],
}
TYPES = """
create type r_mood as enum ('sad', 'ok', 'over the moon');
alter type r_mood add value 'best' after 'ok';
create type r_pair as (a int, b text, gone float8, c int[]);
alter type r_pair drop attribute gone;
create extension citext;
create domain r_positive as int check (value > 0);
create type r_textrange as range (subtype = text, collation = "C")
"""


def values(major: int) -> dict[str, list[str]]:
    found = {name: list(of) for name, of in VALUES.items()}
    for since, more in ((14, SINCE_14), (15, SINCE_15), (17, SINCE_17)):
        for name, of in more.items() if major >= since else ():
            found.setdefault(name, []).extend(of)
    return found


def make(connection: Any, major: int) -> None:
    for statement in [*TYPES.split(";\n"), "set timezone = 'UTC'", "set xmlbinary = 'hex'"]:
        connection.execute(statement)
    types = values(major)
    names = [f"c{i}" for i in range(len(types))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, types))
    connection.execute(f"create table every_type (n int, {columns}) with (autovacuum_enabled = off)")
    for row in range(max(map(len, types.values())) + 1):  # the last row is of nulls
        fields = [f"({of[row]})::{kind}" if row < len(of) else "null" for kind, of in types.items()]
        connection.execute(f"insert into every_type values ({row}, {', '.join(fields)})")
    method = "compression lz4" if lz4(connection, major) else ""
    connection.execute(f"create table stored (n int, gone text, t text, e text, z text {method})")
    connection.execute("alter table stored alter e set storage external")
    big = f"(select {TEXT} from generate_series(1, 500) i)"
    kinds = f"repeat(md5(g::text), 300), {big}, repeat('abc' || g, 9000)"
    connection.execute(f"insert into stored select g, 'x', {kinds} from generate_series(1, 40) g")
    connection.execute("alter table stored add added int default 41, add word text default 'later, \"quoted\"', add nothing date")
    connection.execute("alter table stored drop column gone")
    connection.execute("alter table stored add arr int[] default '{1,2}'")
    connection.execute("insert into stored select g, 't', 'e', 'z', g, null, '2024-01-01' from generate_series(41, 50) g")
    connection.execute("update stored set t = 'changed' where n % 5 = 0")
    connection.execute("delete from stored where n % 7 = 0")
    connection.execute("checkpoint")


def lz4(connection: Any, major: int) -> bool:
    query = "select enumvals from pg_settings where name = 'default_toast_compression'"
    return major >= 14 and "lz4" in connection.execute(query).fetchone()[0]


def told(connection: Any, query: str) -> list[list[str | None]]:
    """The rows as the server's output functions print them."""
    result = connection.execute(query).pgresult
    row = [result.get_value, range(result.nfields)]
    return [[None if (v := row[0](i, j)) is None else v.decode() for j in row[1]] for i in range(result.ntuples)]


def found(server: Server, relation: str, *, dead: bool = False) -> list[list[str | None]]:
    scan = RowScan(str(server.private.data_dir), relation=relation, database="postgres", dead=dead)
    out: list[list[str | None]] = []
    while (rows := scan.rows(10)) is not None:
        out += rows
    status = scan.status()
    assert (status["unread_pages"], status["unread_rows"], status["unread_values"]) == (0, 0, 0)
    return out


@pytest.mark.parametrize("major", MAJORS)
def test_rows_are_those_the_server_tells(major: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(major, autovacuum=False) as server, server.connect(dbname="postgres") as connection:
        make(connection, major)
        for relation in ("every_type", "stored"):
            want = told(connection, f"select ctid, * from {relation}")
            have = found(server, relation)
            assert len(have) == len(want)
            for row, right in zip(have, want):
                assert row == right
        visible = {row[0] for row in told(connection, "select ctid from stored")}
        rows = found(server, "stored", dead=True)
        assert {row[0] for row in rows if row[6] == "live"} == visible
        dead = [row for row in rows if row[6] == "dead"]
        # The server may have pruned old versions of updated rows; the rows deleted last are there.
        assert {str(n) for n in range(7, 50, 7)} <= {row[7] for row in dead}
        assert len(rows) == len(visible) + len(dead) and all(row[5] != "0" for row in dead)

        catalogs = ("pg_proc", "pg_database", "pg_am")
        for relation in catalogs:
            query = f"select ctid, oid from {relation}"
            assert [row[:2] for row in found(server, relation)] == told(connection, query)
        # Names of functions depend on the search_path: the number is told. Node trees are text, arrays of any type name it.
        columns = "oid, amname, amhandler::oid, amtype"
        assert [row[1:] for row in found(server, "pg_am")] == told(connection, f"select {columns} from pg_am")
        missing = [[row[2], row[-1]] for row in found(server, "pg_attribute") if row[-1] is not None]
        query = "select attname, attmissingval from pg_attribute where attmissingval is not null"
        assert missing == told(connection, query) and len(missing) > 2
        connection.execute("create role \"r \"\"x\"\"\"")
        connection.execute("grant select, update, trigger on stored to \"r \"\"x\"\"\" with grant option")
        connection.execute("grant insert (n), references (n) on stored to public")
        connection.execute("checkpoint")
        for relation, column in (("pg_class", "relacl"), ("pg_attribute", "attacl"), ("pg_database", "datacl"), ("pg_namespace", "nspacl")):
            described = RowScan(str(server.private.data_dir), relation=relation, database="postgres").describe()
            at = 1 + [name for name, _ in described["columns"]].index(column)
            assert [row[at] for row in found(server, relation)] == [row[0] for row in told(connection, f"select {column} from {relation}")]
        connection.execute("create view as_tree as select n + 1 as n from stored")
        connection.execute("checkpoint")
        assert found(server, "pg_rewrite") == told(connection, "select ctid, * from pg_rewrite")

        data_dir = str(server.private.data_dir)
        out = tmp_path / "rows.csv"
        assert run(["rows", data_dir, "stored", "--database", "postgres", "-o", str(out)]) == 0
        with out.open(newline="") as file:
            names, *lines = list(csv.reader(file))
        assert names == ["ctid", "n", "t", "e", "z", "added", "word", "nothing", "arr"]
        assert lines == [[v or "" for v in row] for row in found(server, "stored")]
        out = tmp_path / "rows.parquet"
        assert run(["rows", data_dir, "stored", "--database", "postgres", "-o", str(out)]) == 0
        import duckdb

        read = duckdb.connect().execute(f"select n, added, word from '{out}'").fetchall()
        assert read == connection.execute("select n, added, word from stored").fetchall()
        [[path]] = told(connection, "select pg_relation_filepath('stored')")
        capsys.readouterr()
        assert run(["rows", f"{data_dir}/{path}", "--json", "--limit", "3"]) == 0
        assert [row["n"] for row in json.loads(capsys.readouterr().out)] == ["1", "2", "3"]
        assert run(["rows", data_dir, "stord", "--database", "postgres", "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        # The server may have made it since its last checkpoint.
        hint = "run CHECKPOINT: objects created after the last one are not in the files yet"
        assert (error["kind"], error["hint"]) == ("not_found", hint)
        assert error["detail"].endswith("; closest match: public.stored")


def test_columns_that_are_stored_nowhere_are_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(18, autovacuum=False) as server, server.connect(dbname="postgres") as connection:
        columns = "a int, v int generated always as (a * 2) virtual, s int generated always as (a * 3) stored"
        connection.execute(f"create table computed ({columns})")
        connection.execute("insert into computed select g from generate_series(1, 3) g")
        connection.execute("alter table computed add w text generated always as ('w' || a) virtual, add z int default 7")
        connection.execute("checkpoint")
        assert found(server, "computed") == told(connection, "select ctid, a, s, z from computed")
        line = ["rows", str(server.private.data_dir), "computed", "--database", "postgres"]
        assert run(line) == 0
        assert "virtual generated columns are not stored: v, w" in capsys.readouterr().err
        assert run([*line, "-o", str(tmp_path / "c.parquet"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["virtual"] == ["v", "w"]
        import duckdb

        read = duckdb.connect().execute(f"select * exclude (ctid) from '{tmp_path / 'c.parquet'}'").fetchall()
        assert read == [(1, 3, 7), (2, 6, 7), (3, 9, 7)]
        told_of = capsys.readouterr().err
        assert "unlogged" not in told_of
        connection.execute("alter table computed set unlogged")
        connection.execute("checkpoint")
        assert run(line) == 0
        assert "this is an unlogged table: CHECKPOINT does not write it" in capsys.readouterr().err


def test_columns_are_chosen_and_ordered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(18, autovacuum=False) as server, server.connect(dbname="postgres") as connection:
        connection.execute('create table wide (a int, gone int, "b,c" text, v int generated always as (a * 2) virtual, d bytea)')
        connection.execute("insert into wide select g, g, repeat('w', 3000 * g) from generate_series(1, 2) g")
        connection.execute("alter table wide drop column gone, add later int default 9")
        connection.execute("checkpoint")
        line = ["rows", str(server.private.data_dir), "wide", "--database", "postgres", "--columns"]
        chosen = 'later,"b,c",a'
        expected = told(connection, 'select ctid, later, "b,c", a from wide')
        assert run([*line, chosen, "--json"]) == 0
        assert [list(row.values()) for row in json.loads(capsys.readouterr().out)] == expected
        assert run([*line, chosen, "-o", str(tmp_path / "w.csv")]) == 0
        with (tmp_path / "w.csv").open(newline="") as file:
            assert list(csv.reader(file)) == [["ctid", "later", "b,c", "a"], *expected]
        assert run([*line, chosen, "-o", str(tmp_path / "w.parquet")]) == 0
        import duckdb

        read = duckdb.connect().execute(f"select * from '{tmp_path / 'w.parquet'}'").fetchall()
        assert [[str(value) for value in row] for row in read] == expected
        for wrong, message in {
            "a,nothing": "public.wide has no column nothing",
            "a,a": "column a is given twice",
            "v": "no row of public.wide stores a value of v: the server computes it",
            "gone": "public.wide has no column gone",
        }.items():
            capsys.readouterr()
            assert run([*line, wrong, "--json"]) == 2
            error = json.loads(capsys.readouterr().out)["error"]
            assert (error["message"], error["detail"]) == (message, "columns: a, b,c, d, later")


@pytest.mark.parametrize(
    ("files", "kind"),
    [({}, "invalid"), ({"PG_VERSION": "12\n"}, "unsupported"), ({"PG_VERSION": "18\n"}, "not_found")],
    ids=["no data directory", "unknown major", "no pg_control"],
)
def test_errors_are_one_message(files: dict[str, str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert run(["rows", str(tmp_path), "t", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == kind


def test_a_table_is_named_to_its_server(servers: Callable[[int], Server], capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(16)
    server.sql("drop table if exists named_to_server")
    server.sql("create table named_to_server as select i, 'row ' || i as t from generate_series(1, 3) i")
    server.sql("checkpoint")
    assert run(["rows", "public.named_to_server", "--dsn", server.dsn, "--json"]) == 0
    rows = [{"ctid": f"(0,{i})", "i": str(i), "t": f"row {i}"} for i in (1, 2, 3)]
    assert json.loads(capsys.readouterr().out) == rows
    assert run(["rows", "no_such_table", "--dsn", server.dsn]) == 2
    assert "no relation named no_such_table" in capsys.readouterr().err
    assert run(["rows", "public.named_to_server", "other", "--dsn", server.dsn]) == 2
    assert "--dsn takes only the name of the table" in capsys.readouterr().err


def test_a_partitioned_table_is_named_to_its_server(servers: Callable[[int], Server], capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(16)
    server.sql('drop table if exists public."Parts"')
    server.sql('create table public."Parts" (n int) partition by range (n)')
    for number in (0, 1):
        server.sql(f'create table parts_{number} partition of "Parts" for values from ({number * 10}) to ({number * 10 + 10})')
    server.sql('insert into "Parts" values (3), (14), (15)')
    server.sql("checkpoint")
    assert run(["rows", '"Parts"', "--dsn", server.dsn, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["partition"], row["n"]) for row in rows] == [("public.parts_0", "3"), ("public.parts_1", "14"), ("public.parts_1", "15")]
    server.sql("create or replace view parts_view as select 1 as n")
    assert run(["rows", "parts_view", "--dsn", server.dsn]) == 2
    assert "error: parts_view has no file" in capsys.readouterr().err
