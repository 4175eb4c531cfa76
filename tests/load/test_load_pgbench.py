"""The same scripts by pgbench and by `leadline load run`: the server sees the same statements, with the same values."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, find_pgbench
from load_runs import load, measured

# Expressions without chance, and those that a seed decides: both clients must draw the same numbers.
EXPRESSIONS = """
1 + 2 * 3 - 4 / 3 % 5
-7 / 2
-7 % 3
7 / 2.0
0.1 + 0.2
1e100 * 2
.5 + 2.
~ 1 + 2
6 & 3 | 8 # 1
1 << 3 >> 1
not 1 = 2 and 3 > 2
1 <> 2 or 1 / 0 = 1
null is null
null + 1 is not null
true is not false
1 = 1.0
case when :n > 3 then 1 when :n = 3 then 2 else 3 end
case when null then 1 end
abs(-5) + abs(-2.5)
least(3, 1.5, 2) + greatest(1, 2, 3, 4, 5)
pi() * sqrt(2) + ln(10) + exp(1)
int(2.5) + int(3.5) + double(1)
pow(2, 0.5) + power(2, 10)
mod(10, 3)
hash(:n) % 100
hash(10, 5432)
hash_fnv1a(123456789, 7)
hash_murmur2(-1, 0)
permute(0, 10, 5432)
permute(5, 1000000007, 12)
permute(:n, 100)
-9223372036854775808
9223372036854775807
:text + 1
:flag
random(1, 1000000000)
random(-5, 5)
random_gaussian(1, 1000, 2.5)
random_gaussian(-50, 50, 4)
random_exponential(1, 1000, 3.3)
random_zipfian(1, 1000000, 1.07)
random_zipfian(1, 10, 2.5)
:scale + :client_id
:random_seed
:default_seed
"""
EXPRESSIONS_SCRIPT = "".join(
    f"\\set v{number} {text}\ninsert into seen(place, value) values ({number}, ':v{number}');\n"
    for number, text in enumerate(EXPRESSIONS.split("\n"))
    if text
)
LANGUAGE_SCRIPT = """
-- a comment; with a semicolon
\\set n 3
BEGIN;
insert into seen(place, value) values (1000, 'a;b'); -- behind it
/* ; */ insert into seen(place, value) values (1001, $$;:n$$);
insert into seen(place, value) values (1002, :n::text);
select 7 as seven, null as nothing, 'it''s' as quoted \\gset p_
insert into seen(place, value) values (1003, :p_seven);
\\if :p_seven > 6
\\set branch 1
\\if :n = 4
\\set inner 1
\\elif :n = 3
\\set inner 2
\\else
\\set inner 3
\\endif
\\elif true
\\set branch 2
\\else
\\set branch 3
\\endif
insert into seen(place, value) values (1004, :branch * 10 + :inner);
\\if null
insert into seen(place, value) values (1005, 'never');
\\endif
\\set long 1 + \\
  2
insert into seen(place, value)
  values (1006, :long);
select 1 as one \\; select 2 as two where false \\; select 3 as three \\aset
insert into seen(place, value) values (1007, :one + :three);
\\sleep 1 ms
\\sleep :n us
create function pg_temp.f() returns int language sql begin atomic select 1; select 2; end;
insert into seen(place, value) values (1008, pg_temp.f());
drop function pg_temp.f();
END;
"""
PIPELINE_SCRIPT = """
\\set n random(1, 1000)
\\startpipeline
begin;
insert into seen(place, value) values (2000, :n);
insert into seen(place, value) values (2001, :n + 1);
commit;
\\endpipeline
select count(*) as count from seen where place = 2000 \\gset
insert into seen(place, value) values (2002, :count);
"""


@pytest.fixture(scope="module")
def server(servers: Callable[[int], Server]) -> Iterator[Server]:
    server = servers(16)
    server.sql("create table if not exists seen(n bigserial, place bigint, value text)")
    server.pgbench_init()
    yield server
    server.sql("drop table seen")


def pgbench(server: Server, *options: Any) -> str:
    done = subprocess.run(
        [find_pgbench(), "-n", *map(str, options), server.dsn], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def seen(server: Server) -> list[tuple[int, str]]:
    found = server.sql("select place, value from seen order by n")
    server.sql("truncate seen")
    return found


def both(server: Server, tmp_path: Path, script: str, mode: str, *options: Any) -> tuple[list[Any], list[Any]]:
    """What pgbench leaves after one transaction, and what we leave."""
    file = tmp_path / "script.sql"
    file.write_text(script)
    pgbench(server, "-M", mode, "-f", file, "-t", 1, "--random-seed", 4711, *options)
    theirs = seen(server)
    outcome, found = load(server.dsn, "-M", mode, "-f", file, "-t", 1, "--seed", 4711, *options)
    assert outcome == 0, found
    assert measured(found)["done"] == 1
    return theirs, seen(server)


def test_expressions_have_the_values_of_pgbench(server: Server, tmp_path: Path) -> None:
    options = ("-D", "n=3", "-D", "text=0012", "-D", "flag=ye")
    theirs, ours = both(server, tmp_path, EXPRESSIONS_SCRIPT, "simple", *options)
    assert len(theirs) == EXPRESSIONS_SCRIPT.count("insert")
    assert ours == theirs


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_the_language_does_what_pgbench_does(server: Server, tmp_path: Path, mode: str) -> None:
    script = LANGUAGE_SCRIPT
    if mode != "simple":  # several statements at once, and a name within quotes, need the simple protocol
        script = "".join(line for line in script.splitlines(keepends=True) if "\\aset" not in line and "1007" not in line)
        script = script.replace("$$;:n$$", "$$;n$$")
        script = script.replace("(1003, :p_seven)", "(1003, :p_seven::text)")
        script = script.replace(":branch * 10 + :inner", ":branch::int * 10 + :inner::int")
        script = script.replace("(1006, :long)", "(1006, :long::text)")
    theirs, ours = both(server, tmp_path, script, mode)
    assert [place for place, _ in theirs][:4] == [1000, 1001, 1002, 1003]
    assert ours == theirs


@pytest.mark.parametrize("mode", ["extended", "prepared"])
def test_pipelines_do_what_pgbench_does(server: Server, tmp_path: Path, mode: str) -> None:
    script = PIPELINE_SCRIPT.replace(":n + 1", ":n::int + 1").replace("(2000, :n)", "(2000, :n::text)")
    script = script.replace("(2002, :count)", "(2002, :count::text)")
    theirs, ours = both(server, tmp_path, script, mode)
    assert [place for place, _ in theirs] == [2000, 2001, 2002]
    assert ours == theirs


@pytest.mark.parametrize(("workload", "builtin"), [("tpcb", "tpcb-like"), ("simple-update", "simple-update"), ("select", "select-only")])
def test_built_in_scripts_are_those_of_pgbench(
    fresh_server: Callable[..., Server], tmp_path: Path, workload: str, builtin: str
) -> None:
    server = fresh_server(16, shared_preload_libraries="pg_stat_statements")
    server.sql("create extension pg_stat_statements")
    server.pgbench_init()
    found = []
    for run in (
        lambda: pgbench(server, "-b", builtin, "-M", "prepared", "-t", 20),
        lambda: load(server.dsn, "--workload", workload, "-M", "prepared", "-t", 20),
    ):
        server.sql("select pg_stat_statements_reset()")
        run()
        rows = server.sql("select query, calls, rows from pg_stat_statements where query ~* '^(begin|end|select abal|update|insert)'")
        found.append(sorted(rows))
    # Of prepared BEGIN and END the server counts only the first.
    assert {calls for _, calls, _ in found[0]} - {1} == {20}
    assert found[1] == found[0]


def test_weights_choose_scripts_as_pgbench_does(server: Server, tmp_path: Path) -> None:
    words: list[Any] = []
    for number, weight in enumerate((5, 1, 0)):
        file = tmp_path / f"{number}.sql"
        file.write_text(f"insert into seen(place, value) values ({number}, '');")
        words += ["-f", f"{file}@{weight}"]
    pgbench(server, *words, "-t", 60, "--random-seed", 3)
    theirs = [place for place, _ in seen(server)]
    load(server.dsn, *words, "-t", 60, "--seed", 3)
    ours = [place for place, _ in seen(server)]
    assert len(ours) == 60 and set(ours) == {0, 1}
    assert ours == theirs
