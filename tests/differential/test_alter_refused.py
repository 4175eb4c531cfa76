"""`leadline alter resolve`: what users have made around a table stays untouched, or the table is refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from alter_parts import alter, make_small, sums
from conftest import Server


@pytest.fixture(params=(13, 15, 18), ids=lambda major: f"pg{major}")
def some(request: pytest.FixtureRequest, servers: Any) -> Server:
    """Where the majors between behave as their neighbours."""
    server: Server = servers(request.param)
    return server


def test_triggers_do_not_fire_and_those_that_always_do_are_refused(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with some.connect() as connection:
        make_small(connection, "triggered")
        connection.execute("create or replace function spoil() returns trigger language plpgsql as 'begin new.n = -1; return new; end'")
        connection.execute("create trigger spoil before update on triggered for each row execute function spoil()")
        connection.execute("alter table triggered enable always trigger spoil")
        refused = alter(capsys, "resolve", some.dsn, "--table", "triggered", code=2)["error"]
        assert (refused["kind"], "spoil fires in every mode" in refused["detail"]) == ("unsupported", True)
        connection.execute("alter table triggered enable trigger spoil")
        [done] = alter(capsys, "resolve", some.dsn, "--table", "triggered")
        assert done["rows_rewritten"] == 100 and "triggers: spoil does not fire" in " ".join(done["notes"])
        assert connection.execute("select sum(n) from triggered").fetchone() == (5050,)
        connection.execute("update triggered set id = id where id = 1")
        assert connection.execute("select n from triggered where id = 1").fetchone() == (-1,)
        make_small(connection, "ruled")
        connection.execute("create rule nothing as on update to ruled do instead nothing")
        assert "rule nothing" in alter(capsys, "resolve", some.dsn, "--table", "ruled", code=2)["error"]["detail"]


def test_generated_and_identity_columns_keep_their_values(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    columns = "id int generated always as identity primary key, n int, twice int generated always as (n * 2) stored, free int default 5"
    with some.connect() as connection:
        make_small(connection, "computed", columns)
        before = sums(connection, "computed", "id, n, twice, free")
        [planned] = alter(capsys, "resolve", some.dsn, "--table", "computed", "--dry-run")
        assert "set free = t.free where" in planned["statement"]
        assert {"generated columns: copied, not recomputed", "identity columns: not changed"} <= set(planned["notes"])
        [done] = alter(capsys, "resolve", some.dsn, "--table", "computed")
        assert (done["rows_rewritten"], done["rows_remaining"]) == (100, 0)
        assert sums(connection, "computed", "id, n, twice, free") == before
        connection.execute("alter table computed drop column n cascade, drop column free, drop column added")
        assert "no column that an UPDATE can set" in alter(capsys, "resolve", some.dsn, "--table", "computed", code=2)["error"]["detail"]


def test_publications_need_a_replica_identity(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with some.connect() as connection:
        make_small(connection, "published", "id int, n int")
        connection.execute("drop publication if exists sent")
        connection.execute("create publication sent for table published")
        refused = alter(capsys, "resolve", some.dsn, "--table", "published", code=2)["error"]
        assert "no usable replica identity" in refused["detail"]
        connection.execute("alter table published replica identity full")
        [done] = alter(capsys, "resolve", some.dsn, "--table", "published")
        assert done["rows_remaining"] == 0 and "publication sent: each rewritten row" in " ".join(done["notes"])
        connection.execute("drop publication sent")


def test_row_security_and_missing_rights_are_refused(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with some.connect() as connection:
        connection.execute("drop table if exists guarded")
        connection.execute("drop role if exists clerk")
        connection.execute("create role clerk login")
        make_small(connection, "guarded")
        connection.execute("alter table guarded owner to clerk")
        connection.execute("grant pg_read_all_settings to clerk")
        connection.execute("alter table guarded enable row level security")
        connection.execute("alter table guarded force row level security")
        dsn = psycopg.conninfo.make_conninfo(some.dsn, user="clerk")
        assert "row security" in alter(capsys, "resolve", dsn, "--table", "guarded", code=2)["error"]["detail"]
        connection.execute("alter table guarded no force row level security")
        connection.execute("checkpoint")
        [done] = alter(capsys, "resolve", dsn, "--table", "guarded", code=1)  # it may not run CHECKPOINT: the files stay as they are
        assert (done["is_proven"], done["rows_rewritten"], done["rows_remaining"]) == (False, 100, 100)
        assert "CHECKPOINT was refused" in " ".join(done["notes"])
        [done] = alter(capsys, "resolve", some.dsn, "--table", "guarded")
        assert (done["rows_before"], done["is_proven"]) == (0, True)
        connection.execute("alter table guarded owner to postgres")
        connection.execute("grant select on guarded to clerk")
        connection.execute("alter table guarded add column again int")
        connection.execute("checkpoint")
        refused = alter(capsys, "resolve", dsn, "--table", "guarded", code=2)["error"]
        assert (refused["kind"], refused["message"]) == ("unsupported", "the rows of public.guarded cannot be rewritten")
        connection.execute("alter table guarded disable row level security")
        refused = alter(capsys, "resolve", dsn, "--table", "guarded", code=2)["error"]
        assert (refused["kind"], refused["detail"]) == ("rights", "it has no UPDATE privilege on any column")
        connection.execute("grant update (n) on guarded to clerk")
        [planned] = alter(capsys, "resolve", dsn, "--table", "guarded", "--dry-run")
        assert "set n = t.n where" in planned["statement"]
        connection.execute("drop table guarded")
        connection.execute("drop role clerk")


def test_partitions_are_resolved_one_by_one_and_other_relations_refused(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with some.connect() as connection:
        connection.execute("drop table if exists parted cascade")
        connection.execute("create table parted (id int, n int) partition by list (n)")
        connection.execute("create table parted_1 partition of parted for values in (1)")
        connection.execute("create table parted_2 partition of parted for values in (2) partition by list (id)")
        connection.execute("create table parted_2_5 partition of parted_2 for values in (5)")
        connection.execute("insert into parted values (1, 1), (5, 2)")
        connection.execute("alter table parted add column added int default 3")
        connection.execute("checkpoint")
        found = alter(capsys, "pending", some.dsn, "--table", "parted")
        assert [(r["relation"], r["rows"]) for r in found] == [("public.parted_1", 1), ("public.parted_2_5", 1)]
        done = alter(capsys, "resolve", some.dsn, "--table", "parted")
        counts = [(r["relation"], r["rows_rewritten"], r["rows_remaining"]) for r in done]
        assert counts == [("public.parted_1", 1, 0), ("public.parted_2_5", 1, 0)]
        connection.execute("create or replace view seen as select 1 as id")
        connection.execute("create unlogged table if not exists loose (id int)")
        for name, why in [("seen", "a view"), ("pg_class", "a system table"), ("nowhere", ""), ("loose", "unlogged")]:
            error = alter(capsys, "resolve", some.dsn, "--table", name, code=2)["error"]
            assert why in error["detail"], name
