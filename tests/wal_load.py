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
        _transactions(server, connection)
        _images(server, connection)
        connection.execute("create database other")
        connection.execute("drop database other")
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
    connection.execute("rollback to savepoint s60")
    connection.execute("commit")
    connection.execute("begin; insert into heap values (600001, 'rolled back', 1); rollback")
    connection.execute("begin; create table prepared (id int); savepoint s; insert into heap values (600002, 'p', 1)")
    connection.execute("prepare transaction 'gid one'")
    connection.execute("commit prepared 'gid one'")
    connection.execute("begin; insert into heap values (600003, 'p', 1); prepare transaction 'gid two'")
    connection.execute("rollback prepared 'gid two'")
    connection.execute("create temp table dropped_soon (id int)")
    connection.execute("begin; select 1 from heap where id = 11 for key share")
    with server.connect() as other:
        other.execute("begin; select 1 from heap where id = 11 for share; update heap set v = 'locked' where id = 12; commit")
    connection.execute("commit")


def _images(server: Server, connection: psycopg.Connection[Any]) -> None:
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
