"""leadline rows of a partitioned table: what SELECT gives of it, with the partition of each row."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from conftest import Server, running
from leadline._core.rows import RowScan
from leadline.cli import run
from test_rows import told

# Columns in another order in one partition, dropped ones in others, and one that was added to rows that are there.
DEFINITIONS = """
create schema sold_other;
create table sold (n int, gone text, word text, made date, total numeric(9,2)) partition by range (n);
create table sold_other.first partition of sold for values from (0) to (1000);
create table sold_third (total numeric(9,2), lost_1 int, made date, word text, lost_2 text, n int, gone text);
insert into sold_third select i * 1.5, 7, date '2024-01-01' + i, 'third ' || i, 'x', 2000 + i, 'g' from generate_series(0, 99) i;
alter table sold_third drop lost_1, drop lost_2;
alter table sold attach partition sold_third for values from (2000) to (3000);
create table sold_second partition of sold for values from (1000) to (2000) partition by list (word);
create table sold_second_a partition of sold_second for values in ('a');
create table sold_second_rest partition of sold_second default;
create table sold_empty partition of sold for values from (5000) to (6000);
create table "Sold: the Rest" partition of sold default;
insert into sold select i * 10, 'gone', case when i % 3 = 0 then 'a' when i % 3 = 1 then repeat('b', 3000 + i) end, '2024-02-29', i
    from generate_series(0, 499) i where i < 200 or i > 350;
alter table sold drop gone;
alter table sold add note text default 'old';
insert into sold (n, word, note) values (5, 'new', 'a "note"'), (1005, 'a', null), (-7, 'minus', ''), (null, null, null);
delete from sold where n % 7 = 0;
update sold set total = 0 where n % 11 = 0
"""
PARTITION = "(select nspname || '.' || relname from pg_class c join pg_namespace s on s.oid = relnamespace where c.oid = t.tableoid)"
COLUMNS = "n, word, made, total, note"


@pytest.fixture
def server(pg: Server) -> Server:
    """With the table."""
    if pg.sql("select to_regclass('sold') is null") == [(True,)]:
        with pg.connect() as connection:
            for statement in DEFINITIONS.split(";\n"):
                connection.execute(statement)
            connection.execute("checkpoint")
    return pg


def selected(connection: Any, condition: str = "true", *, table: str = "sold", columns: str = COLUMNS) -> list[list[str | None]]:
    query = f'select {PARTITION} collate "C" as partition, ctid, {columns} from {table} t where {condition} order by 1, t.ctid'
    return told(connection, query)


def of_files(server: Server, table: str = "sold", database: str = "postgres", **wanted: Any) -> list[list[str | None]]:
    scan = RowScan(str(server.private.data_dir), relation=table, database=database, **wanted)
    rows: list[list[str | None]] = []
    while (more := scan.rows(7)) is not None:
        rows += more
    status = scan.status()
    assert (status["block"] <= status["blocks"], status["unreadable"]) == (True, [])
    return rows


def test_rows_are_those_of_all_partitions(server: Server) -> None:
    with server.connect() as connection:
        every = selected(connection)
        assert len({row[0] for row in every}) == 5 and len(every) > 300
        assert of_files(server) == every
        assert of_files(server, "public.sold_second") == selected(connection, table="sold_second")
        assert of_files(server, columns=["note", "n"]) == selected(connection, columns="note, n")
        for condition in ("n >= 1000 and word = 'a'", "total is null", "note = 'old' and made > '2024-01-15'", "n is null"):
            chosen = selected(connection, condition)
            assert of_files(server, conditions=condition) == chosen and chosen
        for limit in (1, 90, 250, len(every), len(every) + 1):
            assert of_files(server, limit=limit) == every[:limit]
    dead = of_files(server, dead=True)
    assert [row[:2] for row in dead if row[7] == "live"] == [row[:2] for row in every]


def test_files_have_them_too(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        every = selected(connection)
    line = ["rows", str(server.private.data_dir), "sold", "--database", "postgres"]
    names = ["partition", "ctid", *COLUMNS.split(", ")]
    for limit in (None, 90, len(every) - 1):
        limited = [] if limit is None else ["--limit", str(limit)]
        for kind in ("csv", "parquet"):
            assert run([*line, *limited, "--threads", "3", "-o", str(tmp_path / f"sold.{kind}"), "--force", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["rows"] == len(every[:limit])
        with (tmp_path / "sold.csv").open(newline="") as file:
            assert list(csv.reader(file)) == [names, *([value or "" for value in row] for row in every[:limit])]
        with duckdb.connect() as reader:
            columns = ", ".join(f"{name}::text as {name}" for name in names)
            read = reader.execute(f"select {columns} from '{tmp_path / 'sold.parquet'}'").fetchall()
        assert [list(row) for row in read] == every[:limit]
    assert run([*line, "--json"]) == 0
    assert [list(row.values()) for row in json.loads(capsys.readouterr().out)] == every
    assert run([*line, "--columns", "n", "--limit", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["partition", "ctid", "n"]


def test_a_value_that_does_not_fit_makes_text_of_its_column_in_all_partitions(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "dates.parquet"
    with server.connect() as connection:
        connection.execute("drop table if exists sold_dates")
        connection.execute("create table sold_dates (d date, n int) partition by list (n)")
        for n in (1, 2):
            connection.execute(f"create table sold_dates_{n} partition of sold_dates for values in ({n})")
        connection.execute("insert into sold_dates values ('2024-01-01', 1), ('infinity', 2)")
        connection.execute("checkpoint")
    scan = RowScan(str(server.private.data_dir), relation="sold_dates", database="postgres")
    assert scan.export(str(out), 2, None) == (2, ["d"])
    with duckdb.connect() as reader:
        expected = [("public.sold_dates_1", "(0,1)", "2024-01-01", 1), ("public.sold_dates_2", "(0,1)", "infinity", 2)]
        assert reader.execute(f"select * from '{out}'").fetchall() == expected
    assert scan.rows(10) is None


def test_one_without_partitions_has_no_rows(server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with server.connect() as connection:
        connection.execute("drop table if exists sold_nothing")
        connection.execute("create table sold_nothing (partition int, ctid_of text) partition by list (partition)")
        connection.execute("checkpoint")
    line = ["rows", str(server.private.data_dir), "sold_nothing", "--database", "postgres"]
    assert run([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run([*line, "-o", str(tmp_path / "nothing.csv")]) == 0
    assert (tmp_path / "nothing.csv").read_text() == "_partition,ctid,partition,ctid_of\n"
    capsys.readouterr()
    assert run([*line, "--where", "other = 1", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "public.sold_nothing has no column other"


def test_partitions_without_rows_of_their_own_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(18, autovacuum=False) as server:
        with server.connect() as connection:
            for statement in (
                "create table sold (n int, word text) partition by list (n)",
                *(f"create table part_{n} partition of sold for values in ({n})" for n in (1, 2, 4, 5)),
                "create foreign data wrapper away",
                "create server far foreign data wrapper away",
                "create foreign table part_3 partition of sold for values in (3) server far",
                "insert into sold select n, 'word ' || n from unnest(array[1, 2, 4, 5]) n",
                "set allow_system_table_mods = on",
                "delete from pg_attribute where attrelid = 'part_5'::regclass and attname = 'word'",
                "checkpoint",
            ):
                connection.execute(statement)
            [[lost]] = connection.execute("select pg_relation_filepath('part_2')").fetchall()
            [[damaged]] = connection.execute("select pg_relation_filepath('part_4')").fetchall()
        server.private.stop()
        root = server.private.data_dir
        (root / lost).unlink()
        content = bytearray((root / damaged).read_bytes())
        content[12:14] = (7).to_bytes(2, "little")  # pd_lower
        (root / damaged).write_bytes(bytes(content))
        line = ["rows", str(root), "sold", "--database", "postgres"]
        assert run([*line, "--json"]) == 1
        printed = capsys.readouterr()
        assert json.loads(printed.out) == [
            {"partition": "public.part_1", "ctid": "(0,1)", "n": "1", "word": "word 1"},
            {"partition": "public.part_4", "ctid": None, "block": 0, "column": None, "unreadable": "this is not a table page"},
        ]
        said = printed.err.splitlines()
        assert "warning: 1 partition missing with all rows in them, because their files are: public.part_2" in said
        assert "warning: 1 partition left out, because another server has the rows of foreign tables: public.part_3" in said
        assert "unreadable: public.part_4 block 0: this is not a table page" in said
        undefined = "warning: 1 partition left out, because the catalog does not have all of their columns: public.part_5"
        assert undefined in said
        assert "warning: the catalog is damaged: pg_attribute has no row for column 2 of public.part_5; it is left out" in said
        assert run([*line, "-o", str(tmp_path / "sold.csv"), "--json"]) == 1
        made = json.loads(capsys.readouterr().out)
        assert (made["rows"], made["lost_names"], made["foreign_names"]) == (1, "public.part_2", "public.part_3")
        assert (made["undefined_partitions"], made["undefined_names"]) == (1, "public.part_5")
        beside = (tmp_path / "sold.unreadable.csv").read_text().splitlines()
        assert beside == ["partition,ctid,block,column,reason", "public.part_4,,0,,this is not a table page"]


def test_a_partition_that_is_being_detached_is_left_out(servers: Callable[[int], Server]) -> None:
    server = servers(18)
    server.sql("drop database if exists detaching")
    server.sql("create database detaching")
    with server.connect(dbname="detaching") as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("create table sold (n int) partition by list (n)")
        for n in (1, 2):
            connection.execute(f"create table part_{n} partition of sold for values in ({n})")
        connection.execute("insert into sold values (1), (2)")
        with server.connect(dbname="detaching", autocommit=False) as reader, server.connect(dbname="detaching") as detacher:
            reader.execute("select from sold")
            detaching = pool.submit(detacher.execute, "alter table sold detach partition part_1 concurrently")
            deadline = time.monotonic() + 30
            while not connection.execute("select from pg_inherits where inhdetachpending").rowcount:
                assert time.monotonic() < deadline
            connection.execute("select pg_cancel_backend(%s)", [detacher.info.backend_pid])
            with pytest.raises(psycopg.errors.QueryCanceled):
                detaching.result()
        connection.execute("checkpoint")
        expected = told(connection, "select n from sold")
    rows = of_files(server, database="detaching", columns=["n"])
    assert [row[2:] for row in rows] == expected == [["2"]]
    server.sql("drop database detaching")
