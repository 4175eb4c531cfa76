"""Expressions of the catalogs, written as SQL from their node trees: what is made again from the text is the same to the server."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from conftest import Server
from leadline.files.salvage.expressions import (
    NotATree,
    NotWritten,
    expression,
    expressions,
    partition_bound,
    trigger_condition,
)
from names_over_sql import NamesOverSql, names_over
from servers import MAJORS

OBJECTS = r"""
drop schema if exists "Odd Schema" cascade; create schema "Odd Schema"; set search_path = "Odd Schema", public;
create type "Mood" as enum ('sad', 'it''s "ok"', 'back\slash');
create type pair as (a int, "B b" text, gone int); alter type pair drop attribute gone;
create domain positive as int check (value > 0);
create domain small as positive check (value < 1000 and value <> 13) default 7;
create domain zip as varchar(10) collate "C" check (value ~ '^[0-9\\]+$' or value in ('a', 'b''c'));
create function "Add One"(x int default 1 + 2, "Y y" text default 'a' || 'b\', variadic more int[] default array[1, -2]) returns int
  language sql immutable as 'select x + 1';
create function is_near(int, int) returns boolean language sql immutable as 'select abs($1 - $2) < 3';
create function minus(int) returns int language sql immutable as 'select -$1';
create function many(variadic int[]) returns int language sql immutable as 'select 1';
create function named(a int, "B b" int default 2, c int default 3) returns int language sql immutable as 'select a';
create function touch() returns trigger language plpgsql as 'begin return new; end';
create operator ~=~ (leftarg = int, rightarg = int, function = is_near);
create operator @-@ (rightarg = int, function = minus);
create sequence "Counter";
create collation german from "C";
create table "Table"(
  id int, "select" int, "Mixed Case" text, "quo""te" text, b bigint, s smallint, n numeric(8, 2), d double precision, r real,
  vc varchar(10), ch char(5), nm name, by bytea, flag boolean, dt date, ts timestamp, tz timestamptz, t time, iv interval, j jsonb,
  js json, ia int[], ta text[], m "Mood", p pair, z zip, u uuid, rg int4range, pt point, ip inet, bits bit(4), vb bit varying(8),
  x xml, tsv tsvector, sm small, ma "Mood"[], mo money, gone int, "user" text collate "C", dom small
);
alter table "Table" drop column gone;
"""

DEFAULTS = r"""
int | 1
int | -1
int | - 5 + 2 * 3
int | 2147483647
int | '-2147483648'
bigint | 9223372036854775807
bigint | 1
smallint | -32768
numeric(8,2) | 1.50
numeric | 12345678901234567890.5
numeric | 'NaN'
numeric | -0.001
numeric | 1e20
double precision | 'NaN'
double precision | '-Infinity'
double precision | 0.1
real | 1.5e-7
text | 'plain'
text | ''
text | 'it''s'
text | E'back\\slash \'quote\' \n newline'
text | U&'\00e9\4e2d'
text | 'a'::varchar(3) || 'b'
varchar(10) | 'abc'
varchar(10) | 'abc'::varchar(2)
varchar | 'abc'
char(5) | 'ab'
char(5) | 'ab'::char(3)
bpchar | 'ab'
"char" | 'x'
name | 'n'
name | current_user
name | session_user
name | current_role
text | current_schema
text | current_catalog
text | user
boolean | true
boolean | false
boolean | 'yes'
boolean | (not (1 > 2))
boolean | 1 in (1, 2)
timestamptz | '1 hour'::interval + current_timestamp at time zone 'UTC'
date | current_date
date | '2020-02-29'
date | 'infinity'
date | current_date - 30
timestamp | 'infinity'
timestamp | '-infinity'
timestamp | now() at time zone 'utc'
timestamp | localtimestamp
timestamp(3) | localtimestamp(3)
timestamp | '2020-01-01 00:00:00.123456 BC'
timestamptz | now()
timestamptz | current_timestamp
timestamptz(2) | current_timestamp(2)
timestamptz | '2020-01-01 12:00+02'
timestamptz | now() + '1 day'::interval
timestamptz | clock_timestamp() + interval '1 year 2 mons -3 days 04:05:06.7'
time | localtime
timetz | current_time(1)
time | '12:34:56.789'
timetz | '12:34:56+05:30'
interval | '1 mon -1 day'
interval | '1 year'::interval year
interval | interval '2' hour
interval(2) | '00:00:01.234'
uuid | gen_random_uuid()
uuid | 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'
bytea | '\xdeadbeef'
bytea | '\x'
bytea | decode('00', 'hex')
jsonb | '{}'
jsonb | '{"a": [1, 2.5, null, "x\"y"], "b": {"c": true}}'
json | '[]'
jsonb | jsonb_build_object('k', 1, 'l', null)
int[] | '{}'
int[] | '{1,NULL,3}'
int[] | array[1, 2, 3]
int[] | array[]::int[]
int[] | array[[1, 2], [3, 4]]
text[] | '{a,"b c",NULL,"NULL"}'
text[] | array['a', 'b'::text]
varchar(3)[] | array['a', 'b']
numeric(4,1)[] | '{1.25}'
"Odd Schema"."Mood" | 'sad'
"Odd Schema"."Mood" | 'it''s "ok"'
"Odd Schema"."Mood" | 'back\slash'
"Odd Schema"."Mood"[] | '{sad}'
"Odd Schema"."Mood" | enum_first(null::"Odd Schema"."Mood")
"Odd Schema".positive | 5
"Odd Schema".small | 6
"Odd Schema".small | 5 + 1
"Odd Schema".zip | '123'
"Odd Schema".pair | '(1,"a b")'
"Odd Schema".pair | row(1, 'x')
"Odd Schema".pair | row(1, 'x')::"Odd Schema".pair
int4range | '[1,5)'
int4range | int4range(1, 5, '[]')
tstzrange | '[2020-01-01,)'
point | '(1,2)'
box | '((0,0),(1,1))'
inet | '10.0.0.1/8'
cidr | '10.0.0.0/8'
macaddr | '08:00:2b:01:02:03'
bit(4) | B'1010'
bit varying(8) | B'101'
bit(8) | X'1F'
bit | B'1'
tsvector | ''
tsvector | to_tsvector('english', 'a fat cat')
tsquery | 'fat & cat'
oid | 0
regclass | 'pg_class'
regtype | 'int4'
xid | '5'
pg_lsn | '0/16AE7F8'
bigint | nextval('"Odd Schema"."Counter"')
int | nextval('"Odd Schema"."Counter"'::regclass)
bigint | nextval('"Odd Schema"."Counter"'::text)
int | "Odd Schema"."Add One"(3)
int | "Odd Schema"."Add One"(3, 'x', 4, 5)
int | "Odd Schema".many(variadic array[1, 2])
int | "Odd Schema".named(1, c => 5)
int | "Odd Schema".named(c => 5, a => 2, "B b" => 1)
int | operator("Odd Schema".@-@) 4
int | case when now() > '2020-01-01' then 1 else 2 end
int | coalesce(null, 1)
int | greatest(1, 2, 3)
text | least('a', 'b')
text | nullif('a', 'b')
int | extract(epoch from now())
double precision | date_part('year', current_date)
text | lpad(floor(random() * 1000)::text, 3, '0')
text | to_char(now(), 'YYYY-MM-DD"T"HH24:MI')
text | md5(random()::text)
text | 'a' collate "C"
text | ('a' || 'b') collate "Odd Schema".german
text | concat('a', 1, null)
text | format('%s-%s', 'a', 1)
text | substring('abc' from 2 for 1)
text | substring('abc' from '.b')
text | overlay('abc' placing 'x' from 2 for 1)
text | overlay('abc' placing 'x' from 2)
text | trim('  a ')
text | trim(leading 'x' from 'xa')
text | trim(trailing from 'a ')
int | position('b' in 'abc')
text | normalize('a', nfc)
text | normalize('a')
text | collation for ('a')
int | (array[1, 2, 3])[2]
int[] | (array[1, 2, 3])[1:2]
int[] | (array[1, 2, 3])[:2]
int | (row(1, 'x')::"Odd Schema".pair).a
text | (row(1, 'x')::"Odd Schema".pair)."B b"
bigint | 5::bigint << 2
bigint | txid_current()
inet | inet_client_addr()
double precision | pi()
int | 10 % 3
double precision | 2 ^ 10
double precision | |/ 25.0
int | @ -5
int | ~ 5
money | '1.50'
"""

CHECKS = r"""
id > 0
"select" = 1 and "Mixed Case" <> 'x' and "quo""te" is not null
id between 1 and 10
id not between symmetric 10 and 1
id in (1, 2, 3)
id not in (1, 2)
"Mixed Case" in ('a', 'b')
vc in ('a', 'b')
vc = any (array['a', 'b']::text[])
vc::text = any ('{a,b}'::text[])
ch = 'ab'
ch like 'a%'
vc ilike '%x\_%'
vc not like 'a!%' escape '!'
vc similar to '(a|b)+'
vc ~* '^\d+$'
"Mixed Case" is distinct from 'a'
id is not distinct from "select"
id is distinct from null
(id, "select") < (1, 2)
(id, "select") = (1, 2)
row(id, b) <> row(3, 4)
(id, vc) >= (1, 'x')
row(id, b) is not null
p is null
p is distinct from null
(p).a > 1
(p)."B b" = 'x'
flag
not flag
flag is true
flag is not unknown
(flag or id > 1) and (not flag or id < 0) and (id = 5 or flag)
flag = (id > 1)
n > 1.5
n::numeric(5, 1) = 1.5
n > id
b = id
s = 5
s + 1 < b
d > 'NaN'
d <> -0.5
r::double precision = d
length(vc) > 1
char_length(trim("Mixed Case")) > 0
upper(vc) = vc::text
vc::char(3) = 'abc'
vc::varchar(3)::text = 'abc'
n::text like '%5'
ts > '2020-01-01'
ts < tz
tz at time zone 'Europe/Berlin' > ts
ts at time zone interval '2 hours' < now()
dt + 30 > current_date
dt <> 'infinity'
extract(year from dt) = 2020
extract(isodow from ts) < 6
date_trunc('day', ts) = ts
(ts, iv) overlaps (ts, ts)
(dt, dt) overlaps (dt, dt)
t > '12:00'
iv > '1 day'
iv > interval '1' day
iv <= '1 day'::interval(3)
j ? 'a'
j ?| array['a', 'b']
j @> '{"a": 1}'
j -> 'a' ->> 'b' = 'c'
(j ->> 'n')::int > 0
j #>> '{a,b}' <> ''
j @? '$.a[*] ? (@ > 2)'
jsonb_typeof(j) = 'object'
js ->> 'a' is not null
ia[1] > 0
ia[1:2] = array[1, 2]
array_length(ia, 1) = 3
id = any (ia)
id <> all (ia)
ia && array[1, 2]
ia <@ array[id, "select"]
'x' = any (ta)
array_position(ta, null) is null
cardinality(ma) > 0
m = 'sad'
m > 'sad'::"Odd Schema"."Mood"
m in ('sad', 'back\slash')
m::text = 'sad'
'sad' = any (ma)
z = 'a'
z::text > 'b'
sm > 5
sm + 1 > 2
u <> '00000000-0000-0000-0000-000000000000'
rg @> 5
not isempty(rg)
rg && '[1,3]'
lower(rg) > 0
pt <> '(0,0)'::point is null
pt <@ box '((0,0),(1,1))'
ip << '10.0.0.0/8'
bits = B'1010'
(bits & B'1100') <> '0000'
vb <> B'1'
nm = 'x'
nm ~~ 'a%'
"user" = 'x'
"user" > 'x' collate "C"
"Mixed Case" collate "Odd Schema".german > 'a'
"Mixed Case" < "quo""te" collate "C"
tsv @@ to_tsquery('english', 'a & b')
tsv @@ 'x'::tsquery
to_tsvector('simple', "Mixed Case") @@ plainto_tsquery('english', 'b')
id operator("Odd Schema".~=~) 5
operator("Odd Schema".@-@) id < 0
id operator("Odd Schema".~=~) any (array[1, 2])
"Odd Schema"."Add One"(id) > 1
"Odd Schema"."Add One"(id, vc) > 1
"Odd Schema".many(1, id) > 0
"Odd Schema".many(variadic ia) > 0
"Odd Schema".named("B b" => id, a => 1) > 0
case id when 1 then true when 2 then false else null end
case when id > 1 then vc = 'a' when flag then false end
case vc when 'a' then 1 else 2 end = 1
case s when 5 then 1 else b end > 2
case m when 'sad' then true end
coalesce(id, "select", 0) > 0
coalesce(vc, 'x') = 'y'
coalesce(s, b, n) > 1
greatest(id, s) > least(b, 5)
nullif(id, 0) is null
id + -1 > - id
- (-1) < id
-id < 0
(- n) ^ 2 > 1
id::bigint * 4 / 2 - 1 % 2 > 0
(id + 1) * 2 > id + 1 * 2
(flag and true) is not null
(id is null) = (vc is null)
(id > 1) is not false
num_nonnulls(id, b) = 1
tableoid > 5
"Table".* is not null
"Table" is not null
by = '\x00ff'
octet_length(by) < 100
by || '\x01' <> '\\x'
exp(d) > 1 and d between 0 and 1 and r >= 0
mo > '1.00'
dom > 1 and dom::int <> 2
id::text || vc || "Mixed Case" <> ''
(vc || 'x')::varchar(3) = 'a'
vc is normalized
vc is nfkc normalized
id = (array[1, 2])[1]
row(1, 2) = row(id, b)
(row(id, vc)::"Odd Schema".pair).a = 1
id::positive > 1
(id + 1)::small > 1
vc::zip = 'a'
dt = date '2020-01-01' + 1
ts = timestamp '2020-01-01 00:00:00' and tz = timestamptz '2020-01-01 00:00:00+00'
isfinite(ts)
(id = 1) <> (b = 2)
id::regclass::text <> 'x'
id = 1::smallint
'a' < 'b'
'{1,2}'::int[] = ia
true
null
"""

SIMILAR = """text | substring('abc' similar 'a#"b#"c' escape '#')"""
SINCE = {
    14: ("int4multirange | '{[1,3),[7,9)}'", "timestamptz | date_bin('1 day', now(), '2020-01-01')", SIMILAR),
    16: ("text | system_user",),
    17: ("timestamptz | (now()::timestamp at local)",),
    18: ("uuid | uuidv7()",),
}
CHECKS_SINCE = {14: ("j['a']['b'] = '1'", "id = (j['n'])::int")}


RELID = """select '"Table"'::regclass::oid::int"""


def rows_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


@pytest.fixture
def names(pg: Server) -> Iterator[NamesOverSql]:
    with names_over(pg, OBJECTS) as names:
        yield names


def execute(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute(statement.encode())  # bytes: a % of an expression is not a placeholder


def value(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None, query
    return row[0]


class Again:
    """Makes objects twice, from the text of a user and from ours, and collects what differs."""

    def __init__(self, pg: Server, names: NamesOverSql) -> None:
        self.users, self.ours = pg.connect(), pg.connect(options="-c search_path=")
        execute(self.users, 'set search_path = "Odd Schema", public')
        self.names = names
        self.different: list[tuple[str, Any, Any, Any]] = []
        self.done = 0

    def close(self) -> None:
        self.users.close()
        self.ours.close()

    def told(self) -> str:
        return "\n".join(f"{row}" for row in self.different)

    def compare(self, what: str, make: str, make_again: str, tree: str, shown: str, write: Any, after: str) -> None:
        """`make` with the user's expression, `make_again` with `{}` for ours; `shown`: the server's words of the object."""
        try:
            execute(self.users, make)
        except psycopg.Error as e:
            self.different.append((what, "the server refuses the test's own", str(e), ""))
            return
        said = value(self.ours, shown)
        written = ""
        try:
            written = write(value(self.ours, tree))
            execute(self.users, after)
            execute(self.ours, make_again.replace("{}", written))
            again = value(self.ours, shown)
        except (NotWritten, NotATree, psycopg.Error) as e:
            self.different.append((what, said, written, repr(e)))
            execute(self.users, after)
            return
        execute(self.users, after)
        if said != again:  # some of the server's own words change once when they are read again
            execute(self.ours, make_again.replace("{}", said))
            said = value(self.ours, shown)
            execute(self.users, after)
        if said != again:
            self.different.append((what, said, written, again))
        self.done += 1


@pytest.fixture
def again(pg: Server, names: NamesOverSql) -> Iterator[Again]:
    again = Again(pg, names)
    yield again
    again.close()


def test_defaults_come_back(pg: Server, again: Again) -> None:
    for row in [*rows_of(DEFAULTS), *(row for major, rows in SINCE.items() if pg.major >= major for row in rows)]:
        kind, _, text = row.partition(" | ")
        again.compare(
            row,
            f"create table made(c {kind} default ({text}))",
            f'create table "Odd Schema".made(c {kind} default {{}})',
            "select adbin::text from pg_attrdef where adrelid = '\"Odd Schema\".made'::regclass",
            "select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = '\"Odd Schema\".made'::regclass",
            lambda tree: expression(tree, again.names),
            "drop table if exists made",
        )
    assert again.different == [], again.told()
    assert again.done > 150


def test_checks_come_back(pg: Server, again: Again) -> None:
    relid = value(again.users, RELID)
    for text in [*rows_of(CHECKS), *(row for major, rows in CHECKS_SINCE.items() if pg.major >= major for row in rows)]:
        again.compare(
            text,
            f'alter table "Table" add constraint made check ({text})',
            'alter table "Odd Schema"."Table" add constraint made check ({})',
            "select conbin::text from pg_constraint where conname = 'made'",
            "select pg_get_expr(conbin, conrelid) from pg_constraint where conname = 'made'",
            lambda tree: expression(tree, again.names, relid),
            'alter table "Table" drop constraint if exists made',
        )
    assert again.different == [], again.told()
    assert again.done > 150


GENERATED = r"""
int | id * 2 + 1
text | upper(vc)
text | vc || ' ' || coalesce("Mixed Case", '?')
numeric(10,2) | n * 1.19
tsvector | to_tsvector('english', coalesce("Mixed Case", '') || ' ' || coalesce(vc, ''))
tsvector | setweight(to_tsvector('simple'::regconfig, "quo""te"), 'A') || tsv
timestamptz | ts at time zone 'UTC'
boolean | id > 5 and not flag
text | j ->> 'a'
int | case when flag then 1 else id end
text | left(md5("Mixed Case"), 8)
varchar(4) | vc
bigint | id
"""

INDEXES = r"""
(lower(vc), ("select" + 1), id, (j ->> 'k')) | flag and id > 5
((id + b), (vc collate "C")) | m = 'sad' and vc is not null and ts > '2020-01-01'
(("Mixed Case" || vc), abs(id)) | id in (1, 2, 3) or "user" like 'a%'
((j -> 'a' -> 'b'), (coalesce(id, 0)), ("Odd Schema"."Add One"(id))) | not flag
((date_trunc('month', ts)), (extract(year from dt)), (tz at time zone 'UTC')) | dt is not null
(((p).a), ((p)."B b"), (ia[1]), (id % 10)) | (p).a > 0
"""


def test_generated_columns_come_back(pg: Server, again: Again) -> None:
    relid = value(again.users, RELID)
    of_made = """from pg_attrdef join pg_attribute on attrelid = adrelid and attnum = adnum
        where attname = 'made' and adrelid = '"Odd Schema"."Table"'::regclass"""
    for row in rows_of(GENERATED):
        kind, _, text = row.partition(" | ")
        again.compare(
            row,
            f'alter table "Table" add made {kind} generated always as ({text}) stored',
            f'alter table "Odd Schema"."Table" add made {kind} generated always as ({{}}) stored',
            f"select adbin::text {of_made}",
            f"select pg_get_expr(adbin, adrelid) {of_made}",
            lambda tree: expression(tree, again.names, relid),
            'alter table "Table" drop column if exists made',
        )
    assert again.different == [], again.told()
    assert again.done == len(rows_of(GENERATED))


def test_expressions_and_predicates_of_indexes_come_back(pg: Server, again: Again) -> None:
    relid = value(again.users, RELID)
    of_made = "from pg_index where indexrelid = '\"Odd Schema\".made'::regclass"
    for row in rows_of(INDEXES):
        keys, _, predicate = row.partition(" | ")
        again.compare(
            keys,
            f'create index made on "Table" {keys}',
            'create index made on "Odd Schema"."Table" ({})',
            f"select indexprs::text {of_made}",
            f"select pg_get_expr(indexprs, indrelid) {of_made}",
            lambda tree: ", ".join(f"({text})" for text in expressions(tree, again.names, relid)),
            "drop index if exists made",
        )
        again.compare(
            predicate,
            f'create index made on "Table" (id) where {predicate}',
            'create index made on "Odd Schema"."Table" (id) where {}',
            f"select indpred::text {of_made}",
            f"select pg_get_expr(indpred, indrelid) {of_made}",
            lambda tree: expression(tree, again.names, relid),
            "drop index if exists made",
        )
    assert again.different == [], again.told()
    assert again.done == 2 * len(rows_of(INDEXES))


OWN_EQUALITY = """
create type level as enum ('low', 'LOW', 'high');
create function same_level(level, level) returns boolean language sql immutable as 'select lower($1::text) = lower($2::text)';
create operator = (leftarg = level, rightarg = level, function = same_level);
create table levels(a level, b level, n int);
insert into levels select a, b, n from unnest(array['low', 'LOW', 'high', null]::level[]) a, unnest(array['low', 'high', null]::level[]) b,
  generate_series(1, 2) n
"""
BY_OWN_EQUALITY = (
    "a is distinct from b",
    "a is not distinct from b",
    "a is distinct from 'low'",
    "nullif(a, b)",
    "case a when 'low' then 1 when b then 2 else 3 end",
    "a in ('low')",
    "a in ('low', 'high')",
)


def test_words_that_mean_an_operator_of_another_schema_mean_it_still(pg: Server, again: Again) -> None:
    """As with citext and ltree, whose = is in public: what pg_dump writes of these does not come back, or compares in another way."""
    execute(again.users, OWN_EQUALITY)
    execute(again.users, "checkpoint")
    names = NamesOverSql(pg)
    relid = value(again.users, "select 'levels'::regclass::oid::int")
    for text in BY_OWN_EQUALITY:
        execute(again.users, f"create index made on levels (({text}))")
        tree = value(again.users, "select indexprs::text from pg_index where indexrelid = 'made'::regclass")
        (written,) = expressions(tree, names, relid)
        rows = "select array_agg(({})::text order by a::text, b::text, n) from {}levels"
        said = value(again.users, rows.format(text, ""))
        assert value(again.ours, rows.format(written, '"Odd Schema".')) == said, written
        execute(again.users, "drop index made")
    execute(again.users, "alter table levels add constraint made check (case (a::text || 'w')::level when 'low' then true end) not valid")
    tree = value(again.users, "select conbin::text from pg_constraint where conname = 'made'")
    with pytest.raises(NotWritten, match="compares by OPERATOR"):
        expression(tree, names, relid)
    names.close()


TRIGGERS = (
    ("before update", "old.vc is distinct from new.vc"),
    ("before update", "old.* is distinct from new.*"),
    ("before insert", "new.id > 0 and new.\"select\" is null"),
    ("after delete", "old.m = 'sad' or (old.p).a > 1"),
    ("after update", "old.j ->> 'a' <> new.j ->> 'a' and current_user <> 'x' and pg_trigger_depth() < 1"),
)


def test_conditions_of_triggers_come_back(pg: Server, again: Again) -> None:
    relid = value(again.users, RELID)
    for event, condition in TRIGGERS:
        make = "create trigger made {event} on {table} for each row when ({condition}) execute function {function}()"
        again.compare(
            condition,
            make.format(event=event, table='"Table"', condition=condition, function="touch"),
            make.format(event=event, table='"Odd Schema"."Table"', condition="{}", function='"Odd Schema".touch'),
            "select tgqual::text from pg_trigger where tgname = 'made'",
            "select substring(pg_get_triggerdef(oid) from 'WHEN \\((.*)\\) EXECUTE') from pg_trigger where tgname = 'made'",
            lambda tree: trigger_condition(tree, again.names, relid),
            'drop trigger if exists made on "Table"',
        )
    assert again.different == [], again.told()
    assert again.done == len(TRIGGERS)


def test_policies_come_back(pg: Server, again: Again) -> None:
    relid = value(again.users, RELID)
    rows = ['"user" = current_user', "id = current_setting('app.id')::int", "flag or m = 'sad'", "pg_has_role(nm, 'member')"]
    for text in rows:
        again.compare(
            text,
            f'create policy made on "Table" using ({text})',
            'create policy made on "Odd Schema"."Table" using ({})',
            "select polqual::text from pg_policy",
            "select pg_get_expr(polqual, polrelid) from pg_policy",
            lambda tree: expression(tree, again.names, relid),
            'drop policy if exists made on "Table"',
        )
    assert again.different == [], again.told()
    assert again.done == len(rows)


DOMAINS = r"""
int | value > 0
int | value between 1 and 10 or value is null
text | value ~ '^[a-z]+$' and length(value) < 10
varchar(10) | value <> 'x'
"Odd Schema".small | value > 8
"Odd Schema"."Mood" | value in ('sad', 'it''s "ok"')
jsonb | value ? 'a'
int[] | array_length(value, 1) = 2 and value[1] > 0
"Odd Schema".pair | (value).a > 0
numeric(5, 2) | value::int % 2 = 0
text | value::date > '2020-01-01'
"""


def test_constraints_and_defaults_of_domains_come_back(pg: Server, again: Again) -> None:
    for row in rows_of(DOMAINS):
        kind, _, text = row.partition(" | ")
        again.compare(
            row,
            f"create domain made as {kind} constraint made check ({text})",
            f'create domain "Odd Schema".made as {kind} constraint made check ({{}})',
            "select conbin::text from pg_constraint where conname = 'made'",
            "select pg_get_expr(conbin, 0) from pg_constraint where conname = 'made'",
            lambda tree: expression(tree, again.names),
            "drop domain if exists made",
        )
    for kind, text in (("int", "5"), ("text", "'a' || current_user"), ('"Odd Schema".zip', "'123'")):
        again.compare(
            text,
            f"create domain made as {kind} default {text}",
            f'create domain "Odd Schema".made as {kind} default {{}}',
            "select typdefaultbin::text from pg_type where typname = 'made'",
            "select pg_get_expr(typdefaultbin, 0) from pg_type where typname = 'made'",
            lambda tree: expression(tree, again.names),
            "drop domain if exists made",
        )
    assert again.different == [], again.told()
    assert again.done == len(rows_of(DOMAINS)) + 3


def test_defaults_of_arguments_come_back(pg: Server, again: Again) -> None:
    tree = value(again.users, "select proargdefaults::text from pg_proc where proname = 'Add One'")
    first, second, third = expressions(tree, again.names)
    shown = "select pg_get_function_arguments(oid) from pg_proc where proname = 'Add One'"
    said = value(again.ours, shown)
    execute(again.users, 'drop function "Add One"')
    execute(
        again.ours,
        f'create function "Odd Schema"."Add One"(x int default {first}, "Y y" text default {second}, '
        f"variadic more int[] default {third}) returns int language sql as 'select 1'",
    )
    assert value(again.ours, shown) == said


BOUNDS = (
    ("list (id)", "in (1, -2, null)"),
    ("list (id)", "default"),
    ("list (m)", r"in ('sad', 'back\slash')"),
    ("list (vc)", "in ('a''b', 'c')"),
    ("list (flag)", "in (true)"),
    ("list (lower(vc))", "in ('x')"),
    ("range (id, b)", "from (1, minvalue) to (maxvalue, maxvalue)"),
    ("range (dt)", "from ('2020-01-01') to ('infinity')"),
    ("range (ts)", "from (minvalue) to ('2020-01-01 10:00')"),
    ("range (tz)", "from ('2020-01-01 00:00+02') to ('2020-02-01')"),
    ("range (n, (id + 1))", "from (1.5, -3) to (2, 4)"),
    ("range (id)", "from (1 + 1) to (2 * 5)"),
    ("range (\"Mixed Case\" collate \"C\")", "from ('a') to ('b')"),
    ("hash (id)", "with (modulus 4, remainder 3)"),
)


def test_bounds_of_partitions_come_back(pg: Server, again: Again) -> None:
    for key, bound in BOUNDS:
        execute(again.users, f'create table parent (like "Table") partition by {key}')
        words = bound if bound == "default" else f"for values {bound}"
        again.compare(
            words,
            f"create table made partition of parent {words}",
            'create table "Odd Schema".made partition of "Odd Schema".parent {}',
            "select relpartbound::text from pg_class where relname = 'made'",
            "select pg_get_expr(relpartbound, oid) from pg_class where relname = 'made'",
            lambda tree: partition_bound(tree, again.names),
            "drop table if exists made",
        )
        execute(again.users, "drop table parent")
    assert again.different == [], again.told()
    assert again.done == len(BOUNDS)


def test_keys_of_partitions_come_back(pg: Server, again: Again) -> None:
    execute(again.users, 'create table parent (like "Table") partition by range (lower(vc), (id + 1), ((id % 2) = 0))')
    relid = value(again.users, "select 'parent'::regclass::oid::int")
    shown = "select pg_get_partkeydef('\"Odd Schema\".parent'::regclass)"
    written = expressions(value(again.users, "select partexprs::text from pg_partitioned_table"), again.names, relid)
    said = value(again.ours, shown)
    execute(again.users, "drop table parent")
    keys = ", ".join(f"({text})" for text in written)
    execute(again.ours, f'create table "Odd Schema".parent (like "Odd Schema"."Table") partition by range ({keys})')
    assert value(again.ours, shown) == said


@pytest.mark.parametrize("pg", [max(MAJORS)], indirect=True)
def test_a_damaged_tree_is_refused_or_written_but_never_a_crash(pg: Server, again: Again) -> None:
    """Cut at every byte, and with bytes changed: a tree that is still one may be written, as nothing tells that it was another."""
    relid = value(again.users, RELID)
    text = "case id when 1 then vc in ('a', 'b\\') end and (p).a > 1 and (id, b) < (1, 2) and ia[1] = -1 and (p is null or n::int > 2)"
    execute(again.users, f'alter table "Table" add constraint made check ({text})')
    tree = value(again.users, "select conbin::text from pg_constraint where conname = 'made'")
    ours = expression(tree, again.names, relid)
    for end in range(len(tree)):
        with pytest.raises((NotATree, NotWritten)):
            expression(tree[:end], again.names, relid)
    random, refused = Random(35), 0
    for _ in range(1500):
        at = random.randrange(len(tree))
        damaged = tree[:at] + random.choice('{}()\\:"<> 0123456789abXY\x00\xff') + tree[at + random.randrange(3) :]
        try:
            assert isinstance(expression(damaged, again.names, relid), str)
        except (NotATree, NotWritten):
            refused += 1
    assert refused > 500
    assert expression(tree, again.names, relid) == ours


@pytest.mark.parametrize(
    "text",
    ["(" * 100000, "{A :b " * 100000, "{BOOLEXPR :boolop not :args (" * 4000, "{A}}", "", "<>", "{A :b}", "{A :b 1 :b 2}"],
)
def test_what_is_no_tree_ends_at_once(text: str) -> None:
    with pytest.raises(NotATree):
        expression(text, NoNames())


def test_what_is_nested_deeper_than_python_goes_is_not_written() -> None:
    depth = 4000 // 2
    tree = "{BOOLEXPR :boolop not :args (" * depth + "{COERCETODOMAINVALUE}" + ") :location -1}" * depth
    with pytest.raises(NotWritten, match="nested too deeply"):
        expression(tree, NoNames())


class NoNames:
    """Nothing has a name."""

    def __getattr__(self, name: str) -> Any:
        raise NotWritten(name)
