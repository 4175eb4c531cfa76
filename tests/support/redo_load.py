"""Loads whose log has every kind of record that changes pages, for checks of redo: each with the images of wal_consistency_checking.

The server does nothing by itself (no autovacuum, no checkpoint), so that what was logged is what was done here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from conftest import Server, wait_until

SETTINGS: dict[str, Any] = {
    "wal_consistency_checking": "all",
    "wal_level": "logical",
    "autovacuum": False,
    "checkpoint_timeout": "1h",
    "max_wal_size": "4GB",
    "wal_keep_size": "2GB",  # all of it is read
}

# Rows of a heap: inserted, updated on their own page and to another, with a common beginning and end, deleted, moved to another partition,
# overwritten in place, pruned, frozen, inserted again into what became free.
ROWS = """
create table rows (id int primary key, v text, n int, w text) with (fillfactor = 70);
insert into rows select g, repeat('x', g % 90), g, 'end' from generate_series(1, 2000) g;
update rows set n = n + 1 where id % 3 = 0;
update rows set n = n + 1 where id % 3 = 0;
update rows set v = v || 'longer', w = null where id % 7 = 0;
update rows set id = id + 100000 where id % 31 = 0;
update rows set v = repeat('z', 700) where id < 60;
select count(*) from rows where n > 10;
vacuum rows;
delete from rows where id % 5 = 0;
update rows set n = 0 where id % 11 = 0;
insert into rows select g, 'after vacuum', g, 'w' from generate_series(3000, 3300) g;
vacuum rows;
insert into rows select g, 'again', g, 'w' from generate_series(4000, 4400) g;
vacuum (freeze) rows;
update rows set n = 5 where id % 13 = 0;
delete from rows where id % 17 = 0;
vacuum (freeze, disable_page_skipping) rows;
insert into rows values (1, 'conflict', 1) on conflict do nothing;
insert into rows values (777777, 'speculative', 1) on conflict (id) do update set v = 'was there';
insert into rows values (777777, 'speculative', 1) on conflict (id) do update set v = 'was there';
select 1 from rows where id between 100 and 120 for update;
select 1 from rows where id between 100 and 120 for key share;
begin; select 1 from rows where id = 121 for share; savepoint s; update rows set n = 1 where id = 121; rollback to s; commit;
create table noindex (a int, b text);
insert into noindex select g, repeat('n', g % 50) from generate_series(1, 3000) g;
delete from noindex where a % 2 = 0;
vacuum noindex;
delete from noindex where a > 2000;
vacuum noindex;
insert into noindex select g, 'x' from generate_series(1, 500) g;
create table parts (k int, v text) partition by list (k);
create table parts_1 partition of parts for values in (1);
create table parts_2 partition of parts for values in (2);
insert into parts select 1, repeat('p', 30) from generate_series(1, 300);
update parts set k = 2 where ctid < '(0,50)';
create index on rows (n);
analyze rows;
create table across (id int, v text);
insert into across select g, repeat('a', 100) from generate_series(1, 1000) g;
delete from across where id < 120 and id % 20 <> 0;
vacuum across;
update across set v = repeat('b', 400) where id in (500, 600, 700);
create table chain (id int primary key, n int) with (fillfactor = 50);
insert into chain select g, 0 from generate_series(1, 100) g;
do $$ begin for i in 1..40 loop update chain set n = i; end loop; end $$;
select count(*) from chain;
delete from chain where id % 2 = 0;
select count(*) from chain;
vacuum chain;
alter table rows add column added int default 7;
create table wide (id int, a text, b text, c text);
alter table wide alter a set storage external, alter b set storage plain;
insert into wide select g, repeat('a', 5000), repeat('b', 3000), null from generate_series(1, 60) g;
update wide set c = 'c' where id % 2 = 0;
vacuum full wide;
cluster rows using rows_pkey;
truncate noindex;
insert into noindex select g, 'y' from generate_series(1, 700) g;
"""

RANGES = """
create table days (day date, n int, v text) with (fillfactor = 60);
create index days_brin on days using brin (day, v) with (pages_per_range = 1, autosummarize = off);
insert into days select '2020-01-01'::date + g / 40, g, 'v' from generate_series(1, 8000) g;
select brin_summarize_new_values('days_brin');
update days set day = day + 1000 where n % 301 = 0;
update days set v = repeat('long', 60) || n where n % 997 = 0;
update days set v = repeat('longer', 90) || n where n % 499 = 0;
insert into days select '2024-01-01'::date + g, g, repeat('w', g % 300) from generate_series(1, 4000) g;
select brin_desummarize_range('days_brin', 3), brin_desummarize_range('days_brin', 9);
select brin_summarize_range('days_brin', 3);
vacuum days;
create table many_ranges (n int, pad text);
create index many_ranges_brin on many_ranges using brin (n) with (pages_per_range = 1);
alter table many_ranges alter pad set storage plain;
insert into many_ranges select g, repeat('p', 3900) from generate_series(1, 3200) g;
select brin_summarize_new_values('many_ranges_brin');
"""

SEQUENCES = """
create sequence numbers;
select nextval('numbers') from generate_series(1, 100);
select setval('numbers', 5000);
alter sequence numbers increment by 3 restart with 7;
select nextval('numbers') from generate_series(1, 40);
create table serials (id bigint generated always as identity, v text);
insert into serials (v) select 'v' from generate_series(1, 100);
truncate serials restart identity;
insert into serials (v) select 'v' from generate_series(1, 40);
"""

BLOOM = """
create extension bloom;
create table bloomed (id int, word text);
create index bloomed_index on bloomed using bloom (id, word);
insert into bloomed select g, md5(g::text) from generate_series(1, 6000) g;
delete from bloomed where id % 3 = 0;
vacuum bloomed;
insert into bloomed select g, md5(g::text) from generate_series(1, 1000) g;
"""


def run(connection: psycopg.Connection[Any], script: str) -> None:
    """Statement after statement, each in a transaction of its own but for what stands in one line."""
    for statement in filter(None, (part.strip() for part in script.split(";\n"))):
        connection.execute(statement.encode())


def copy_rows(connection: psycopg.Connection[Any], statement: str, first: int, count: int) -> None:
    with connection.cursor().copy(statement.encode()) as copy:
        copy.write("".join(f"{n}\t{'c' * (n % 70)}\n" for n in range(first, first + count)))


def heap_load(server: Server) -> None:
    """Every kind of record of Heap, Heap2, BRIN, Sequence and Generic."""
    with server.connect() as connection:
        for script in (ROWS, SEQUENCES, RANGES, BLOOM):
            run(connection, script)
        _copies(connection)
        _locks(server, connection)
        _speculation(server, connection)
        _truncation(connection)


def _copies(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("create table copied (id int, v text)")
        copy_rows(connection, "copy copied from stdin with (freeze)", 0, 1500)
    connection.execute("vacuum copied")
    connection.execute("delete from copied where id % 100 = 0")
    connection.execute("vacuum copied")
    copy_rows(connection, "copy copied from stdin", 5000, 700)
    connection.execute("vacuum (freeze) copied")
    copy_rows(connection, "copy copied from stdin", 9000, 90)


def _locks(server: Server, connection: psycopg.Connection[Any]) -> None:
    """Rows locked by several transactions at once, and a later version of a row locked with it."""
    connection.execute("create table locked (id int primary key, v text)")
    connection.execute("insert into locked select g, 'v' from generate_series(1, 200) g")
    connection.execute("vacuum (freeze) locked")
    with server.connect() as other:
        for mine, theirs in (("key share", "key share"), ("share", "share"), ("key share", "no key update")):
            connection.execute(f"begin; select 1 from locked where id < 40 for {mine}")
            other.execute(f"begin; select 1 from locked where id < 40 for {theirs}; commit")
            connection.execute("commit")
        connection.execute("begin; update locked set v = 'newer' where id between 10 and 30")
        other.execute("begin; select 1 from locked where id between 10 and 30 for key share")
        connection.execute("commit")
        other.execute("commit")
    connection.execute("update locked set v = 'last' where id < 50")
    connection.execute("delete from locked where id % 9 = 0")
    connection.execute("vacuum (freeze) locked")


def _speculation(server: Server, connection: psycopg.Connection[Any]) -> None:
    """A row is inserted speculatively and taken back: another came between the look at the first index and the insert.

    The session waits while it looks at the second index, whose function wants a lock.
    """
    connection.execute("create table contended (id int primary key, n int)")
    body = "begin perform pg_advisory_xact_lock_shared(1); return $1; end"
    connection.execute(f"create function slow(int) returns int immutable language plpgsql as '{body}'".encode())
    connection.execute("create unique index on contended (slow(n))")
    connection.execute("select pg_advisory_lock(1)")
    with server.connect() as waiting, _in_background(waiting, "insert into contended values (1, 1) on conflict do nothing"):
        _wait_for_lock(server, waiting)
        connection.execute("insert into contended values (1, 2)")
        connection.execute("select pg_advisory_unlock(1)")


@contextmanager
def _in_background(connection: psycopg.Connection[Any], statement: str) -> Iterator[None]:
    thread = threading.Thread(target=lambda: connection.execute(statement.encode()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)
    assert not thread.is_alive(), statement


def _wait_for_lock(server: Server, connection: psycopg.Connection[Any]) -> None:
    query = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
    wait_until(lambda: server.sql(query, [connection.info.backend_pid])[0][0], what="a wait for the lock")


def _truncation(connection: psycopg.Connection[Any]) -> None:
    """VACUUM cuts the end off a table and its maps; the table grows again."""
    connection.execute("create table cut (id int, v text)")
    connection.execute("insert into cut select g, repeat('c', 100) from generate_series(1, 5000) g")
    connection.execute("vacuum cut")
    connection.execute("delete from cut where id > 1000")
    connection.execute("vacuum cut")
    connection.execute("insert into cut select g, repeat('d', 100) from generate_series(1, 3000) g")
    connection.execute("vacuum (freeze) cut")
    connection.execute("delete from cut where id % 50 = 0")
