"""What the tests of `leadline alter` share: tables altered in every way, and the command's answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Server
from leadline.cli import run

ROWS = 1500


def alter(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> Any:
    """The JSON that a command printed; its exit code is checked."""
    assert run(["alter", *map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def make(connection: Any, name: str, major: int) -> None:
    """A table that was altered in every way after it was filled, with rows of all ages, dead ones and NULLs."""
    connection.execute(f"drop table if exists {name}")
    connection.execute(
        f"create table {name} (id int primary key, n int, gone text, t text, e text, wide text)"
        " with (autovacuum_enabled = off, fillfactor = 80)"
    )
    connection.execute(f"alter table {name} alter e set storage external")
    compressible, noise = "repeat('long ' || i, 800)", "(select string_agg(md5(j::text || i), '') from generate_series(1, 120) j)"
    connection.execute(
        f"insert into {name} select i, i, case when i % 3 > 0 then 'gone ' || i end, 't' || i,"
        f" case when i % 50 = 0 then {noise} end, case when i % 20 = 0 then {compressible} when i % 97 = 0 then {noise} end"
        f" from generate_series(1, {ROWS}) i"
    )
    connection.execute(f"update {name} set n = n + 1 where id % 7 = 0")
    connection.execute(f"delete from {name} where id % 11 = 0")
    connection.execute(f"alter table {name} add column added int default 42, drop column gone")
    if lz4(connection, major):
        connection.execute(f"alter table {name} alter wide set compression lz4")
    connection.execute(f"update {name} set n = n + 1 where id % 13 = 0")  # current now, but what was packed stays as it was
    connection.execute(f"insert into {name} (id, wide) select i, repeat('new ' || i, 800) from generate_series(-20, 0) i")
    connection.execute(f"alter table {name} add column late text")
    connection.execute("begin")
    connection.execute(f"update {name} set n = -1 where id < 40")
    connection.execute("rollback")
    connection.execute("checkpoint")


def lz4(connection: Any, major: int) -> bool:
    values = connection.execute("select enumvals from pg_settings where name = 'default_toast_compression'").fetchone()
    return major >= 14 and bool(values) and "lz4" in values[0]


# Straight from the bytes of heap_page_items, row for row, of rows that a snapshot sees.
REFERENCE = """
with tuples as (
  select b as block, lp, t_infomask2 & 2047 as natts, t_bits from generate_series(0, pg_relation_size('{name}') / 8192 - 1) b,
    lateral heap_page_items(get_raw_page('{name}', b::int)) where lp_flags = 1
), visible as (select ctid, * from {name}),
attributes as (select attnum from pg_attribute where attrelid = '{name}'::regclass and attisdropped),
judged as (
  select block, lp,
    natts < (select relnatts from pg_class where oid = '{name}'::regclass) as short,
    exists (select from attributes a where natts >= attnum and coalesce(substr(t_bits, attnum, 1), '1') = '1') as dropped,
    coalesce({packed}, false) as compression
  from tuples join visible v on v.ctid = format('(%s,%s)', block, lp)::tid
)
select reason, count(*), count(distinct block) from judged,
  lateral (values ('short', short), ('dropped', dropped), ('compression', compression), ('any', short or dropped or compression))
    r (reason, holds)
  where holds group by reason
"""


def reference(server: Server, connection: Any, name: str) -> dict[str, tuple[int, int]]:
    """Rows and pages of each reason, as pageinspect shows them."""
    connection.execute("create extension if not exists pageinspect")
    packed = "pg_column_compression(v.wide) <> 'lz4'" if lz4(connection, server.major) else "false"
    return {reason: (rows, pages) for reason, rows, pages in connection.execute(REFERENCE.format(name=name, packed=packed))}


def sums(connection: Any, name: str, columns: str) -> dict[int, str]:
    """A sum over some columns of each row, by its key."""
    return dict(connection.execute(f"select id, md5(row({columns})::text) from {name}"))


class Said:
    """A progress line that remembers."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def share(self, _done: int, _total: int, text: str) -> None:
        self.texts.append(text)

    def note(self, text: str) -> None:
        self.texts.append(text)

    def done(self) -> None: ...


def make_small(connection: Any, name: str, columns: str = "id int primary key, n int") -> None:
    """A hundred short rows."""
    connection.execute(f"drop table if exists {name} cascade")
    connection.execute(f"create table {name} ({columns})")
    named = "(n) select i" if "identity" in columns else "select i, i"
    connection.execute(f"insert into {name} {named} from generate_series(1, 100) i")
    connection.execute(f"alter table {name} add column added int")
