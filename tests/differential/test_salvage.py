"""leadline salvage against the server: what a new server has after the restore is what the dead one had."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Server, running
from leadline.cli import run
from leadline.engines.postgres.server.cluster import ClusterServer
from recovery import crash
from salvaged import definitions, fill, restore, rows_of
from servers import MAJORS

DAMAGES = 6
BLOCK = 8192
PASSWORDS = [
    'password of server "far Away"',
    'password of the user mapping of reader for server "far Away"',
    "password of subscription from_afar",
]
"""All that is lost of the database."""


@dataclass
class Dead:
    """A cluster whose server was killed, and what was true of it. files: of each relation, under the data directory."""

    major: int
    data_dir: Path
    definitions: dict[str, str]
    rows: dict[str, Any]
    files: dict[str, str]
    oids: dict[str, int]


def kill(major: int, kept: Path) -> Dead:
    with running(major, wal_level="logical") as server:
        fill(server)
        told = definitions(server), rows_of(server)
        files = dict(server.sql("select relname, pg_relation_filepath(oid) from pg_class where pg_relation_filepath(oid) is not null"))
        oids = dict(server.sql("select oid::regclass::text, oid::int from pg_class where oid >= 16384"))
        server.sql("insert into shop.late values (1), (2)")  # and nobody reads them
        told[1]["shop.late"] = [b"1", b"2"]
        server.sql("checkpoint")
        shutil.copytree(crash(server), kept)
    return Dead(major, kept, *told, files, oids)


@pytest.fixture(scope="module", params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def dead(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dead]:
    kept = tmp_path_factory.mktemp("dead") / "data"
    yield kill(request.param, kept)
    shutil.rmtree(kept.parent)


@pytest.fixture(scope="module")
def dead_18(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dead]:
    kept = tmp_path_factory.mktemp("dead18") / "data"
    yield kill(18, kept)
    shutil.rmtree(kept.parent)


@pytest.fixture
def damaged(dead_18: Dead, tmp_path: Path) -> Path:
    """A copy to damage."""
    copy = tmp_path / "data"
    shutil.copytree(dead_18.data_dir, copy)
    return copy


def salvage(data_dir: Path, out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["salvage", str(data_dir), "-o", str(out), *words])
    (database,) = json.loads((out / "manifest.json").read_text())["databases"]
    return code, database


def test_all_comes_back(dead: Dead, fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    code, database = salvage(dead.data_dir, tmp_path / "saved")
    assert (code, database["catalog_losses"]) == (1, [])
    assert [lost["what"] for lost in database["lost"]] == PASSWORDS
    losses = {table["table"]: table["losses"] for table in database["tables"] if table["losses"]}
    assert losses == {"shop.pointer": ["column what has the OIDs of the dead cluster"]}
    views = ("shop.per_state", "shop.above")
    assert database["rows"] == sum(len(rows) for name, rows in dead.rows.items() if isinstance(rows, list) and name not in views)
    assert "attach partition" not in (tmp_path / "saved" / "postgres" / "constraints.sql").read_text()
    server = fresh_server(dead.major, wal_level="logical")
    restore(tmp_path / "saved", "postgres", server)
    assert definitions(server) == dead.definitions
    assert rows_of(server) == dead.rows


def test_an_old_cluster_comes_back_in_a_new_major(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    old = kill(13, tmp_path / "data")
    salvage(old.data_dir, tmp_path / "saved")
    server = fresh_server(18, wal_level="logical")
    restore(tmp_path / "saved", "postgres", server)
    assert rows_of(server) == old.rows


def test_csv_has_the_same_rows(dead_18: Dead, tmp_path: Path) -> None:
    salvage(dead_18.data_dir, tmp_path / "saved", "--format", "csv")
    folder = tmp_path / "saved" / "postgres" / "data"
    with (folder / "shop.customer.csv").open(newline="") as file:
        first, *rows = csv.reader(file)
    assert first == ["id", "name", "mail", "home", "tags", "born", "Select", "about", "changed", "code"]
    assert len(rows) == len(dead_18.rows["shop.customer"])
    assert rows[2][1] == "tab\there\\ \n\\.\nend"
    assert (folder / "shop.child.csv").read_bytes().splitlines() == [b"id,note,extra", b"3,\\N,1.5", b"4,\\.,"]


def test_parquet_has_the_same_rows(dead_18: Dead, damaged: Path, tmp_path: Path) -> None:
    """A table with a row that is not whole is in CSV."""
    file = damaged / dead_18.files[f"pg_toast_{dead_18.oids['shop.long']}"]
    file.write_bytes(bytes(BLOCK) + file.read_bytes()[BLOCK:])
    _, database = salvage(damaged, tmp_path / "saved", "--format", "parquet")
    tables = {table["table"]: table for table in database["tables"]}
    folder = tmp_path / "saved" / "postgres"
    assert {table["file"].rpartition(".")[2] for name, table in tables.items() if name != "shop.long"} == {"parquet"}
    assert (tables["shop.long"]["file"], tables["shop.long"]["doubtful_file"]) == ("data/shop.long.csv", "doubtful/shop.long.csv")
    found = duckdb.sql(f"select id::text, net::text from '{folder / tables['shop.orders']['file']}'").fetchall()
    assert sorted(found) == sorted(tuple(row.decode().split("\t")[i] for i in (0, 3)) for row in dead_18.rows["shop.orders"])
    loads = (folder / "load.sql").read_text()
    assert "-- data/shop.orders.parquet: into shop.orders (" in loads
    assert "\n\\copy shop.long (id, word) from 'data/shop.long.csv' with (format csv, header)\n" in loads


def test_a_page_that_is_lost_is_named_and_the_rest_comes_back(dead_18: Dead, damaged: Path, tmp_path: Path) -> None:
    file = damaged / dead_18.files["customer"]
    pages = file.read_bytes()
    file.write_bytes(pages[:BLOCK] + random.Random(7).randbytes(BLOCK) + pages[2 * BLOCK :])
    code, database = salvage(damaged, tmp_path / "saved")
    (table,) = [table for table in database["tables"] if table["unreadable"]]
    assert (code, table["table"], [loss["block"] for loss in table["unreadable"]]) == (1, "shop.customer", [1])
    assert [lost["what"] for lost in database["lost"]] == PASSWORDS
    saved = (tmp_path / "saved" / "postgres" / "data" / "shop.customer.copy").read_bytes().splitlines()
    assert 0 < len(saved) == table["rows"] < len(dead_18.rows["shop.customer"])
    assert set(saved) < set(dead_18.rows["shop.customer"])


def test_a_table_that_cannot_be_defined_keeps_its_rows(dead_18: Dead, damaged: Path, tmp_path: Path) -> None:
    """Its type is lost: what is in the file is saved all the same."""
    file = damaged / dead_18.files["pg_collation"]
    file.write_bytes(bytes(file.stat().st_size))
    _, database = salvage(damaged, tmp_path / "saved")
    (customer,) = [table for table in database["tables"] if table["table"] == "shop.customer"]
    assert "table shop.customer" in [lost["what"] for lost in database["lost"]]
    assert customer["losses"] == ["its definition could not be written: data/shop.customer.copy is not loaded"]
    assert customer["rows"] == len(dead_18.rows["shop.customer"])
    assert "shop.customer.copy" not in (tmp_path / "saved" / "postgres" / "load.sql").read_text()


def test_the_rows_of_a_materialized_view_without_a_query_are_saved(dead_18: Dead, damaged: Path, tmp_path: Path) -> None:
    file = damaged / dead_18.files["pg_rewrite"]
    file.write_bytes(bytes(file.stat().st_size))
    _, database = salvage(damaged, tmp_path / "saved")
    assert {"view shop.big", "view shop.per_state"} <= {lost["what"] for lost in database["lost"]}
    (view,) = [table for table in database["tables"] if table["table"] == "shop.per_state"]
    assert sorted((tmp_path / "saved" / "postgres" / view["file"]).read_bytes().splitlines()) == dead_18.rows["shop.per_state"]


def test_rows_that_no_restore_loads_are_named(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    """Rows that users have in a table of an extension, and an unlogged table after a crash."""
    server = fresh_server(18)
    server.sql("create extension pg_trgm")
    server.sql("create table jobs as select 7 as id")
    server.sql("alter extension pg_trgm add table jobs")
    server.sql("update pg_extension set extconfig = array['jobs'::regclass::oid], extcondition = array[''] where extname = 'pg_trgm'")
    server.sql("create unlogged table cache as select 8 as id")
    server.sql("create unlogged table unused (id int)")
    server.private.stop()
    _, stopped = salvage(server.private.data_dir, tmp_path / "stopped")
    with ClusterServer(server.private.bin_dir, server.private.data_dir) as again:
        crash(Server(again, server.fetched))
    _, database = salvage(server.private.data_dir, tmp_path / "saved")
    assert {table["table"]: table["losses"] for table in database["tables"]} == {
        "public.jobs": ["it belongs to an extension: data/public.jobs.copy is not loaded"],
        "public.cache": ["unlogged: after a crash the server would have emptied it, and nothing says that its rows are whole"],
        "public.unused": [],
    }
    assert (tmp_path / "saved" / "postgres" / "data" / "public.jobs.copy").read_bytes() == b"7\n"
    assert [table["losses"] for table in stopped["tables"] if table["table"] == "public.cache"] == [[]]


def test_a_row_whose_toast_is_lost_is_kept_apart(dead_18: Dead, damaged: Path, tmp_path: Path) -> None:
    file = damaged / dead_18.files[f"pg_toast_{dead_18.oids['shop.long']}"]
    pages = file.read_bytes()
    file.write_bytes(bytes(BLOCK) + pages[BLOCK:])
    code, database = salvage(damaged, tmp_path / "saved")
    (table,) = [table for table in database["tables"] if table["table"] == "shop.long"]
    assert (code, table["rows"] + table["doubtful"]) == (1, 9)
    assert 0 < table["doubtful"] == len(table["unreadable"])
    saved = tmp_path / "saved" / "postgres"
    ids = [line.split(b"\t")[0].decode() for line in (saved / table["file"]).read_bytes().splitlines()]
    with (saved / table["doubtful_file"]).open(newline="") as doubtful:
        ids += [row["id"] for row in csv.DictReader(doubtful)]
    assert sorted(ids) == [str(number) for number in range(1, 10)]


def test_rows_of_unknown_status_are_kept_apart(dead_18: Dead, damaged: Path, tmp_path: Path) -> None:
    """Without the transaction status, nothing tells whether a row that nobody has read since is visible."""
    for log in (damaged / "pg_xact").iterdir():
        log.unlink()
    _, database = salvage(damaged, tmp_path / "saved")
    tables = {table["table"]: table for table in database["tables"]}
    late = tables["shop.late"]
    assert (late["rows"], late["doubtful"], late["doubtful_file"]) == (0, 2, "doubtful/shop.late.csv")
    doubtful = (tmp_path / "saved" / "postgres" / late["doubtful_file"]).read_text()
    assert doubtful == 'ctid,status,n\n"(0,1)",unknown,1\n"(0,2)",unknown,2\n'
    assert (tmp_path / "saved" / "postgres" / late["file"]).read_bytes() == b""
    assert tables["shop.customer"]["doubtful"] == 0


def test_a_database_whose_catalogs_are_lost_keeps_none_of_the_others(dead_18: Dead, damaged: Path, tmp_path: Path) -> None:
    (damaged / "global" / "pg_control").unlink()
    shutil.rmtree(damaged / "base" / "1")
    words = ["salvage", str(damaged), "-o", str(tmp_path / "saved"), "--database", "template1"]
    assert run(words) == 2
    assert not (tmp_path / "saved").exists()
    assert run([*words, "--database", "postgres"]) == 1
    lost, kept = json.loads((tmp_path / "saved" / "manifest.json").read_text())["databases"]
    assert (lost["database"], lost["folder"], [part["what"] for part in lost["lost"]]) == ("template1", "", ["the database"])
    assert kept["rows"] > 1000
    assert (tmp_path / "saved" / "globals.sql").read_text().count("create role") == 2


@pytest.mark.parametrize("seed", range(DAMAGES))
def test_no_damage_of_catalogs_is_a_traceback(dead_18: Dead, damaged: Path, tmp_path: Path, seed: int) -> None:
    """Each file of a catalog may be damaged anywhere: what is left comes back, or one error says why not."""
    chance = random.Random(seed)
    names = [name for name, path in dead_18.files.items() if name.startswith("pg_") and (damaged / path).stat().st_size]
    for name in chance.sample(sorted(names), 6):
        file = damaged / dead_18.files[name]
        content = bytearray(file.read_bytes())
        for _ in range(30):
            at = chance.randrange(len(content))
            content[at : at + 8] = chance.randbytes(8)[: len(content) - at]
        file.write_bytes(content)
    assert run(["salvage", str(damaged), "-o", str(tmp_path / "saved")]) in (0, 1, 2)


def test_what_is_not_ours_is_not_replaced(dead_18: Dead, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, line = tmp_path / "saved", ["salvage", str(dead_18.data_dir), "-o", str(tmp_path / "saved")]
    out.mkdir()
    (out / "mine").touch()
    for words in (line, [*line, "--force"]):
        assert run(words) == 2
        assert "it is not what this command writes, so --force does not replace it" in capsys.readouterr().err
        assert [path.name for path in out.iterdir()] == ["mine"]
    (out / "mine").unlink()
    assert run(line) == 1
    assert run(line) == 2
    assert "hint: use --force to replace it" in capsys.readouterr().err
    (out / "postgres" / "old").touch()
    assert run([*line, "--force"]) == 1
    assert not (out / "postgres" / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_database_that_is_not_there(dead_18: Dead, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["salvage", str(dead_18.data_dir), "-o", str(tmp_path / "saved"), "--database", "shop"]) == 2
    assert "  detail: existing databases: postgres, template0, template1\n" in capsys.readouterr().err
    assert not (tmp_path / "saved").exists()
