"""A server that nobody writes to, with tables of every way of being stored, and their rows as the server's own COPY writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from recovery import ChecksummedServer
from tar_backups import SETTINGS, Source

TABLES = ("t", "s", "p", "big", "mv")
"""In the default tablespace, in another one, partitioned, with values in TOAST, a materialised view."""
OTHER = "elsewhere"
"""A database whose table is `t`, too, with other rows."""
MAKE = (
    "create table t (n int primary key, v text, a int[], gone int, d numeric)",
    "insert into t select i, case when i % 7 > 0 then 'x' || i end, array[i, -i], i, i / 8.0 from generate_series(1, 5000) i",
    "alter table t drop column gone, add column late text default 'later'",
    "delete from t where n % 50 = 0",
    "create type mood as enum ('sad', 'glad')",
    "create table s (n int, m mood) tablespace space",
    "insert into s select i, (array['sad', 'glad'])[1 + i % 2]::mood from generate_series(1, 2000) i",
    "create table p (k int, v text) partition by range (k)",
    "create table p1 partition of p for values from (0) to (100)",
    "create table p2 partition of p for values from (100) to (200) tablespace space",
    "insert into p select i, 'k' || i from generate_series(0, 199) i",
    "create table big (n int, v text)",
    "alter table big alter v set storage external",
    "insert into big select i, (select string_agg(md5((i * 1000 + j)::text), '') from generate_series(1, 400) j)"
    " from generate_series(1, 60) i",
    "create materialized view mv as select n from t where n < 10",
    "vacuum full pg_class",
    "vacuum full pg_namespace",
    "vacuum full pg_enum",
    "vacuum full big",
    "select lo_from_bytea(4711, '\\x00010203')",
    "vacuum",
)


@dataclass(frozen=True)
class Quiet:
    """rows: of each table as CSV."""

    source: Source
    rows: dict[str, str]


@contextmanager
def quiet(bin_dir: object) -> Iterator[Quiet]:
    with ChecksummedServer(bin_dir, settings=SETTINGS) as server:  # type: ignore[arg-type]
        space = server.data_dir.parent / "space"
        space.mkdir()
        server._server_user().own(space)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"create tablespace space location '{space}'")
            connection.execute(f"create database {OTHER}")
            for statement in MAKE:
                connection.execute(statement)
            rows = {name: copied(connection, name) for name in TABLES}
            paths = [connection.execute("select pg_relation_filepath(%s)", [name]).fetchone() for name in ("t", "s")]
            with psycopg.connect(server.dsn, dbname=OTHER, autocommit=True) as other:
                other.execute("create table t as select i as other from generate_series(1, 10) i")
                rows[OTHER] = copied(other, "t")
        yield Quiet(Source(server, *(path[0] for path in paths if path)), rows)


def without_places(text: str) -> str:
    """Rows as CSV without the columns `partition` and `ctid`, which COPY does not have."""
    head, _, rest = text.partition("\n")
    return re.sub(r"^(partition,)?ctid,", "", head) + "\n" + re.sub(r'^([^",\n]+,)?"\([0-9]+,[0-9]+\)",', "", rest, flags=re.M)


def copied(connection: psycopg.Connection, name: str) -> str:
    with connection.cursor().copy(f"copy (select * from {name}) to stdout (format csv, header)") as copy:
        return b"".join(bytes(part) for part in copy).decode()
