"""Which commands of pg_stat_statements change a table, and what is kept of their texts: the words and the name."""

from __future__ import annotations

import pytest
from leadline.engines.postgres.catalog.commands import command_of, counted


@pytest.mark.parametrize(
    ("text", "command", "name"),
    [
        ("ALTER TABLE public.account ADD x int", "ALTER TABLE", "public.account"),
        ('/* migration */ -- 7\n alter  table if exists only "My Table" drop y', "ALTER TABLE", "My Table"),
        ('create unique index concurrently if not exists i on only Shop."Order" (x)', "CREATE UNIQUE INDEX", "shop.Order"),
        ("create index on t (a)", "CREATE INDEX", "t"),
        ('create index "a on b" on "c d"."e""f" (x)', "CREATE INDEX", 'c d.e"f'),
        ("drop index concurrently if exists s.i", "DROP INDEX", "s.i"),
        ("alter index i rename to j", "ALTER INDEX", "i"),
        ("create table s.p1 partition of s.p default", "CREATE TABLE", "s.p"),
        ("truncate only t", "TRUNCATE", "t"),
        ("TRUNCATE TABLE t, u", "TRUNCATE", "t"),
        ("create or replace trigger n before insert on t for each row execute function f('secret')", "CREATE OR REPLACE TRIGGER", "t"),
        ("create rule r as on insert to t do nothing", "CREATE RULE", "t"),
        ("drop policy p on t", "DROP POLICY", "t"),
        ("reindex table concurrently t", "REINDEX TABLE", "t"),
        ("refresh materialized view concurrently mv", "REFRESH MATERIALIZED VIEW", "mv"),
        ("cluster verbose t using i", "CLUSTER", "t"),
    ],
)
def test_a_command_is_known_by_its_words_and_the_name_it_changes(text: str, command: str, name: str) -> None:
    assert command_of(text) == (command, name)


@pytest.mark.parametrize(
    "text",
    [
        "alter role app password 'alter table t'",
        "create table t (a int)",
        "create temp table t partition",
        "select 'drop table t'",
        "insert into t values ('truncate t')",
        "vacuum analyze",
        "cluster",
        "alter table",
        "/* drop table t",
        "",
    ],
)
def test_others_are_left_out(text: str) -> None:
    assert command_of(text) is None


def test_the_calls_of_one_command_and_table_are_added_up() -> None:
    texts = [("alter table t add a int", 2.0), ("ALTER TABLE T drop b", 3.0), ("select 1", 9.0), ("drop table t", 1.0)]
    assert counted(texts) == {"ALTER TABLE/t": 5.0, "DROP TABLE/t": 1.0}
