"""What happens to a cluster before each of three backups: tables that change, shrink, grow, come, go, and stay as they are."""

from __future__ import annotations

STEPS = (
    (
        "create table t as select i as n, repeat('x', 50) as v from generate_series(1, 20000) i",
        "create table same as select 'unchanged ' || i as v from generate_series(1, 5000) i",
        "create table cut as select i as n from generate_series(1, 20000) i",
        "create table gone as select 1 as n",
        "create table grown (n int) tablespace space",
        "create table big (n int, v text)",
        "alter table big alter v set storage external",
        "insert into big select i, repeat(md5(i::text), 400) from generate_series(1, 60) i",
        "vacuum freeze t, same, cut, big",
    ),
    (
        "update t set n = -n where n in (77, 9000, 19000)",
        "delete from cut where n > 5000 or n = 1",
        "vacuum cut",
        "drop table gone",
        "update big set v = repeat('y', 9000) where n = 7",
    ),
    (
        "update t set n = -n where n = 9500",
        "insert into grown select i from generate_series(1, 3000) i",
        "vacuum full pg_class",
        "insert into cut select -i from generate_series(1, 9000) i",
        "create table new as select 42 as n",
    ),
)
TABLES = ("t", "same", "cut", "grown", "big", "new")
