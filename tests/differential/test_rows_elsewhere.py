"""Rows where folders are lost: a tablespace that its link does not lead to, a database that was being dropped.

Oracle: what the server answered before it ended.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Server, running
from leadline.cli import run
from recovery import recover, started
from test_recover_copies import killed

FILES = 20_000  # in the folder of a database: to remove them takes a while


@dataclass
class Spaced:
    """A stopped server with a tablespace. link: to it. path: of a table in it."""

    root: Path
    link: Path
    path: str


@pytest.fixture(scope="module")
def spaced() -> Iterator[Spaced]:
    with running(17, autovacuum=False) as server:
        root = server.private.data_dir
        folder = root.parent / "away"
        folder.mkdir()
        os.chown(folder, root.stat().st_uid, root.stat().st_gid)
        server.sql(f"create tablespace away location '{folder}'")
        server.sql("create table here as select 1 as n")
        server.sql("create table there tablespace away as select 2 as n")
        server.sql("create materialized view seen as select 3 as n")
        server.sql("create table parted (n int) partition by range (n)")
        server.sql("create table part partition of parted for values from (0) to (9)")
        server.sql("insert into parted values (4)")
        server.sql("create view viewed as select 1 as n")
        with server.connect() as connection:
            connection.autocommit = True
            connection.execute("create database moved tablespace away")
        [[oid]] = server.sql("select oid::int8 from pg_tablespace where spcname = 'away'")
        [[path]] = server.sql("select pg_relation_filepath('there')")
        server.private.stop()
        yield Spaced(root, root / "pg_tblspc" / str(oid), path)


def rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, object]:
    capsys.readouterr()
    code = run(["rows", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_relations_whose_file_is_named_elsewhere_and_those_without_rows(spaced: Spaced, capsys: pytest.CaptureFixture[str]) -> None:
    of = ("--database", "postgres")
    for name in ("pg_class", "pg_attribute", "pg_proc", "pg_type", "pg_database", "pg_authid"):  # relfilenode 0
        code, found = rows(capsys, spaced.root, name, *of, "--limit", "3")
        assert (code, isinstance(found, list) and len(found)) == (0, 3)
    assert rows(capsys, spaced.root, "seen", *of) == (0, [{"ctid": "(0,1)", "n": "3"}])
    assert rows(capsys, spaced.root, "parted", *of) == (0, [{"partition": "public.part", "ctid": "(0,1)", "n": "4"}])
    code, found = rows(capsys, spaced.root, "viewed", *of)
    assert isinstance(found, dict)
    assert (code, found["error"]["message"]) == (2, "viewed stores no rows: it is a view")


@pytest.mark.parametrize("how", ["gone", "nowhere", "empty", "itself"])
def test_a_tablespace_that_is_not_there_is_said_and_the_rest_is_read(
    how: str, spaced: Spaced, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, of = spaced.root, ("--database", "postgres")
    assert rows(capsys, root, "there", *of) == (0, [{"ctid": "(0,1)", "n": "2"}])
    assert rows(capsys, root / spaced.path) == (0, [{"ctid": "(0,1)", "n": "2"}])
    folder = spaced.link.readlink()
    spaced.link.unlink()
    to = {"nowhere": tmp_path / "none", "empty": tmp_path, "itself": spaced.link}.get(how)
    message = {
        "gone": "a tablespace is missing: there is no link to it",
        "nowhere": "a tablespace is missing: its link leads nowhere",
        "empty": "the tablespace has no files of this server",
    }.get(how, "cannot read a file of the data directory")
    if to is not None:
        spaced.link.symlink_to(to)
    try:
        for name in ("there", "--database=moved"):
            code, found = rows(capsys, root, *(("there", *of) if name == "there" else ("pg_class", name)))
            assert isinstance(found, dict)
            assert (code, found["error"]["message"], found["error"]["where"]) == (2, message, str(spaced.link))
            assert ("ln -sfn" in found["error"]["hint"]) == (how != "itself")
        assert rows(capsys, root, "here", *of) == (0, [{"ctid": "(0,1)", "n": "1"}])
        assert run(["alter", "pending", str(root)]) == 1
        printed = capsys.readouterr().err
        assert f"warning: database moved cannot be read: {message}" in printed
        assert f"not looked at: public.there: {message}" in printed
        assert run(["page", "check", str(root), "--json"]) == 1
        problems = json.loads(capsys.readouterr().out)["problems"]
        assert [p["message"] for p in problems if p["class"] == "tablespace"] == ["the tablespace of postgres.public.there is missing"]
        assert [p["relation"] for p in problems if p["class"] == "catalog"] == ["moved"]
    finally:
        spaced.link.unlink(missing_ok=True)
        spaced.link.symlink_to(folder)


@pytest.mark.parametrize("major", [15, 18])
def test_a_server_that_is_killed_while_it_drops_a_database(major: int, capsys: pytest.CaptureFixture[str]) -> None:
    with running(major, autovacuum=False) as server:
        root = server.private.data_dir
        with server.connect() as connection:
            connection.autocommit = True
            connection.execute("create table kept as select 7 as n")
            connection.execute("create database dropped")
            [[oid]] = connection.execute("select oid::int8 from pg_database where datname = 'dropped'").fetchall()
            connection.execute("checkpoint")
        kill_while_dropped(server, root / "base" / str(oid))
        assert rows(capsys, root, "kept", "--database", "postgres")[1] == [{"ctid": "(0,1)", "n": "7"}]
        code, found = rows(capsys, root, "pg_class", "--database", "dropped")
        assert code == 2 and isinstance(found, dict) and found["error"]["kind"] in ("not_found", "invalid")
        assert run(["alter", "pending", str(root), "--json"]) == 1
        assert "warning: database dropped cannot be read: " in capsys.readouterr().err
        done = recover(root)
        assert done.returncode == 0, done.stderr
        with started(server, root) as again:
            assert again.sql("select n from kept") == [(7,)]
            [[limit]] = again.sql("select datconnlimit from pg_database where datname = 'dropped'")
        assert limit == -2
        code, found = rows(capsys, root, "pg_class", "--database", "dropped")
        assert code == 2 and isinstance(found, dict)
        assert found["error"]["hint"] == "the server was stopped while it dropped database dropped"
        assert rows(capsys, root, "kept") == (0, [{"ctid": "(0,1)", "n": "7"}])


def kill_while_dropped(server: Server, folder: Path) -> None:
    about = folder.stat()
    for number in range(FILES):
        path = folder / f"9{number:07}"
        path.touch()
        os.chown(path, about.st_uid, about.st_gid)
    with closing(server.connect()) as connection:
        connection.pgconn.send_query(b"drop database dropped")
        connection.pgconn.flush()
        deadline = time.monotonic() + 60
        while sum(1 for _ in os.scandir(folder)) >= FILES:
            assert time.monotonic() < deadline
        killed(server)
    assert folder.exists(), "it was killed too late"
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    os.chown(folder, about.st_uid, about.st_gid)
