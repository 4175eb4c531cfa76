"""`leadline alter resolve` of compression, where a server has lz4."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from alter_parts import alter, sums
from conftest import SETTINGS, CopiedServer, no_oracle
from leadline.engines.postgres.server.binaries import host_dirs, wheel_dirs
from leadline.engines.postgres.server.private import PrivateServer

VALUES = {
    "text": "repeat('long ' || i, 600)",
    "varchar(9000)": "repeat('long ' || i, 600)",
    "char(3000)": "'padded ' || i",
    "bytea": "convert_to(repeat('long ' || i, 600), 'UTF8')",
    "jsonb": "jsonb_build_object('k', repeat('long ' || i, 600), 'n', array[i, null])",
    "xml": "xmlelement(name a, repeat('long ' || i, 600))",
    "numeric": "(repeat('12', 3000) || '.' || i || '0')::numeric",
    "text[]": "array_fill('v' || i, array[40, 20], array[3, -1])",
    "int[]": "(select array_agg(case when j % 9 > 0 then i end) from generate_series(1, 3000) j)",
    "tsvector": "(select array_to_tsvector(array_agg(repeat('word', 20) || i * j)) from generate_series(1, 60) j)",
    "int4range[]": "array_fill(int4range(i, i + 7), array[600])",
    "t_pair": "row(i, repeat('long ' || i, 600))::t_pair",
    "t_words": "array_fill('w' || i, array[900])::t_words",
}


@pytest.fixture(scope="module")
def with_lz4() -> Iterator[PrivateServer]:
    """A server that has lz4: those that tests fetch have not."""
    for found in [*host_dirs(), *wheel_dirs()]:
        config = found.bin_dir / "pg_config"
        if found.major < 14 or not config.is_file():
            continue
        built = subprocess.run([config, "--configure"], capture_output=True, text=True, check=False).stdout
        if "lz4" in built:
            with CopiedServer(found.bin_dir, settings=SETTINGS) as server:
                yield server
            return
    no_oracle("no server here was built with lz4")


def test_values_of_any_type_are_packed_anew_and_stay_the_same(with_lz4: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"c{i}" for i in range(len(VALUES))]
    with psycopg.connect(with_lz4.dsn, autocommit=True) as connection:
        connection.execute("create type t_pair as (a int, b text)")
        connection.execute("create domain t_words as text[]")
        for name, (kind, value) in zip(names, VALUES.items()):
            table = f"packed_{name}"
            connection.execute(f"create table {table} (id int, v {kind})")
            connection.execute(f"insert into {table} select i, {value} from generate_series(1, 20) i")
            connection.execute(f"insert into {table} values (21, null)")
            connection.execute(f"alter table {table} alter v set compression lz4")
            image = "id, v::text, pg_column_compression(v)"
            before = {row[0]: row[1:] for row in connection.execute(f"select {image} from {table}")}
            assert all(method == "pglz" for number, (_, method) in before.items() if number <= 20), kind
            connection.execute("checkpoint")
            [found] = alter(capsys, "pending", with_lz4.dsn, "--table", table)
            assert (found["reason"], found["rows"], found["bytes"]) == ("compression", 20, stored(connection, table)), kind
            [done] = alter(capsys, "resolve", with_lz4.dsn, "--table", table)
            assert (done["rows_rewritten"], done["rows_remaining"]) == (20, 0), kind
            after = {row[0]: row[1:] for row in connection.execute(f"select {image} from {table}")}
            assert {n: text for n, (text, _) in after.items()} == {n: text for n, (text, _) in before.items()}, kind
            assert all(method in ("lz4", None) for _, method in after.values()), kind


def stored(connection: Any, table: str) -> int:
    """Bytes that values take: in the row with their header, outside as they are."""
    [inside] = connection.execute(f"select sum(pg_column_size(v)) from {table}").fetchone()
    return int(inside)


def test_what_two_altered_columns_ask_for_is_done_row_by_row(with_lz4: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(with_lz4.dsn, autocommit=True) as connection:
        connection.execute("create table mixed (id int, a text compression pglz, b text compression lz4)")
        connection.execute("insert into mixed select i, repeat('a' || i, 900), repeat('b' || i, 900) from generate_series(1, 30) i")
        connection.execute("alter table mixed alter a set compression lz4")
        connection.execute("insert into mixed select i, repeat('a' || i, 900), repeat('b' || i, 900) from generate_series(31, 40) i")
        connection.execute("alter table mixed alter b set compression pglz, add column c int")
        before = sums(connection, "mixed", "id, a, b, c")
        connection.execute("checkpoint")
        found = {row["reason"]: row["rows"] for row in alter(capsys, "pending", with_lz4.dsn, "--table", "mixed")}
        assert found == {"short": 40, "compression": 40}
        [done] = alter(capsys, "resolve", with_lz4.dsn, "--table", "mixed")
        assert (done["rows_rewritten"], done["rows_remaining"]) == (40, 0)
        assert sums(connection, "mixed", "id, a, b, c") == before
        methods = "select distinct pg_column_compression(a), pg_column_compression(b) from mixed"
        assert {("lz4", "pglz")} <= set(connection.execute(methods)) <= {("lz4", "pglz"), ("lz4", None)}


def test_packed_values_of_generated_columns_are_packed_anew(with_lz4: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(with_lz4.dsn, autocommit=True) as connection:
        connection.execute("create table derived (id int, n int, t text, g text generated always as (repeat(t || n, 900)) stored)")
        connection.execute("insert into derived (id, n, t) select i, i, 't' || i from generate_series(1, 30) i")
        connection.execute("alter table derived alter g set compression lz4")
        before = sums(connection, "derived", "id, n, t, g")
        [done] = alter(capsys, "resolve", with_lz4.dsn, "--table", "derived")
        assert (done["rows_rewritten"], done["rows_remaining"], done["rounds"]) == (30, 0, 1)
        assert sums(connection, "derived", "id, n, t, g") == before
        assert connection.execute("select distinct pg_column_compression(g) from derived").fetchall() == [("lz4",)]
