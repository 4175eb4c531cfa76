"""Names, settings and counters: the catalog files say the same as SQL on every major, and secrets stay out."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from conftest import Server, wait_until
from leadline.capture.store import Store
from leadline.engines.postgres.catalog import conf, queries, sql
from leadline.engines.postgres.catalog.connection import connect
from leadline.engines.postgres.catalog.files import collect
from leadline.engines.postgres.catalog.queries import OWN_SETTINGS, views_of
from leadline.engines.postgres.catalog.secrets import MASK, mask_setting
from leadline.errors import LeadlineError
from leadline.files.pages.relation import place_in_server
from servers import MAJORS

SCHEMA = """
drop schema if exists catalog_test cascade; create schema catalog_test;
create table catalog_test.plain(id bigserial primary key, t text);
insert into catalog_test.plain(t) select repeat('x', 10) from generate_series(1, 2000);
create index "Odd Näme" on catalog_test.plain(t);
create materialized view catalog_test.m as select count(*) from catalog_test.plain;
create table catalog_test.parts(a int, b int) partition by range (a);
create table catalog_test.part1 partition of catalog_test.parts for values from (0) to (10);
create index on catalog_test.parts(b);
create table catalog_test.gone(a int);
create table catalog_test.renamed(a int); alter table catalog_test.renamed rename to renamed_twice;
truncate catalog_test.plain
"""


def prepared(server: Server) -> Server:
    for statement in SCHEMA.split(";"):
        server.sql(statement)
    server.sql("drop table catalog_test.gone")
    server.sql("vacuum full catalog_test.plain")
    with server.connect(autocommit=False) as conn:
        conn.execute("create table catalog_test.never_committed(a int)")
        conn.rollback()
    server.sql("vacuum pg_class")
    server.sql("checkpoint")
    return server


@pytest.mark.parametrize("major", MAJORS)
def test_catalog_files_say_what_sql_says(major: int, fresh_server) -> None:
    pg = prepared(fresh_server(major, autovacuum=False))  # which changes pg_class whenever it likes
    from_files = collect(Path(pg.private.data_dir))
    with connect(pg.dsn) as conn:
        static, relations = sql.collect_static(conn), sql.collect_relations(conn)
        datid = conn.execute("select oid from pg_database where datname = current_database()").fetchone()
    assert datid is not None
    assert sorted(from_files.rows["role"]) == sorted(static.rows["role"])
    assert sorted(row[:3] for row in from_files.rows["database"]) == sorted(row[:3] for row in static.rows["database"])
    in_files = {row[1]: row for row in from_files.rows["relation"] if row[0] in (0, datid[0])}
    over_sql = {row[1]: row for row in relations.rows["relation"]}
    assert in_files.keys() == over_sql.keys()
    different = [(in_files[oid], row) for oid, row in over_sql.items() if in_files[oid][:9] != row[:9] or in_files[oid][10] != row[10]]
    assert different == []
    names = {row[5] for row in in_files.values()}
    assert {"plain", "Odd Näme", "renamed_twice", "part1", "parts"} <= names and not {"gone", "never_committed"} & names


def test_an_index_and_a_toast_table_name_their_table(servers) -> None:
    server = prepared(servers(16))
    with connect(server.dsn) as conn:
        rows = {row[5]: row for row in sql.collect_relations(conn).rows["relation"]}
    table = rows["plain"][1]
    assert rows["Odd Näme"][8] == table
    assert rows[f"pg_toast_{table}"][8] == table and rows[f"pg_toast_{table}_index"][8] == table


def test_sizes_do_not_wait_for_a_locked_relation(servers) -> None:
    server = prepared(servers(16))
    with server.connect(autocommit=False) as holder:
        holder.execute("lock table catalog_test.plain in access exclusive mode")
        with connect(server.dsn) as conn:
            found = sql.collect_relations(conn)
    sizes = {row[5]: row[9] for row in found.rows["relation"]}
    assert sizes["plain"] == -1 and sizes["part1"] == 0 and sizes["pg_class"] > 0
    assert found.notes == []


def test_every_view_of_the_major_is_read(pg: Server) -> None:
    # 13 and 14 hand their counters to a collector, which shows them later
    commits_shown = "select xact_commit > 0 from pg_stat_database where datname = 'postgres'"
    wait_until(lambda: pg.sql(commits_shown)[0][0], what="the first commit in pg_stat_database")
    with connect(pg.dsn) as conn:
        found = sql.collect_counters(conn, "before")
    views = {row[2] for row in found.rows["server_stat"]}
    expected = {"pg_stat_database", "pg_stat_bgwriter"}
    expected |= {"pg_stat_wal"} if pg.major >= 14 else set()
    expected |= {"pg_stat_io"} if pg.major >= 16 else set()
    expected |= {"pg_stat_checkpointer"} if pg.major >= 17 else set()
    assert expected <= views
    assert found.notes == []
    commits = [row for row in found.rows["server_stat"] if row[2:5] == ("pg_stat_database", "postgres", "xact_commit")]
    assert len(commits) == 1 and commits[0][5] > 0


def test_each_major_has_each_view_once() -> None:
    for major in range(12, 20):
        names = [view.view for view in views_of(major)]
        assert len(names) == len(set(names))


def test_statement_counters_per_query_id(fresh_server) -> None:
    for major in (13, 17):
        server = fresh_server(major, shared_preload_libraries="pg_stat_statements")
        server.sql("create schema ext")
        server.sql("create extension pg_stat_statements schema ext")
        for _ in range(7):
            server.sql("select 'seven times'")
        with connect(server.dsn) as conn:
            found = sql.collect_counters(conn, "after")
        calls = [row[5] for row in found.rows["server_stat"] if row[2] == "pg_stat_statements" and row[4] == "calls"]
        assert 7.0 in calls
        assert found.notes == []


def test_prepared_transactions_and_slots_show_their_age(fresh_server) -> None:
    server = fresh_server(15, max_prepared_transactions=2, wal_level="logical")
    server.sql("create table t(a int)")
    with server.connect(autocommit=False) as conn:
        conn.execute("insert into t values (1)")
        conn.execute("prepare transaction 'left behind'")
        conn.commit()
    server.sql("select pg_create_physical_replication_slot('standby', true)")
    with connect(server.dsn) as conn:
        rows = {row[2:5]: row[5] for row in sql.collect_counters(conn, "after").rows["server_stat"]}
    assert rows[("pg_prepared_xacts", "postgres/left behind", "transaction_age")] >= 1
    assert rows[("pg_prepared_xacts", "postgres/left behind", "prepared")] > 1.6e9
    assert rows[("pg_replication_slots", "standby", "active")] == 0.0
    assert rows[("pg_replication_slots", "standby", "restart_lsn")] > 0


def test_missing_rights_become_notes(servers) -> None:
    server = servers(16)
    server.sql("drop role if exists plainuser")
    server.sql("create role plainuser login")
    with connect(f"{server.dsn} user=plainuser") as conn:
        found = sql.collect_static(conn)
        counters = sql.collect_counters(conn, "before")
    assert any("pg_hba_file_rules" in note and "permission" in note for note in found.notes)
    assert found.rows["setting"] and found.rows["database"] and counters.rows["server_stat"]


def test_tables_are_chosen_by_what_they_do_and_what_waits_in_them(pg: Server) -> None:
    """A table, its TOAST table and the catalogs, with what the table sets for itself; no table is opened, so none is waited for."""
    pg.sql("drop table if exists chosen, chosen_parent")
    pg.sql("create table chosen (a int primary key, b text) with (autovacuum_enabled = off, autovacuum_vacuum_scale_factor = 0.05)")
    pg.sql("alter table chosen alter b set storage external, set (toast.autovacuum_enabled = off)")
    pg.sql("create table chosen_parent (a int) partition by range (a)")
    pg.sql("create table chosen_part partition of chosen_parent for values from (0) to (1000)")
    pg.sql("insert into chosen_parent select generate_series(1, 100); analyze chosen_part")
    with pg.connect() as db:
        db.execute("insert into chosen select i, repeat('x', 3000) from generate_series(1, 100) i")
        db.execute("delete from chosen where a <= 40; select count(*) from chosen; select * from chosen where a = 90")
    with pg.connect() as holder, connect(pg.dsn) as conn:
        holder.autocommit = False
        holder.execute("lock table chosen in access exclusive mode")

        def read() -> dict[tuple[str, str], dict[str, float]]:
            found = sql.collect_counters(conn, "after")
            assert found.notes == ["pg_stat_statements is not installed in the connected database: no counters per statement"]
            rows: dict[tuple[str, str], dict[str, float]] = {}
            for _, _, view, name, metric, value in found.rows["server_stat"]:
                rows.setdefault((view, name.removeprefix("postgres/")), {})[metric] = value
            return rows

        table = ("pg_stat_user_tables", "public/chosen")
        rows = wait_until(lambda: r if (r := read())[table]["n_dead_tup"] == 40 else None, what="the counters of the table")
    chosen, toast = rows[table], rows[("pg_stat_toast_tables", "public/chosen")]
    assert [(chosen["relid"],)] == pg.sql("select 'chosen'::regclass::oid::int8")
    assert chosen | {"n_live_tup": 60, "autovacuum_enabled": 0, "autovacuum_vacuum_scale_factor": 0.05} == chosen
    assert chosen["idx_scan"] >= 1 and chosen["seq_tup_read"] >= 60
    assert toast | {"n_dead_tup": 80, "autovacuum_enabled": 0} == toast
    parent = rows[("pg_stat_user_tables", "public/chosen_parent")]
    assert parent | {"is_partitioned": 1, "partitions": 1, "partition_rows": 100} == parent
    assert rows[("pg_stat_sys_tables", "pg_catalog/pg_class")]["n_tup_ins"] > 0
    pg.sql("drop table chosen, chosen_parent")


def test_other_databases_are_said_not_to_be_looked_at() -> None:
    assert sql.not_looked_at("a", ["a"]) == []
    assert sql.not_looked_at("a", ["c", "a", "b"]) == ["table statistics are those of database a: tables of c, b were not looked at"]
    [note] = sql.not_looked_at("a", list("bcdefgh"))
    assert "tables of b, c, d, e, f and 2 more were" in note


def test_statement_columns_are_those_of_the_extension() -> None:
    old = queries.statements("ext", ["queryid", "calls", "total_time", "mean_time", "rows"])
    assert "sum(total_time)" in old and "order by sum(total_time)" in old and "mean" not in old and "plans" not in old
    new = queries.statements("ext", ["queryid", "calls", "total_exec_time", "jit_generation_time", "jit_deform_time"])
    assert "sum(jit_generation_time)" in new and "order by sum(total_exec_time)" in new and "deform" not in new


def test_busy_databases_come_from_the_counters() -> None:
    def row(phase: str, database: str, metric: str, value: float) -> tuple[object, ...]:
        return (1, phase, "pg_stat_database", database, metric, value)

    before = [row("before", name, "xact_commit", 100.0) for name in ("a", "b", "c")]
    after = [row("after", "a", "xact_commit", 105.0), row("after", "b", "xact_commit", 900.0), row("after", "c", "xact_commit", 101.0)]
    after += [row("after", "c", "numbackends", 2.0), row("after", "a", "numbackends", 0.0)]
    assert sql.busy_databases(before, after) == ["b", "c"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("primary_conninfo", "host=a password=geheim user=b", f"host=a password={MASK} user=b"),
        ("primary_conninfo", "host=a password='ge heim' user=b", f"host=a password={MASK} user=b"),
        ("primary_conninfo", "postgresql://u:geheim@h/db", f"postgresql://u:{MASK}@h/db"),
        ("archive_command", "PGPASSWORD=geheim pg_x %p", f"PGPASSWORD={MASK} pg_x %p"),
        ("ssl_passphrase_command", "echo geheim", MASK),
        ("myext.api_key", "geheim", MASK),
        ("password_encryption", "scram-sha-256", "scram-sha-256"),
        ("ssl_passphrase_command_supports_reload", "off", "off"),
        ("work_mem", "4096", "4096"),
        ("archive_command", "", ""),
    ],
)
def test_secrets_in_settings_are_masked(name: str, value: str, expected: str) -> None:
    assert mask_setting(name, value) == expected


def test_no_secret_of_the_settings_is_collected(fresh_server) -> None:
    server = fresh_server(16)
    server.sql("alter system set primary_conninfo = 'host=elsewhere password=geheim user=copier'")
    server.sql("select pg_reload_conf()")
    wait_until(lambda: "geheim" in server.sql("show primary_conninfo")[0][0], what="the new setting")
    with connect(server.dsn) as conn:
        over_sql = {row[0]: row for row in sql.collect_static(conn).rows["setting"]}
    from_files = {row[0]: row for row in conf.settings_of(server.pid)[0]}
    for found in (over_sql, from_files):
        assert found["primary_conninfo"][1] == f"host=elsewhere password={MASK} user=copier"
        assert "geheim" not in repr(found)


def test_limits_of_our_own_sessions_are_not_taken_for_those_of_the_server(fresh_server) -> None:
    server = fresh_server(16, statement_timeout="7s")
    server.sql("alter role all set lock_timeout = '3s'")
    with connect(server.dsn) as conn:
        found = {row[0]: (row[1], row[3]) for row in sql.collect_static(conn, server.dsn).rows["setting"]}
        without = {row[0] for row in sql.collect_static(conn).rows["setting"]}
    assert (found["statement_timeout"][0], found["lock_timeout"]) == ("7000", ("3000", "global"))
    assert (found["default_transaction_read_only"], found["search_path"][0]) == (("off", "default"), '"$user", public')
    assert found.keys() - without == set(OWN_SETTINGS)


def test_what_others_made_in_the_search_path_is_not_called(fresh_server) -> None:
    server = fresh_server(16)
    server.sql("create schema trap")
    server.sql("create function trap.spring() returns int language plpgsql as $$begin raise 'sprung'; end$$")
    server.sql("create view trap.pg_settings as select name, setting, trap.spring() as unit from pg_catalog.pg_settings")
    server.sql("create table trap.own as select 1 as n")
    server.sql("alter role all set search_path = trap, pg_catalog, public")
    with connect(server.dsn) as conn:
        assert len(sql.collect_static(conn, server.dsn).rows["setting"]) > 100
    assert place_in_server(server.dsn, "own").path.is_file()
    with connect(server.dsn, own_names=True) as conn, pytest.raises(psycopg.errors.RaiseException, match="sprung"):
        conn.execute("select unit from pg_settings")


def test_settings_from_files_read_like_pg_settings(fresh_server, tmp_path: Path) -> None:
    server = fresh_server(16, work_mem="12MB", checkpoint_timeout="7min")
    data = Path(server.private.data_dir)
    (data / "more.d").mkdir()
    (data / "more.d" / "10.conf").write_text(
        "max_wal_size = 2GB # comment\nstatement_timeout '1.5s'\n" + "primary_conninfo = 'host=x password=geheim'\n"
    )
    (data / "postgresql.conf").write_text(
        (data / "postgresql.conf").read_text() + "\ninclude_dir 'more.d'\ninclude_if_exists 'absent.conf'\n"
    )
    server.sql("alter system set random_page_cost = 1.5")
    server.sql("select pg_reload_conf()")
    rows, notes = conf.settings_of(server.pid)
    found = {row[0]: row for row in rows}
    shown = dict(server.sql("select name, setting from pg_settings"))
    for name in ("work_mem", "checkpoint_timeout", "max_wal_size", "random_page_cost", "shared_buffers", "fsync", "max_connections"):
        assert (name, found[name][1]) == (name, shown[name])
    assert found["statement_timeout"][1:3] == ("1500", "ms")
    assert found["work_mem"][3] == "file"
    assert "geheim" not in repr(rows)
    assert "files" in " ".join(notes)


def test_units_of_settings_are_the_servers(pg: Server) -> None:
    shown = dict(pg.sql("select name, unit from pg_settings where unit is not null and context <> 'internal'"))
    assert {name: conf.unit_of(name) for name in shown} == shown


def test_settings_of_a_server_with_other_blocks_are_in_its_own_units() -> None:
    sizes = (16384, 65536)
    written = (("shared_buffers", "128MB"), ("temp_buffers", "7"), ("wal_buffers", "1MB"), ("work_mem", "1MB"))
    shown = [(conf.normal_value(name, value, sizes), conf.unit_of(name, sizes)) for name, value in written]
    assert shown == [("8192", "16kB"), ("7", "16kB"), ("16", "64kB"), ("1024", "kB")]


def test_settings_on_the_command_line() -> None:
    arguments = ["-D", "/data", "-c", "work_mem=1MB", "--max-connections=7", "-p", "6000", "-B500", "-cfsync=off"]
    found = dict(conf.command_line(arguments))
    assert found == {"work_mem": "1MB", "max_connections": "7", "port": "6000", "shared_buffers": "500", "fsync": "off"}


def test_what_had_not_ended_is_there_and_what_was_rolled_back_is_not(fresh_server) -> None:
    pg = fresh_server(16, autovacuum=False)
    with pg.connect(autocommit=False) as conn:
        conn.execute("create table still_running(a int)")
        pg.sql("create table dropped_soon(a int)")
        pg.sql("checkpoint")
        with pg.connect(autocommit=False) as other:
            other.execute("drop table dropped_soon")
            pg.sql("checkpoint")
            names = {row[5] for row in collect(Path(pg.private.data_dir)).rows["relation"]}
        conn.rollback()
    assert {"still_running", "dropped_soon"} <= names
    pg.sql("checkpoint")
    names = {row[5] for row in collect(Path(pg.private.data_dir)).rows["relation"]}
    assert "still_running" not in names


def test_a_foreign_major_and_a_damaged_map_are_refused(fresh_server, tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("99\n")
    with pytest.raises(LeadlineError) as caught:
        collect(tmp_path)
    assert caught.value.kind == "unsupported"
    pg = fresh_server(16)
    data = Path(pg.private.data_dir)
    pg.sql("vacuum full pg_database")
    pg.private.stop()
    (data / "global" / "pg_filenode.map").write_bytes(b"\x17\x27\x59\x00\xff\xff\xff\x7f")
    with pytest.raises(LeadlineError) as caught:
        collect(data)
    assert (caught.value.kind, caught.value.where) == ("invalid", str(data / "global" / "pg_filenode.map"))


class Rows:
    """A writer that keeps its rows."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def append(self, rows: list[tuple[object, ...]]) -> None:
        self.rows += rows

    def flush(self) -> None: ...

    def close(self) -> dict[str, object]:
        return {"rows": len(self.rows)}


def test_a_second_reading_adds_only_what_is_new() -> None:
    writers: dict[str, Rows] = {}
    store = Store("unused", lambda directory, table: writers.setdefault(table, Rows()))
    store.add("role", [(10, "postgres"), (16384, "app")])
    store.add("role", [(10, "postgres"), (16385, "new")])
    store.add("host_fact", [("a", "1", "x"), ("a", "1", "x")])
    assert writers["role"].rows == [(10, "postgres"), (16384, "app"), (16385, "new")]
    assert store.close() == {"role": {"rows": 3}, "host_fact": {"rows": 2}}
