"""leadline rows --where and --limit: the rows are those that SELECT gives for the same conditions on the server that wrote the files."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Server
from leadline._core.rows import RowScan
from leadline.cli import run
from test_rows import told

# name: type, values that rows have and conditions compare with, as SQL writes them, and more that conditions alone have
COLUMNS: dict[str, tuple[str, list[str], list[str]]] = {
    "small": ("int2", ["-32768", "-1", "0", "7", "32767"], ["7.0", "6.5", "-0.5", "1e2", "99999", "' 7 '", "'-1'"]),
    "plain": ("int4", ["-2147483648", "-7", "0", "12", "2147483647"], ["11.99", "-7.5", "2147483648", "12e0", "'12'", "-1e40"]),
    "wide": ("int8", ["-9223372036854775808", "0", "5000000000", "9223372036854775807"], ["5e9", "9223372036854775807.5", "'0'"]),
    "number": ("oid", ["0", "16384", "4294967295"], ["'16384'"]),
    "single": (
        "float4",
        ["0.1", "1.5", "-0.0", "1e-30", "3e38", "'NaN'", "'Infinity'", "'-Infinity'"],
        ["'0.1'", "2", "'1e-30'", "0", "1e39"],
    ),
    "double": (
        "float8",
        ["0.1", "1e15", "-0.0", "1.7976931348623157e308", "'NaN'", "'Infinity'", "'-Infinity'"],
        ["'0.1'", "0", "10000000000000001"],
    ),
    "exact": (
        "numeric",
        ["0", "12.50", "-0.0005", "1e100", "-1e100", "12345678901234567890.123456789", "-1e-30", "10000", "9999.9999", "0.00009", "'NaN'"],
        ["0.00", "12.5", "12.500001", "-0.00050", "'9999.9999'", "100000000", "1e-31"],
    ),
    "money_like": ("numeric(9,2)", ["1.10", "-1.10", "0.05", "1234567.89"], ["1.1", "1.105", "'0.05'"]),
    "word": ("text", ["''", "'a'", "'A'", "'a '", "'ab'", "'it''s'", "'é'", "'z'", "'漢'", "'🐘'"], ["'aa'", "'\uffff'"]),
    "short": ("varchar(9)", ["'a'", "'B'", "'naïve'"], ["'b'"]),
    "filled": ("char(6)", ["'ab'", "''", "'ab c'", "'abc'"], ["'ab    '", "'ab         '", "'b'"]),
    "called": ("name", ["'a'", "'pg_class'", "''"], ["'b'"]),
    "flag": ("bool", ["true", "false"], ["'t'", "'off'"]),
    "day": ("date", ["'2024-02-29'", "'0044-03-15 BC'", "'infinity'", "'-infinity'", "'5874897-12-31'"], ["'2000-1-1'"]),
    "clock": (
        "timestamp",
        ["'2024-02-29 12:34:56.789'", "'0001-01-01 00:00:00 BC'", "'infinity'", "'-infinity'", "'1999-12-31 23:59:59.999999'"],
        ["'2024-02-29'", "'2024-02-29T12:34'"],
    ),
    "zoned": (
        "timestamptz",
        ["'2024-02-29 12:34:56+02'", "'-infinity'", "'4713-01-01 00:00:00+00 BC'", "'2024-02-29 10:34:56+00'"],
        ["'2024-02-29 16:04:56+05:30'", "'2024-02-29 10:34:56'", "'2024-02-29T10:34:56Z'", "'2024-02-29 08:34:56.000001 -0200'"],
    ),
    "key": (
        "uuid",
        ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"],
        ["'A0EEBC999C0B4EF8BB6D6BB9BD380A11'"],
    ),
    "positive": ("w_positive", ["1", "5"], ["4.5", "'5'"]),
    "Odd Name": ("int4", ["1", "2"], []),
    "later": ("int4", [], ["41", "42"]),  # added with a default, in rows that are older
    "big": (
        "text",
        ["repeat('long ', 4000)", "(select string_agg(md5(i::text), '') from generate_series(1, 400) i)"],
        ["'long '", "'d'", "''"],
    ),
}
OPERATORS = ("=", "<>", "!=", "<", "<=", ">", ">=")
BY_BYTES = ("text", "varchar(9)", "char(6)")


def make(connection: Any) -> None:
    connection.execute("set timezone = 'UTC'")
    connection.execute("create domain w_positive as int check (value > 0)")
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _, _) in COLUMNS.items() if name != "later")
    connection.execute(f"create table chosen (gone text, {columns}) with (autovacuum_enabled = off)")
    draw = random.Random(35)
    named = [name for name in COLUMNS if name != "later"]
    for row in range(120):
        values = [draw.choice(["null", *COLUMNS[name][1]]) if row else "null" for name in named]
        connection.execute(f"insert into chosen values ('x', {', '.join(values)})")
    connection.execute("alter table chosen drop column gone")
    connection.execute("alter table chosen add later int default 41")
    connection.execute("insert into chosen (plain, later) values (1, 42), (2, null)")
    connection.execute("delete from chosen where plain = 0")
    connection.execute("checkpoint")


@pytest.fixture
def server(pg: Server) -> Server:
    """With the table."""
    if pg.sql("select to_regclass('chosen') is null") == [(True,)]:
        with pg.connect() as connection:
            make(connection)
    return pg


def chosen(server: Server, conditions: str) -> list[str | None]:
    """Where the rows are."""
    scan = RowScan(str(server.private.data_dir), relation="chosen", database="postgres", columns=["plain"], conditions=conditions)
    rows: list[str | None] = []
    while (more := scan.rows(1000)) is not None:
        rows += [row[0] for row in more]
    return rows


def in_sql(name: str, test: str) -> str:
    """A condition for the server, with texts in the order of their bytes."""
    return f'"{name}"{" collate " + chr(34) + "C" + chr(34) if COLUMNS[name][0] in BY_BYTES else ""} {test}'


def test_each_comparison_chooses_what_select_does(server: Server) -> None:
    tests = 0
    with server.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name, (_, values, more) in COLUMNS.items():
            literals = [value for value in values + more if "(" not in value]
            for test in ["is null", "is not null", *(f"{sign} {literal}" for literal in literals for sign in OPERATORS)]:
                expected = [row[0] for row in told(connection, f"select ctid from chosen where {in_sql(name, test)}")]
                assert chosen(server, f'"{name}" {test}') == expected, (name, test)
                tests += 0 < len(expected) < 100
    assert tests > 500  # most choose some rows and not all


def test_several_conditions_all_have_to_be_true(server: Server) -> None:
    draw, some = random.Random(35), 0
    with server.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for _ in range(200):
            pairs = []
            for name in draw.sample([*COLUMNS], draw.choice([2, 2, 3])):
                literals = [value for value in COLUMNS[name][1] + COLUMNS[name][2] if "(" not in value]
                pairs.append((name, draw.choice([f"{draw.choice(OPERATORS[1:])} {draw.choice(literals)}", "is not null"])))
            expected = told(connection, f"select ctid from chosen where {' and '.join(in_sql(*pair) for pair in pairs)}")
            assert chosen(server, " AND ".join(f'"{name}" {test}' for name, test in pairs)) == [row[0] for row in expected], pairs
            some += bool(expected)
    assert some > 50


@pytest.fixture
def line(server: Server) -> list[str]:
    return ["rows", str(server.private.data_dir), "chosen", "--database", "postgres", "--columns", "plain,word"]


def test_files_have_the_chosen_rows_as_well(server: Server, line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conditions = "double > 0 AND \"Odd Name\" is not null and key <> '00000000-0000-0000-0000-000000000000'"
    with server.connect() as connection:
        every = told(connection, f"select ctid, plain, word from chosen where {conditions}")
    assert 5 < len(every) < 100
    for limit in (None, 1, 4, len(every), len(every) + 1):
        expected, limited = every[:limit], [] if limit is None else ["--limit", str(limit)]
        stops = limit is not None and limit <= len(every)
        said = [f"stopped at --limit {limit}: there may be more"] if stops else []
        assert run([*line, "--where", conditions, *limited, "--json"]) == 0
        assert [list(row.values()) for row in json.loads(capsys.readouterr().out)] == expected
        for kind in ("csv", "parquet"):
            out = tmp_path / f"{limit}.{kind}"
            assert run([*line, "--where", conditions, *limited, "-o", str(out)]) == 0
            printed = capsys.readouterr()
            assert stop_in(printed.err) == said
            assert printed.out == f"{len(expected)} rows of public.chosen written to {out}\n"
        with (tmp_path / f"{limit}.csv").open(newline="") as file:
            assert list(csv.reader(file)) == [["ctid", "plain", "word"], *([value or "" for value in row] for row in expected)]
        with duckdb.connect() as reader:
            read = reader.execute(f"select ctid, plain::text, word from '{tmp_path / f'{limit}.parquet'}'").fetchall()
        assert [list(row) for row in read] == expected
        assert run([*line, "--where", conditions, *limited, "--csv"]) == 0
        printed = capsys.readouterr()
        assert (printed.out, stop_in(printed.err)) == ((tmp_path / f"{limit}.csv").read_text(), said)


def stop_in(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("stopped")]


def test_a_limit_ends_the_reading(servers: Callable[[int], Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(18)
    with server.connect() as connection:
        connection.execute("drop table if exists much")
        connection.execute("create table much (n int, d date, pad text) with (autovacuum_enabled = off)")
        connection.execute("insert into much select i, '2024-01-01', repeat('x', 500) from generate_series(1, 20000) i")
        connection.execute("insert into much values (20001, 'infinity', '')")
        connection.execute("checkpoint")
        [[blocks]] = connection.execute("select pg_relation_size('much') / 8192").fetchall()
        [[of_last]] = connection.execute("select (ctid::text::point)[0]::int from much where n = 10000").fetchall()
    made = {}
    for limit in (10_000, 20_001):
        out = tmp_path / "much.parquet"
        line = ["rows", str(server.private.data_dir), "much", "--database", "postgres", "--limit", str(limit), "--threads", "4"]
        assert run([*line, "-o", str(out), "--force", "--json"]) == 0
        made[limit] = json.loads(capsys.readouterr().out)
        with duckdb.connect() as reader:
            assert reader.execute(f"select count(*), min(n), max(n) from '{out}'").fetchall() == [(limit, 1, limit)]
    assert [made[limit]["rows"] for limit in made] == [*made]
    # What is behind the last row is not looked at: the date that no date of Parquet holds makes no text of those before it.
    assert [made[limit]["as_text"] for limit in made] == [[], ["d"]]
    assert [(made[limit]["block"], made[limit]["blocks"]) for limit in made] == [(of_last + 1, blocks), (blocks, blocks)]


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ("plain = 1 or plain = 2", "cannot read the condition: expected AND or the end, found or plain = 2"),
        ("word like 'a%'", "cannot read the condition: expected = <> < <= > >= or IS, found like 'a%'"),
        ("plain = wide", "cannot read the condition: expected a number, a value in single quotes, true or false, found wide"),
        ("plain = null", "a comparison with NULL is never true"),
        ("nothing = 1", "public.chosen has no column nothing"),
        ("gone = 'x'", "public.chosen has no column gone"),
        ("word = 1", "cannot compare column word of type text with 1"),
        ("small = '40000'", "cannot compare column small of type int2 with '40000'"),
        ("day > 'yesterday'", "cannot compare column day of type date with 'yesterday'"),
        ("double < 1e400", "cannot compare column double of type float8 with 1e400"),
        ("", "cannot read the condition: expected the name of a column, found the end"),
    ],
)
def test_what_cannot_be_compared_is_said(
    conditions: str, message: str, server: Server, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*line, "--where", conditions, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["message"]) == ("usage", message)


def test_types_that_compare_in_their_own_way_are_refused_and_tested_for_null(
    servers: Callable[[int], Server], capsys: pytest.CaptureFixture[str]
) -> None:
    """citext is printed as text, and does not compare as text does."""
    server = servers(18)
    with server.connect() as connection:
        connection.execute("create extension if not exists citext")
        connection.execute("drop table if exists own_way")
        connection.execute("create table own_way (c citext, j jsonb, i interval, v int generated always as (1) virtual)")
        connection.execute("insert into own_way values ('a', '1', '1 day'), (null, null, null)")
        connection.execute("checkpoint")
    line = ["rows", str(server.private.data_dir), "own_way", "--database", "postgres", "--json", "--where"]
    for column, kind in (("c", "citext"), ("j", "jsonb"), ("i", "interval")):
        assert run([*line, f"{column} = 'A'"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["message"] == f"cannot compare column {column}: values of type {kind}"
        assert error["hint"] == f"of every type: {column} IS NULL, {column} IS NOT NULL"
        assert run([*line, f"{column} is null"]) == 0
        assert [row[column] for row in json.loads(capsys.readouterr().out)] == [None]
    assert run([*line, "v = 1"]) == 2
    message = "no row of public.own_way stores a value of v: the server computes it"
    assert json.loads(capsys.readouterr().out)["error"]["message"] == message


def test_texts_of_other_encodings_are_compared_as_utf_8(servers: Callable[[int], Server], capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(18)
    server.sql("drop database if exists latin_where")
    server.sql("create database latin_where template template0 encoding 'LATIN1' locale 'C'")
    with server.connect(dbname="latin_where") as connection:
        connection.execute("set client_encoding = 'UTF8'")
        connection.execute("create table letters as select chr(i) as letter from generate_series(160, 255) i union select 'A'")
        connection.execute("checkpoint")
        for test in ("= 'ü'", "< 'ü'", ">= 'é'", "<> 'A'"):
            expected = told(connection, f"select letter from letters where letter {test}")
            line = ["rows", str(server.private.data_dir), "letters", "--database", "latin_where", "--json", "--where", f"letter {test}"]
            assert run(line) == 0
            assert [[row["letter"]] for row in json.loads(capsys.readouterr().out)] == expected
            assert len(expected) > 0
    server.sql("drop database latin_where")


def test_dead_versions_are_chosen_too(servers: Callable[[int], Server], capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(18)
    with server.connect() as connection:
        connection.execute("drop table if exists died")
        connection.execute("create table died (n int) with (autovacuum_enabled = off)")
        connection.execute("insert into died select generate_series(1, 9)")
        connection.execute("delete from died where n % 2 = 0")
        connection.execute("checkpoint")
    line = ["rows", str(server.private.data_dir), "died", "--database", "postgres", "--dead", "--json", "--where", "n > 6"]
    assert run(line) == 0
    assert [(row["n"], row["status"]) for row in json.loads(capsys.readouterr().out)] == [("7", "live"), ("8", "dead"), ("9", "live")]
