"""`leadline wal` of a running server, named by a connection string or a pid: the same log as by its folder, and names of relations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, wait_until
from leadline.cli import run
from leadline.files.server import names_a_server

pytestmark = pytest.mark.live
ROWS = 500


@pytest.fixture(scope="module")
def logged(servers: Callable[[int], Server]) -> tuple[Server, str, str]:
    """A server, and from where to where its log has the inserts of one table."""
    server = servers(17)
    server.sql('drop table if exists "Logged Here"')
    server.sql('create table "Logged Here" (id int primary key)')
    start = server.sql("select pg_current_wal_insert_lsn()::text")[0][0]
    server.sql(f'insert into "Logged Here" select generate_series(1, {ROWS})')
    end = server.sql("select pg_current_wal_insert_lsn()::text")[0][0]
    wait_until(lambda: server.sql("select pg_current_wal_flush_lsn() >= %s::pg_lsn", [end])[0][0], what="the log on disk")
    return server, start, end


def answer(capsys: pytest.CaptureFixture[str], *line: Any, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["wal", *map(str, line), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_server_and_its_folder_have_the_same_log(logged: tuple[Server, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    server, start, end = logged
    window = ["--from", start, "--to", end]
    by_folder = answer(capsys, "stats", server.private.data_dir, *window)
    assert sum(r["records"] for r in by_folder if r["rmgr"] == "Heap") >= ROWS
    assert answer(capsys, "stats", server.dsn, *window) == by_folder
    assert answer(capsys, "stats", server.pid, *window) == by_folder


def test_relations_have_names_when_the_server_can_be_asked(logged: tuple[Server, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    server, start, end = logged
    line = ["stats", server.dsn, "--by", "relation", "--from", start, "--to", end]
    named = {r["relation"]: r["records"] for r in answer(capsys, *line) if "relation" in r}
    assert named['public."Logged Here"'] == ROWS and named['public."Logged Here_pkey"'] >= ROWS
    assert run(["wal", *line]) == 0
    assert 'public."Logged Here"' in capsys.readouterr().out
    assert not any("relation" in r for r in answer(capsys, "stats", server.pid, *line[2:]))


def test_a_relation_is_chosen_by_its_name(logged: tuple[Server, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    server, start, end = logged
    window = ["--from", start, "--to", end]
    records = answer(capsys, "show", server.dsn, "--relation", '"Logged Here"', *window)
    assert sum(r["record_type"].startswith("INSERT") for r in records) == ROWS
    changes = answer(capsys, "history", server.dsn, '"Logged Here"', 0, *window)
    assert changes and {c["rmgr"] for c in changes} == {"Heap"}
    assert answer(capsys, "show", server.dsn, "--relation", "absent", code=2)["error"]["kind"] == "not_found"
    error = answer(capsys, "show", server.pid, "--relation", '"Logged Here"', code=2)["error"]
    assert error["kind"] == "usage" and "connection string" in error["hint"]


def test_what_exists_is_a_path_and_a_server_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert names_a_server("4711") and names_a_server("host=/run dbname=shop") and names_a_server("postgres:///shop")
    assert not any(map(names_a_server, ("pg_wal", "000000010000000000000001.gz", "/a=b", "./4711")))
    for name in ("4711", "host=x"):
        (tmp_path / name).touch()
        assert not names_a_server(name)
    assert answer(capsys, "stats", f"host={tmp_path} port=1", code=2)["error"]["kind"] == "connection"
    assert answer(capsys, "stats", "1", code=2)["error"]["kind"] == "not_found"
