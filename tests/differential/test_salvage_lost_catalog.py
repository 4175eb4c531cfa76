"""leadline salvage of a database whose catalog is lost: by a template, by columns that are given, by a guess."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, find_client, running
from leadline.cli import run
from leadline.files.salvage import lost_catalog
from leadline.files.salvage.salvage import Database
from recovery import crash
from salvaged import definitions, fill, restore, rows_of
from servers import MAJORS

CATALOGS = ("pg_class", "pg_attribute", "pg_type", "pg_namespace", "pg_depend", "pg_constraint", "pg_proc")


@dataclass
class Lost:
    """A cluster whose server was killed and whose catalogs are gone. backup: a copy of it from before; tables were rewritten since."""

    major: int
    data_dir: Path
    backup: Path
    definitions: dict[str, str]
    rows: dict[str, Any]
    files: dict[str, int]


def catalog_files(server: Server) -> dict[str, str]:
    wanted = "relnamespace = 'pg_catalog'::regnamespace and relkind = 'r'"
    return dict(server.sql(f"select relname, pg_relation_filepath(oid) from pg_class where {wanted}"))


def destroy(data_dir: Path, files: dict[str, str], names: tuple[str, ...] = CATALOGS) -> None:
    for name in names:
        path = data_dir / files[name]
        path.write_bytes(bytes(path.stat().st_size))


@pytest.fixture(scope="module", params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def lost(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    at = tmp_path_factory.mktemp("lost")
    with running(request.param, wal_level="logical") as server:
        fill(server)
        server.sql("checkpoint")
        shutil.copytree(server.private.data_dir, at / "backup")
        server.sql("truncate shop.long")
        server.sql("insert into shop.long select n, repeat('v', 3000) from generate_series(1, 12) n")
        told = definitions(server), rows_of(server)
        paths = dict(
            server.sql(
                "select relname, pg_relation_filepath(oid) from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r'"
            )
        )
        files = dict(
            server.sql(
                "select nspname || '.' || relname, pg_relation_filenode(c.oid)::int from pg_class c"
                " join pg_namespace n on n.oid = relnamespace where relkind in ('r', 'm') and c.oid >= 16384"
            )
        )
        server.sql("checkpoint")
        shutil.copytree(crash(server), at / "data")
    destroy(at / "data", paths)
    yield Lost(request.param, at / "data", at / "backup", *told, files)
    shutil.rmtree(at)


def salvage(data_dir: Path, out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["salvage", str(data_dir), "-o", str(out), *words])
    (database,) = json.loads((out / "manifest.json").read_text())["databases"]
    return code, database


def sources(database: dict[str, Any]) -> dict[str, str]:
    return {table["table"]: table["source"]["by"] for table in database["tables"] if table["source"]["file"]}


def test_an_old_backup_gives_the_definitions(lost: Lost, fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    code, database = salvage(lost.data_dir, tmp_path / "saved", "--template", str(lost.backup))
    by = sources(database)
    assert (code, database["template"]) == (1, f"{lost.backup}: postgres")
    assert by["shop.customer"] == "file number"
    server = fresh_server(lost.major, wal_level="logical")
    restore(tmp_path / "saved", "postgres", server)
    assert definitions(server) == lost.definitions
    assert rows_of(server) == lost.rows


def test_a_staging_server_gives_the_definitions(
    lost: Lost, fresh_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another cluster: nothing tells which file is which table but the rows in it."""
    monkeypatch.setattr(lost_catalog, "is_copy_of", lambda *_: False)  # the servers of tests are copies of one cluster
    other = fresh_server(lost.major, wal_level="logical")
    other.sql("create table first_of_all (n int)")
    other.sql("drop table first_of_all")
    fill(other)
    other.sql("checkpoint")
    template = ("--template", str(other.private.data_dir))
    _, first = salvage(lost.data_dir, tmp_path / "first", *template)
    assert sources(first)["shop.orders"] == sources(first)["shop.customer"] == "shape"
    alike = "it may be file {} or {}".format(*sorted(lost.files[f"shop.{name}"] for name in ("even_part", "pointer")))
    pointer = next(table for table in first["tables"] if table["table"] == "shop.pointer")
    assert (pointer["losses"], pointer["file"]) == ([f"{alike}: choose with --match"], "")
    left = {table["table"].removeprefix("guessed.") for table in first["tables"]}
    matches = [f"--match={number}={name}" for name, number in lost.files.items() if str(number) in left]
    _, database = salvage(lost.data_dir, tmp_path / "saved", *template, *matches)
    of_users = {f"kinds.of_shop_{name}" for name in ("state", "price", "address", "span")}
    assert {table["table"] for table in database["tables"] if "not loaded" in str(table["losses"])} == of_users
    server = fresh_server(lost.major, wal_level="logical")
    restore(tmp_path / "saved", "postgres", server)
    found = rows_of(server)
    tables = [name for name, rows in lost.rows.items() if isinstance(rows, list) and name not in of_users]
    assert {name: found[name] for name in tables} == {name: lost.rows[name] for name in tables}


def test_what_is_left_of_pg_class_names_the_files(
    fresh_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_catalog, "is_copy_of", lambda *_: False)
    server, template = fresh_server(18), fresh_server(18)
    template.sql("create table other (n int)")
    server.sql("create table changed (n int)")
    template.sql("create table changed (at timestamptz, word text)")
    server.sql("insert into changed values (7)")
    for each in (server, template):
        each.sql("create table one (id int, word text)")
        each.sql("create table two (id int, word text)")
        each.sql("checkpoint")
    server.sql("insert into one values (1, 'one')")
    server.sql("insert into two values (2, 'two')")
    server.sql("checkpoint")
    paths = catalog_files(server)
    ((changed,),) = server.sql("select pg_relation_filenode('changed')::int")
    data_dir = tmp_path / "data"
    shutil.copytree(crash(server), data_dir)
    destroy(data_dir, paths, ("pg_attribute", "pg_type"))
    _, database = salvage(data_dir, tmp_path / "saved", "--template", str(template.private.data_dir))
    tables = {table["table"]: table for table in database["tables"]}
    assert {name: (table["source"]["by"], table["rows"]) for name, table in tables.items()} == {
        "public.one": ("pg_class", 1),
        "public.two": ("pg_class", 1),
        "public.other": (None, 0),
        "public.changed": (None, 0),
        f"guessed.{changed}": ("columns guessed", 1),
    }
    why = "pg_class names file {} for it, but the rows in it are not of its columns"
    assert tables["public.changed"]["losses"] == [why.format(changed)]
    assert (tmp_path / "saved" / "postgres" / tables["public.two"]["file"]).read_bytes() == b"2\ttwo\n"


def test_columns_are_given(lost: Lost, fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    numbers, given = lost.files, tmp_path / "columns"
    given.write_text(
        f"""# of three tables
{numbers["shop.long"]} shop.long (id int, word text)
{numbers["shop.event_2026"]} shop."Event" (at timestamp with time zone, kind text, "n" integer)
kinds.uuids (id integer, one uuid, many uuid[])
{numbers["shop.base"]} shop.wrong (at timestamptz)
"""
    )
    code, database = salvage(lost.data_dir, tmp_path / "saved", "--columns-of", str(given))
    assert (code, [part["what"] for part in database["lost"]]) == (1, ["the catalog", "table shop.wrong"])
    by = sources(database)
    assert by["kinds.uuids"] == "columns given; only this file has rows of them"
    server = fresh_server(lost.major)
    assert (tmp_path / "saved" / "globals.sql").read_text().count("create role") == 2
    restore(tmp_path / "saved", "postgres", server)
    found = rows_of(server)
    assert found['shop."Event"'] == lost.rows["shop.event_2026"]
    assert (found["shop.long"], found["kinds.uuids"]) == (lost.rows["shop.long"], lost.rows["kinds.of_uuid"])


def test_columns_are_guessed(lost: Lost, fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    _, database = salvage(lost.data_dir, tmp_path / "saved")
    tables = {table["table"]: table for table in database["tables"]}

    def types(name: str) -> list[str]:
        source = tables[f"guessed.{lost.files[name]}"]["source"]
        return [column["name"].partition("_")[2] for column in source["columns"]]

    assert types("shop.event_2026") == ["timestamptz", "text", "int4"]
    assert types("shop.long") == types("shop.hashed_0") == ["int4", "text"]
    assert types("kinds.of_uuid") == ["int4", "uuid", "uuid[]"]
    assert types("shop.customer")[:6] == ["int4", "text", "text", "bytea", "text[]", "int4"]
    server = fresh_server(lost.major)
    # A table with a line of only \\. does not load as CSV with psql before 18: the others do.
    command = [find_client("psql"), "-X", "-q", "-d", server.dsn, "-f", "load.sql"]
    subprocess.run(command, cwd=tmp_path / "saved" / "postgres" / "guessed", capture_output=True, timeout=60, check=True)
    found = rows_of(server)
    for name in ("shop.event_2026", "shop.long", "shop.hashed_0", "shop.hashed_1", "kinds.of_uuid", "kinds.of_numeric"):
        assert found[f'guessed."{lost.files[name]}"'] == lost.rows[name], name


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ("1=shop.orders", "no file with number 1 has rows of a table"),
        ("{orders}=shop.order", "the template has no table named shop.order"),
        ("{orders}=shop.customer", "file {orders} is not one of shop.customer"),
    ],
)
def test_a_match_that_cannot_be(lost: Lost, tmp_path: Path, capsys: pytest.CaptureFixture[str], match: str, message: str) -> None:
    number = lost.files["shop.orders"]
    words = ["--template", str(lost.backup), "--match", match.format(orders=number)]
    assert run(["salvage", str(lost.data_dir), "-o", str(tmp_path / "saved"), *words]) == 2
    assert f"error: {message.format(orders=number)}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "make", [os.mkfifo, Path.mkdir, Path.touch, lambda path: path.symlink_to(path.name)], ids=["fifo", "empty", "file", "loop"]
)
def test_a_template_that_is_no_data_directory(
    lost: Lost, tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], object]
) -> None:
    make(tmp_path / "template")
    assert run(["salvage", str(lost.data_dir), "-o", str(tmp_path / "out"), "--template", str(tmp_path / "template")]) == 2
    assert "not a PostgreSQL data directory" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_template_of_another_major(tmp_path: Path, capsys: pytest.CaptureFixture[str], fresh_server: Callable[..., Server]) -> None:
    of_18, of_13 = (fresh_server(major).private.data_dir for major in (18, 13))
    assert run(["salvage", str(of_18), "-o", str(tmp_path / "saved"), "--template", str(of_13)]) == 2
    assert "  detail: its major is 13, that of the dead cluster 18: rows do not lie the same\n" in capsys.readouterr().err


def test_without_pg_control_too(lost: Lost, tmp_path: Path) -> None:
    """Then nothing says that the template is a copy of the cluster."""
    copy = tmp_path / "data"
    shutil.copytree(lost.data_dir, copy)
    (copy / "global" / "pg_control").unlink()
    _, database = salvage(copy, tmp_path / "saved", "--template", str(lost.backup))
    orders = next(table for table in database["tables"] if table["table"] == "shop.orders")
    assert (orders["source"]["by"], orders["source"]["file"].split("/")[0]) == ("shape", "base")
    saved = tmp_path / "saved" / "postgres" / orders["file"]
    assert len(saved.read_bytes().splitlines()) == len(lost.rows["shop.orders"])


def test_a_database_by_a_template_is_never_whole() -> None:
    """The command ends with 1: nothing proves that the template has all that the dead database had."""
    assert Database("shop", "shop", "").is_whole
    assert not Database("shop", "shop", "", template="backup: shop").is_whole


@pytest.mark.parametrize("seed", range(2))
def test_no_damage_of_tables_is_a_traceback(lost: Lost, tmp_path: Path, seed: int) -> None:
    """Bytes of tables, TOAST tables and indexes are others, and files are cut anywhere."""
    chance, copy = random.Random(seed), tmp_path / "data"
    shutil.copytree(lost.data_dir, copy)
    folder = next(path for path in (copy / "base").iterdir() if (path / str(lost.files["shop.orders"])).exists())
    files = sorted(path for path in folder.iterdir() if path.name.isdigit() and int(path.name) >= 16384 and path.stat().st_size)
    for path in files:
        content = bytearray(path.read_bytes())
        for _ in range(chance.choice((1, 20, 300))):
            at = chance.randrange(len(content))
            content[at : at + 4] = chance.randbytes(4)[: len(content) - at]
        path.write_bytes(content[: chance.choice((len(content), chance.randrange(len(content))))])
    for words in (["--template", str(lost.backup)], []):
        assert run(["salvage", str(copy), "-o", str(tmp_path / f"saved {len(words)}"), *words]) == 1
