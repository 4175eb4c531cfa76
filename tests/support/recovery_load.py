"""Loads for crash recovery: what is not in pages of relations, beside pages (redo_load, redo_index_load).

The server makes no checkpoint while they run, but for CREATE and DROP DATABASE, which force one: those come first.
"""

from __future__ import annotations

import threading
from typing import Any

import psycopg
from conftest import Server, wait_until

SETTINGS: dict[str, Any] = {
    "autovacuum": False,
    "checkpoint_timeout": "1h",
    "max_wal_size": "8GB",
    "max_prepared_transactions": 20,
    "max_locks_per_transaction": 256,
    "wal_level": "logical",
    "track_commit_timestamp": True,
}

BEFORE = """
create table a (id int primary key, v text, n int);
insert into a select g, repeat('x', g % 200), g from generate_series(1, 8000) g;
create index on a (n);
create table many (k int, v text);
create unlogged table u (a int, b text);
insert into u select g, 'u' from generate_series(1, 1000) g;
create index on u (a);
create table parts (k int, v text) partition by list (k);
create table parts_1 partition of parts for values in (1);
create table parts_2 partition of parts for values in (2);
insert into parts select 1, 'p' || g from generate_series(1, 500) g;
create sequence s;
checkpoint;
"""

TABLES = """
insert into a select g, repeat('y', g % 100), g from generate_series(8001, 10000) g;
update a set n = n + 1 where id % 3 = 0;
update a set v = v || 'longer' where id % 7 = 0;
delete from a where id % 11 = 0;
vacuum a;
insert into many select g % 50, repeat('m', g % 90) from generate_series(1, 9000) g;
create index many_k on many (k);
delete from many where k % 3 = 0;
vacuum many;
insert into many select g % 50, 'again' from generate_series(1, 3000) g;
select nextval('s') from generate_series(1, 200);
update parts set k = 2 where v like 'p1%';
create table dropped as select g from generate_series(1, 3000) g;
drop table dropped;
create table cleared as select g from generate_series(1, 3000) g;
truncate cleared;
insert into cleared select g from generate_series(1, 100) g;
create table shrunk (a int, b text);
insert into shrunk select g, repeat('s', 300) from generate_series(1, 5000) g;
delete from shrunk where a > 1500;
vacuum shrunk;
insert into shrunk select g, 'n' from generate_series(1, 20000) g;
vacuum full many;
cluster a using a_pkey;
vacuum full pg_class;
reindex table pg_proc;
create table logged as select * from a;
alter table logged set unlogged;
alter table logged set logged;
create unlogged table u2 (a int primary key);
insert into u2 select generate_series(1, 100);
create materialized view mv as select count(*) from a;
refresh materialized view mv;
create table spaced tablespace space as select g, repeat('t', 40) from generate_series(1, 2000) g;
create index on spaced (g) tablespace space;
alter table cleared set tablespace space;
select pg_switch_wal();
analyze;
update a set v = repeat('z', 500) where id between 100 and 300;
vacuum (freeze) a;
update a set n = 1 where id between 5 and 50;
"""


def run(connection: psycopg.Connection[Any], script: str) -> None:
    for statement in filter(None, (part.strip() for part in script.split(";\n"))):
        connection.execute(statement.encode())


def mixed_load(server: Server) -> None:
    """Everything that recovery keeps beside pages; then the server is to be crashed."""
    prepare(server)
    change(server)


def prepare(server: Server) -> None:
    """What must be there before the log that is replayed begins. Ends with a checkpoint."""
    with server.connect() as connection:
        connection.execute("create database gone")
        if server.major < 15:  # a copy of files between two checkpoints
            connection.execute("create database another")
        _tablespace(server, connection)
        run(connection, BEFORE)


def change(server: Server) -> None:
    with server.connect() as connection:
        with server.connect(dbname="gone") as other:
            other.execute("create table x as select generate_series(1, 1000)")
        connection.execute("drop database gone")
        if server.major >= 15:
            connection.execute("create database another strategy wal_log")
        run(connection, TABLES)
        _subtransactions(connection)
        _prepared(connection)
        _large_objects(connection)
        _origin(connection)
    _multixacts(server)
    with server.connect(dbname="another") as other:
        other.execute("create table inside as select generate_series(1, 1000)")


def _tablespace(server: Server, connection: psycopg.Connection[Any]) -> None:
    """Not in the log: recovery of a copy of the cluster would link to the folder of the original."""
    folder = server.private.base_dir / "space"
    folder.mkdir(mode=0o700)
    server.private.user.own(folder)
    connection.execute(f"create tablespace space location '{folder}'".encode())


def _subtransactions(connection: psycopg.Connection[Any]) -> None:
    for outcome in ("commit", "rollback"):
        connection.execute("begin")
        for n in range(80):
            connection.execute(f"savepoint s{n}; insert into many values ({n}, 'sub')")
            if n % 3 == 0:
                connection.execute(f"rollback to s{n}")
        connection.execute(outcome.encode())


def _prepared(connection: psycopg.Connection[Any]) -> None:
    connection.execute("create table p (a int)")
    for n, outcome in enumerate(("commit", "rollback", None)):
        connection.execute(f"begin; insert into p values ({n}); savepoint x; insert into p values ({n}); prepare transaction 'p{n}'")
        if outcome:
            connection.execute(f"{outcome} prepared 'p{n}'".encode())


def _large_objects(connection: psycopg.Connection[Any]) -> None:
    connection.execute("select lo_from_bytea(0, decode(repeat('ab', 3000), 'hex')) from generate_series(1, 30)")


def _origin(connection: psycopg.Connection[Any]) -> None:
    connection.execute("select pg_replication_origin_create('elsewhere')")
    connection.execute("select pg_replication_origin_session_setup('elsewhere')")
    setup = "select pg_replication_origin_xact_setup('0/ABCDEF', '2024-02-03 04:05:06')"
    connection.execute(f"begin; {setup}; insert into p values (7); commit".encode())
    connection.execute("select pg_replication_origin_session_reset()")


def _multixacts(server: Server) -> None:
    """Rows locked by three transactions at once."""
    connections = [server.connect() for _ in range(3)]
    try:
        for n, connection in enumerate(connections):
            connection.execute("begin; savepoint s")
            connection.execute(f"select 1 from a where id < {700 - n} for key share")
        connections[0].execute("commit")
        connections[1].execute("rollback")
        connections[2].execute("commit")
    finally:
        for connection in connections:
            connection.close()


def in_flight(server: Server) -> threading.Thread:
    """A transaction that is not over when the server is crashed, with all that it did in the log."""
    connection = server.connect()
    connection.execute("begin")
    connection.execute("insert into a select g, repeat(chr(65 + g % 26), 50), g from generate_series(100001, 103000) g")
    with server.connect() as other:  # its commit takes the log before it to disk
        other.execute("create table last (a int)")
    thread = threading.Thread(target=_until_killed, args=(connection,), daemon=True)
    thread.start()
    wait_until(lambda: server.sql("select count(*) from pg_stat_activity where wait_event = 'PgSleep'") == [(1,)], what="a sleep")
    return thread


def _until_killed(connection: psycopg.Connection[Any]) -> None:
    try:
        connection.execute("select pg_sleep(600)")
    except psycopg.Error:
        connection.close()
