"""leadline alter resolve where things are odd: settings of roles and databases, names, and what others do to the table meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from alter_parts import Said, alter, make_small, sums
from conftest import Server, wait_until
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.files.alter import pending, rescan, resolve, session
from leadline.files.alter.resolve import Resolver

SPOIL = "create or replace function spoil() returns trigger language plpgsql as 'begin new.n = -1; return new; end'"


def resolve_while(
    server: Server, table: str, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, *, batch: int = 10
) -> list[resolve.Outcome]:
    """Resolves a table; `act` happens right before the third transaction."""
    whole, count = Resolver._transaction, 0

    def counting(self: Resolver, *arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            act()
        whole(self, *arguments)

    monkeypatch.setattr(Resolver, "_transaction", counting)
    progress: Any = Said()
    done = resolve.resolve(server.dsn, table, resolve.Options(batch=batch), progress)
    assert count >= 3
    return done


@pytest.fixture
def server(servers: Any) -> Server:
    found: Server = servers(17)
    return found


# -- what others do meanwhile ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("create trigger spoil before update on meanwhile for each row execute function spoil()", ""),
        (
            "create trigger spoil before update on meanwhile for each row execute function spoil();"
            " alter table meanwhile enable always trigger spoil",
            "spoil fires in every mode",
        ),
        ("create rule nothing as on update to meanwhile do instead nothing", "rule nothing"),
        ("alter table meanwhile set unlogged", "unlogged"),
    ],
    ids=["trigger", "always", "rule", "unlogged"],
)
def test_a_table_that_is_changed_meanwhile_is_planned_again(
    server: Server, change: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.connect() as connection:
        make_small(connection, "meanwhile")
        connection.execute(SPOIL)
        before = sums(connection, "meanwhile", "id, n, added")
        act = lambda: connection.execute(change)  # noqa: E731
        if why:
            with pytest.raises(LeadlineError, match="cannot be rewritten") as refused:
                resolve_while(server, "meanwhile", act, monkeypatch)
            assert why in refused.value.detail
        else:
            [done] = resolve_while(server, "meanwhile", act, monkeypatch)
            assert (done.rows_rewritten, done.rows_remaining, done.is_proven) == (100, 0, True)
        assert sums(connection, "meanwhile", "id, n, added") == before


@pytest.mark.parametrize("how", ["vacuum full anew", "alter table anew alter n type int8"])
def test_a_table_that_is_written_anew_meanwhile_is_looked_at_again(server: Server, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.connect() as connection:
        make_small(connection, "anew")
        [done] = resolve_while(server, "anew", lambda: connection.execute(how), monkeypatch)
        assert (done.rows_rewritten, done.rows_remaining, done.is_proven) == (20, 0, True)


def test_another_table_that_takes_the_name_meanwhile_is_left_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.connect() as connection:
        connection.execute("drop table if exists taken_before")
        make_small(connection, "taken")

        def swap() -> None:
            with connection.transaction():
                connection.execute("create table other as table taken")
                connection.execute("alter table taken rename to taken_before")
                connection.execute("alter table other rename to taken")

        [done] = resolve_while(server, "taken", swap, monkeypatch)
        assert (done.rows_rewritten, done.rows_remaining) == (100, 0)
        assert connection.execute("select count(distinct xmin::text) from taken").fetchone() == (1,)


def test_a_partition_that_is_dropped_meanwhile_does_not_end_the_others(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.connect() as connection:
        connection.execute("drop table if exists monthly")
        connection.execute("create table monthly (id int, n int) partition by list (n)")
        for n in (1, 2, 3):
            connection.execute(f"create table monthly_{n} partition of monthly for values in ({n})")
        connection.execute("insert into monthly select i, n from generate_series(1, 30) i, generate_series(1, 3) n")
        connection.execute("alter table monthly add column added int")
        done = resolve_while(server, "monthly", lambda: connection.execute("drop table monthly_1, monthly_3"), monkeypatch)
    assert [(o.rows_rewritten, o.rows_remaining) for o in done] == [(20, 0), (30, 0), (0, 0)]
    assert ["dropped" in " ".join(o.notes) for o in done] == [True, False, True]


@pytest.mark.parametrize("major", [13, 14, 18])
def test_triggers_of_a_partitioned_table_do_not_fire_on_its_partitions(
    major: int, servers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server = servers(major)
    with server.connect() as connection:
        connection.execute("drop table if exists watched")
        connection.execute("create table watched (id int unique deferrable, n int) partition by list (id)")
        connection.execute("create table watched_1 partition of watched for values in (1)")
        connection.execute(SPOIL)
        connection.execute("create trigger spoil before update on watched for each row execute function spoil()")
        connection.execute("insert into watched values (1, 5)")
        connection.execute("alter table watched add column added int")
        [done] = alter(capsys, "resolve", server.dsn, "--table", "watched")
        assert done["rows_rewritten"] == 1 and "spoil does not fire" in " ".join(done["notes"])
        assert "unique" not in " ".join(done["notes"])
        assert connection.execute("select n from watched").fetchone() == (5,)
        connection.execute("alter table watched_1 enable always trigger spoil")
        assert "spoil fires in every mode" in alter(capsys, "resolve", server.dsn, "--table", "watched", code=2)["error"]["detail"]


def test_an_interrupt_between_two_partitions_keeps_what_was_done(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    size, sized = Resolver._size, []

    def interrupted(self: Resolver, table: Any) -> int:
        sized.append(table.oid)
        if len(set(sized)) == 2:
            raise KeyboardInterrupt
        return size(self, table)

    with server.connect() as connection:
        connection.execute("drop table if exists daily")
        connection.execute("create table daily (id int) partition by list (id)")
        for n in (1, 2):
            connection.execute(f"create table daily_{n} partition of daily for values in ({n})")
        connection.execute("insert into daily values (1), (2)")
        connection.execute("alter table daily add column added int")
        monkeypatch.setattr(Resolver, "_size", interrupted)
        progress: Any = Said()
        done = resolve.resolve(server.dsn, "daily", resolve.Options(), progress)
    assert [(o.relation, o.rows_rewritten, o.is_interrupted) for o in done] == [("public.daily_1", 1, True)]


def test_files_that_were_replaced_while_they_were_looked_at_prove_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    scan, changes = pending.scan, iter([True, False])
    with server.connect() as connection:
        make_small(connection, "replaced")

        def replaced(*arguments: Any, **more: Any) -> Any:
            found = scan(*arguments, **more)
            if next(changes):
                connection.execute("vacuum full replaced")
            return found

        monkeypatch.setattr(pending, "scan", replaced)
        progress: Any = Said()
        [done] = resolve.resolve(server.dsn, "replaced", resolve.Options(), progress)
    assert (done.rows_before, done.is_proven) == (0, True)
    assert next(changes, None) is None


def test_who_locks_the_table_is_told_where_it_lasts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "NOTE_S", 0)
    said = Said()
    progress: Any = said
    with server.connect() as connection, server.connect(autocommit=False) as other:
        make_small(connection, "shut")
        other.execute("lock table shut in access exclusive mode")
        other.execute("prepare transaction 'it stays'")
        thread = threading.Thread(target=lambda: resolve.resolve(server.dsn, "shut", resolve.Options(), progress))
        thread.start()
        try:
            wait_until(lambda: any("a prepared transaction (it stays)" in text for text in said.texts), what="a note")
        finally:
            connection.execute("rollback prepared 'it stays'")
            thread.join()
    assert sum("a prepared transaction (it stays)" in text for text in said.texts) == 1


# -- settings --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def clerk(server: Server) -> Any:
    """Gives a superuser with some settings of its own."""
    with server.connect() as connection:

        def made(*settings: str) -> str:
            connection.execute("drop role if exists odd_clerk")
            connection.execute("create role odd_clerk superuser login")
            for setting in settings:
                connection.execute(f"alter role odd_clerk set {setting}")
            return psycopg.conninfo.make_conninfo(server.dsn, user="odd_clerk")

        yield made
        connection.execute("drop role if exists odd_clerk")


def test_triggers_of_replicas_do_not_fire_where_a_role_is_one(server: Server, clerk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        make_small(connection, "applied")
        connection.execute(SPOIL)
        connection.execute("create trigger spoil before update on applied for each row execute function spoil()")
        connection.execute("alter table applied enable replica trigger spoil")
        dsn = clerk("session_replication_role = replica")
        [done] = alter(capsys, "resolve", dsn, "--table", "applied")
        assert done["rows_rewritten"] == 100 and "spoil does not fire" in " ".join(done["notes"])
        assert connection.execute("select sum(n) from applied").fetchone() == (5050,)


@pytest.mark.parametrize("major", [13, 14, 18])
def test_timeouts_of_a_role_do_not_end_it(major: int, servers: Any) -> None:
    server = servers(major)
    with server.connect() as connection:
        connection.execute("drop role if exists hurried")
        connection.execute("create role hurried login")
        timeouts = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
        timeouts += [name for name, since in session.SINCE.items() if connection.info.server_version >= since]
        for name in timeouts:
            connection.execute(f"alter role hurried set {name} = '9s'")
        with session.open_session(psycopg.conninfo.make_conninfo(server.dsn, user="hurried")) as own:
            assert {name: own.execute(f"show {name}").fetchone()[0] for name in timeouts} == {n: session.SETTINGS[n] for n in timeouts}
        connection.execute("drop role hurried")


def test_a_pooler_is_refused_before_anything_is_set(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: 1))  # a pooler makes one up
    with pytest.raises(LeadlineError, match="through a pooler"):
        session.open_session(server.dsn)


def test_who_may_only_read_is_told_so(server: Server, clerk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        make_small(connection, "shown")
    refused = alter(capsys, "resolve", clerk("default_transaction_read_only = on"), "--table", "shown", code=2)["error"]
    assert (refused["kind"], refused["detail"]) == ("unsupported", "default_transaction_read_only is on")


def test_functions_of_others_are_not_called_for_the_servers(server: Server, clerk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        make_small(connection, "trapped")
        connection.execute("create schema if not exists traps")
        try:
            trap = "language plpgsql as $$ begin raise 'a trap'; end $$"
            connection.execute(f"create or replace function traps.quote_ident(name) returns text {trap}")
            connection.execute(f"create or replace function traps.pg_stat_get_xact_tuples_hot_updated(int) returns int8 {trap}")
            connection.execute(f"create or replace function traps.is_it(tid, tid) returns bool {trap}")
            connection.execute("create operator traps.= (leftarg = tid, rightarg = tid, function = traps.is_it)")
            [done] = alter(capsys, "resolve", clerk("search_path = traps, public, pg_catalog"), "--table", "trapped")
            assert (done["rows_rewritten"], done["rows_remaining"]) == (100, 0)
        finally:
            connection.execute("drop schema traps cascade")


def test_constraints_find_what_the_search_path_has(server: Server, clerk: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        connection.execute("create schema if not exists helpers")
        connection.execute("create or replace function helpers.fine(int) returns bool language sql as 'select true'")
        make_small(connection, "helped")
        calls = "create or replace function public.is_fine(int) returns bool language plpgsql as 'begin return fine($1); end'"
        connection.execute(calls)
        connection.execute("alter table helped add constraint fine check (is_fine(n)) not valid")
    [done] = alter(capsys, "resolve", clerk("search_path = helpers, public"), "--table", "helped")
    assert (done["rows_rewritten"], done["rows_remaining"]) == (100, 0)
    failed = alter(capsys, "resolve", clerk(), "--table", "helped")
    assert failed[0]["rows_before"] == 0


# -- rows that cannot be written -------------------------------------------------------------------------------------------


def test_a_row_that_is_too_long_with_its_new_columns_is_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        connection.execute("drop table if exists long")
        connection.execute(f"create table long ({', '.join(f'c{i} int8' for i in range(900))})")
        connection.execute(f"insert into long values ({', '.join('1' * 900)})")
        connection.execute(f"alter table long {', '.join(f'add x{i} int8 default {i}' for i in range(200))}")
    [done] = alter(capsys, "resolve", server.dsn, "--table", "long", code=1)
    assert (done["rows_rewritten"], done["rows_remaining"], done["rows_unwritable"]) == (0, 1, 1)
    assert "row is too big" in done["notes"][-1] and "columns that were added" in done["notes"][-1]


def test_code_that_fails_on_a_row_is_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        make_small(connection, "coded")
        connection.execute("create or replace function checks(int) returns bool immutable language plpgsql as 'begin return true; end'")
        connection.execute("alter table coded add constraint coded_n check (checks(n))")
        fails = "begin if $1 = 9 then raise ''no nine''; end if; return true; end"
        connection.execute(f"create or replace function checks(int) returns bool immutable language plpgsql as '{fails}'")
        [done] = alter(capsys, "resolve", server.dsn, "--table", "coded", code=1)
        assert (done["rows_rewritten"], done["rows_remaining"], "no nine" in done["notes"][-1]) == (99, 1, True)
        missing = "begin return exists (select from nowhere_at_all); end"
        connection.execute(f"create or replace function checks(int) returns bool immutable language plpgsql as '{missing}'")
        failed = alter(capsys, "resolve", server.dsn, "--table", "coded", code=2)["error"]
        assert (failed["kind"], "nowhere_at_all" in failed["detail"]) == ("query", True)


def test_a_deferrable_primary_key_is_no_replica_identity(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        make_small(connection, "deferred", "id int primary key deferrable, n int")
        connection.execute("drop publication if exists of_deferred")
        connection.execute("create publication of_deferred for table deferred")
        try:
            refused = alter(capsys, "resolve", server.dsn, "--table", "deferred", code=2)["error"]
            assert (refused["kind"], "no usable replica identity" in refused["detail"]) == ("unsupported", True)
        finally:
            connection.execute("drop publication of_deferred")


# -- names -----------------------------------------------------------------------------------------------------------------


def test_names_of_any_kind_are_found_and_harmless(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        name = '100%s "odd"\n\x1b[31mTable'
        quoted = '"' + name.replace('"', '""') + '"'
        make_small(connection, quoted, 'id int primary key, "n%%d" int')
        connection.execute("checkpoint")
        assert run(["alter", "resolve", server.dsn, "--table", quoted, "--dry-run"]) == 0
        printed = capsys.readouterr().out
        assert "\x1b" not in printed and printed.count("%s") > 1 and "%%d" not in printed.replace('"n%%d"', "")
        [done] = alter(capsys, "resolve", server.dsn, "--table", f"public.{name}")
        assert (done["rows_rewritten"], done["rows_remaining"]) == (100, 0)
        connection.execute(f"alter table {quoted} add constraint few check (id < 100) not valid, add column again int")
        assert run(["alter", "resolve", server.dsn, "--table", quoted]) == 1
        printed = " ".join(capsys.readouterr().out.split())
        assert "\x1b" not in printed and "a row cannot be rewritten" in printed and 'violates check constraint "few"' in printed
        for wrong in ('"', "a.b.c.d", "", "traps.none"):
            assert alter(capsys, "resolve", server.dsn, "--table", wrong, code=2)["error"]["kind"] == "not_found"


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_databases_of_other_encodings(server: Server, encoding: str, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        connection.execute("drop database if exists encoded")
        connection.execute(f"create database encoded encoding '{encoding}' locale 'C' template template0")
        dsn = psycopg.conninfo.make_conninfo(server.dsn, dbname="encoded")
        with server.connect(dbname="encoded", client_encoding="utf8") as inside:
            make_small(inside, '"grün"')
        [done] = alter(capsys, "resolve", dsn, "--table", '"grün"')
        assert (done["relation"], done["rows_rewritten"], done["is_proven"]) == ("public.grün", 100, True)
        assert [row["relation"] for row in done["before"]] == ["public.grün"]
        connection.execute("drop database encoded")


def test_a_table_that_is_not_in_the_files_yet_is_told_where_no_checkpoint_is_allowed(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with server.connect() as connection:
        connection.execute("drop role if exists novice")
        connection.execute("create role novice login in role pg_read_all_settings")
        connection.execute("checkpoint")
        make_small(connection, "unwritten")
        connection.execute("alter table unwritten owner to novice")
        dsn = psycopg.conninfo.make_conninfo(server.dsn, user="novice")
        refused = alter(capsys, "resolve", dsn, "--table", "unwritten", code=2)["error"]
        assert (refused["kind"], refused["message"]) == ("not_found", "public.unwritten has not been written to disk yet")
        assert "cannot run CHECKPOINT" in refused["detail"]
        connection.execute("drop owned by novice")
        connection.execute("drop role novice")


def test_a_table_that_is_written_anew_all_the_time_is_not_proven(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    scan, count = pending.scan, 0
    with server.connect() as connection:
        make_small(connection, "restless")

        def replaced(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            found = scan(*arguments, **more)
            connection.execute("vacuum full restless")
            return found

        monkeypatch.setattr(pending, "scan", replaced)
        progress: Any = Said()
        [done] = resolve.resolve(server.dsn, "restless", resolve.Options(), progress)
    assert (done.is_proven, count) == (False, rescan.LOOKS)
    assert "rewritten repeatedly" in " ".join(done.notes)


def test_tables_that_are_not_heaps_and_temporary_ones_are_refused(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        connection.execute("drop access method if exists heaps cascade")
        connection.execute("create access method heaps type table handler heap_tableam_handler")
        connection.execute("create table elsewhere (id int) using heaps")
        assert "access method is heaps" in alter(capsys, "resolve", server.dsn, "--table", "elsewhere", code=2)["error"]["detail"]
        connection.execute("create temp table fleeting (id int)")
        [schema] = connection.execute("select relnamespace::regnamespace::text from pg_class where relname = 'fleeting'").fetchone()
        assert "temporary" in alter(capsys, "resolve", server.dsn, "--table", f"{schema}.fleeting", code=2)["error"]["detail"]


def test_tables_that_inherit_are_left_alone_and_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        make_small(connection, "ancestor")
        connection.execute("create table heir () inherits (ancestor)")
        connection.execute("insert into heir values (1, 1)")
        connection.execute("alter table ancestor add column late int")
        [done] = alter(capsys, "resolve", server.dsn, "--table", "ancestor")
        assert (done["rows_rewritten"], "child tables" in " ".join(done["notes"])) == (100, True)
        [left] = alter(capsys, "pending", server.dsn, "--table", "heir")
        assert left["rows"] == 1


def test_no_table_is_looked_at_twice_where_nothing_is_to_do(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, count = rescan.checkpoint, 0

    def counting(connection: Any) -> Any:
        nonlocal count
        count += 1
        return checkpoint(connection)

    with server.connect() as connection:
        connection.execute("drop table if exists calm")
        connection.execute("create table calm (id int) partition by list (id)")
        for n in range(4):
            connection.execute(f"create table calm_{n} partition of calm for values in ({n})")
        connection.execute("insert into calm select generate_series(0, 2)")
    monkeypatch.setattr(rescan, "checkpoint", counting)
    progress: Any = Said()
    assert [o.rows_before for o in resolve.resolve(server.dsn, "calm", resolve.Options(), progress)] == [0] * 4
    assert count == 1
