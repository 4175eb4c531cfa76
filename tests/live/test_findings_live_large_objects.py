"""Large objects that rows have left behind, on real servers: counted one by one, whatever kind of column names the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from conftest import Server
from leadline.engines.postgres.catalog import large_objects
from leadline.engines.postgres.catalog.connection import connect
from live import captured

pytestmark = pytest.mark.live

RULE = "ORPHANED-LARGE-OBJECTS"
TABLES = """
create domain picture as oid;
create domain portrait as picture;
create schema "My App";
create table "My App"."Document" (id int, "Body" portrait);
create table by_text (id int, body text);
create table by_number (id int, body bigint);
create table many (bodies oid[]);
create table parted (id int, body oid) partition by list (id);
create table parted_1 partition of parted for values in (1);
create table counter (id bigint, note text);
insert into counter select n, 'note ' || n from generate_series(1, 20000) n;
insert into "My App"."Document" select n, lo_from_bytea(0, 'x') from generate_series(1, 12) n;
insert into by_text select n, lo_from_bytea(0, 'x')::text from generate_series(1, 11) n;
insert into by_number select n, lo_from_bytea(0, 'x')::bigint from generate_series(1, 10) n;
insert into many select array_agg(lo_from_bytea(0, 'x')) from generate_series(1, 9) n;
insert into parted select 1, lo_from_bytea(0, 'x') from generate_series(1, 8) n;
"""


@pytest.mark.parametrize("major", [13, 18])
def test_what_rows_leave_behind_is_found_and_removed(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major)
    result = captured(server, tmp_path / "none", 0.3, [RULE])
    assert (result.findings, result.clean) == ([], [RULE]), "no large object at all"
    with server.connect(autocommit=True) as db:
        db.execute(TABLES)  # type: ignore[arg-type]
    assert counted(server) == (50, 0), "each of them has a name"
    server.sql('delete from "My App"."Document" where id <= 5')
    server.sql("delete from by_text where id = 1")
    server.sql("truncate parted")
    assert counted(server) == (50, 14)
    [finding] = captured(server, tmp_path / "some", 0.3, [RULE]).findings
    assert finding.statement.startswith("no column names 14 of the 50 large objects of database postgres; ")
    others = "My App.Document.Body, public.by_number.body, public.by_text.body, public.many.bodies"
    assert f"would remove what is named by {others}." in finding.action.replace('"', "")
    [remove] = [span for span in finding.action.split("`") if span.startswith("SELECT count(lo_unlink")]
    [left] = [span for span in finding.verify.split("`") if span.startswith("SELECT count(*)")]
    assert server.sql(left) == [(14,)] and server.sql(remove) == [(14,)] and server.sql(left) == [(0,)]
    assert counted(server) == (36, 0)


def test_a_role_that_may_not_see_the_rows_calls_nothing_orphaned(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(18)
    with server.connect(autocommit=True) as db:
        db.execute("create role watcher login; grant pg_monitor to watcher; create table t (body oid); grant all on t to watcher")
        db.execute("insert into t select lo_from_bytea(0, 'x'); alter table t enable row level security")
    dsn = psycopg.conninfo.make_conninfo(server.dsn, user="watcher")
    with connect(dsn) as conn:
        found = large_objects.collect(conn)
    assert found.rows == {} and "may not read 1 column that might name one, such as public.t.body" in found.notes[0]


def counted(server: Server) -> tuple[int, int]:
    with connect(server.dsn) as conn:
        found = large_objects.collect(conn)
    values = {row[4]: int(row[5]) for row in found.rows["server_stat"] if row[3] == "postgres"}
    return values["objects"], values["orphans"]
