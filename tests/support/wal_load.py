"""A short load whose log has records of as many kinds as a major makes, and the log it left.

The server is fresh and does nothing by itself (no autovacuum), so that what was logged is what was done here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from conftest import Server

SETTINGS: dict[str, Any] = {
    "wal_level": "logical",
    "max_prepared_transactions": 5,
    "track_commit_timestamp": True,
    "autovacuum": False,
    "checkpoint_timeout": "1h",
    "max_wal_size": "1GB",
    "wal_keep_size": "512MB",  # the log of before the load is read too
}

TABLES = """
create table heap (id int primary key, v text, n int) with (fillfactor = 90);
create table many (id int, word text, spot point, tags int[], day date);
create index on many using btree (word);
create index on many using hash (id);
create index on many using gin (tags);
create index on many using gist (spot);
create index on many using spgist (word);
create index on many using brin (day) with (pages_per_range = 1, autosummarize = off);
create sequence numbers;
insert into heap select g, repeat('x', 40), g from generate_series(1, 3000) g;
insert into many select g, md5((g % 300)::text), point(g % 97, g % 89), array[g % 50, g % 7], '2024-01-01'::date + g % 900
  from generate_series(1, 2500) g;
"""

CHANGES = """
update heap set v = 'y' where id % 7 = 0;
update heap set id = id + 100000 where id % 31 = 0;
update heap set v = repeat('z', 500) where id < 60;
delete from heap where id % 5 = 0;
insert into many select g, 'the same word', point(1, 1), array[1], '2024-01-01' from generate_series(1, 1200) g;
delete from many where id between 200 and 2200;
insert into heap values (1, 'conflict', 1) on conflict do nothing;
insert into heap values (777777, 'speculative', 1) on conflict (id) do update set v = 'was there';
select nextval('numbers') from generate_series(1, 40);
truncate numbers_of restart identity cascade;
alter table heap add column added int default 7;
select pg_logical_emit_message(true, 'inside', 'text'), pg_logical_emit_message(false, 'outside', 'text');
select pg_create_restore_point('here');
"""

# A page of a btree that is deleted and used again, files that come and go, a catalog rewritten for a reader of the log, an origin.
RARER = """
create table pages (id int primary key);
insert into pages select generate_series(1, 5000);
delete from pages where id between 1000 and 4000;
vacuum pages;
begin; create table gone (id serial primary key, v text); rollback;
create unlogged table unlogged (id int primary key);
drop table unlogged;
vacuum pages;
insert into pages select generate_series(5001, 9000);
create extension bloom;
create table bloomed (id int, word text);
create index on bloomed using bloom (id, word);
insert into bloomed select g, g::text from generate_series(1, 200) g;
drop extension bloom cascade;
select pg_create_logical_replication_slot('reader', 'pgoutput');
alter table heap add column later int;
vacuum full pg_attribute;
select pg_drop_replication_slot('reader');
select pg_replication_origin_create('origin'), pg_replication_origin_session_setup('origin');
begin; select pg_replication_origin_xact_setup('0/AB', now()); insert into pages values (9001); commit;
select pg_replication_origin_session_reset();
select pg_replication_origin_drop('origin');
"""


@dataclass
class LoggedServer:
    """A server and the part of its log that the load made: LSNs as text, and as numbers."""

    server: Server
    start: str
    end: str

    @property
    def major(self) -> int:
        return self.server.major

    @property
    def folder(self) -> Path:
        return self.server.private.data_dir / "pg_wal"

    def sql(self, query: str) -> list[Any]:
        return self.server.sql(query)


def insert_lsn(server: Server) -> str:
    return str(server.sql("select pg_current_wal_insert_lsn()")[0][0])


def run_load(server: Server) -> LoggedServer:
    server.sql("checkpoint")
    start = insert_lsn(server)
    with server.connect() as connection:
        connection.execute(TABLES)
        connection.execute("create table numbers_of (id serial primary key, v int); insert into numbers_of (v) select 1")
        with connection.cursor().copy("copy heap (id, v, n) from stdin") as copy:
            copy.write("".join(f"{n}\tcopied\t1\n" for n in range(200_000, 200_500)))
        for statement in filter(None, (part.strip() for part in CHANGES.split(";\n"))):
            connection.execute(statement)
        for statement in ("vacuum (freeze) heap", "vacuum many", "vacuum full pg_class", "vacuum heap"):
            connection.execute(statement)
        for statement in filter(None, (part.strip() for part in RARER.split(";\n"))):
            connection.execute(statement)
        _backup(server, connection)
        _transactions(server, connection)
        images(server, connection)
        _databases(server, connection)
        connection.execute("select pg_replication_origin_create('elsewhere'), pg_replication_origin_advance('elsewhere', '0/99')")
        connection.execute("select pg_replication_origin_drop('elsewhere')")
        connection.execute("checkpoint")
    end = insert_lsn(server)
    server.sql("select pg_switch_wal()")
    return LoggedServer(server, start, end)


def _transactions(server: Server, connection: psycopg.Connection[Any]) -> None:
    """Subtransactions, prepared transactions, rollbacks, and a row that two sessions lock."""
    connection.execute("begin")
    for n in range(70):
        connection.execute(f"savepoint s{n}")
        connection.execute(f"insert into heap values ({500_000 + n}, 'sub', 1)")
        if n in (5, 69):  # the server lists so few subtransactions with what is running; of so many it says that they are too many
            server.sql("checkpoint")
    connection.execute("rollback to savepoint s60")
    connection.execute("commit")
    connection.execute("begin; insert into heap values (600001, 'rolled back', 1); rollback")
    connection.execute("begin; create table prepared (id int); savepoint s; insert into heap values (600002, 'p', 1)")
    connection.execute("prepare transaction 'gid one'")
    connection.execute("commit prepared 'gid one'")
    connection.execute("begin; insert into heap values (600003, 'p', 1); prepare transaction 'gid two'")
    connection.execute("rollback prepared 'gid two'")
    connection.execute("begin; drop table prepared; prepare transaction 'gid three'")
    connection.execute("commit prepared 'gid three'")
    connection.execute("create temp table dropped_soon (id int)")
    connection.execute("begin; select 1 from heap where id = 11 for key share")
    with server.connect() as other:
        other.execute("begin; select 1 from heap where id = 11 for share; update heap set v = 'locked' where id = 12; commit")
    connection.execute("commit")
    connection.execute("begin; update heap set v = 'newer' where id = 11")
    server.sql("select 1 from heap where id = 11 for key share")  # locks the newer version too
    connection.execute("commit")


def images(server: Server, connection: psycopg.Connection[Any]) -> None:
    """Page images with each compression that the server was built with."""
    for method in ("off", "on") if server.major < 15 else ("off", "pglz", "lz4", "zstd"):
        try:
            connection.execute(f"set wal_compression = {method}")
        except psycopg.errors.InvalidParameterValue:
            continue
        connection.execute("checkpoint")
        connection.execute("update heap set n = n + 1 where id % 13 = 0")
        connection.execute("checkpoint")
        connection.execute("update heap set n = n + 1 where id % 13 = 0")
    connection.execute("set wal_consistency_checking = 'heap'")  # images that verify replay only
    connection.execute("update heap set n = n + 1 where id < 30")
    connection.execute("reset wal_consistency_checking")


def _databases(server: Server, connection: psycopg.Connection[Any]) -> None:
    """Databases, copied in both ways where there are two, and a tablespace."""
    for strategy in ("",) if server.major < 15 else ("", "strategy file_copy"):
        connection.execute(f"create database other {strategy}")
        connection.execute("drop database other")
    connection.execute("set allow_in_place_tablespaces = on")
    connection.execute("create tablespace space location ''")
    connection.execute("create table there (id int primary key) tablespace space")
    connection.execute("drop table there")
    connection.execute("drop tablespace space")


def _backup(server: Server, connection: psycopg.Connection[Any]) -> None:
    """The end of a backup, which begins a new segment."""
    start, stop = ("pg_backup_start('b', true)", "pg_backup_stop(false)")
    if server.major < 15:
        start, stop = ("pg_start_backup('b', true, false)", "pg_stop_backup(false, false)")
    connection.execute(f"select {start}")
    connection.execute(f"select {stop}")
