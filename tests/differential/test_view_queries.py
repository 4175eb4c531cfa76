"""Views, written as SQL from their node trees: a view that is made again from the text is the same to the server."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from conftest import Server
from leadline.files.salvage.expressions import NotATree, NotWritten, expression
from leadline.files.salvage.queries import function_body, view_query
from names_over_sql import NamesOverSql, names_over
from servers import MAJORS

OBJECTS = r"""
drop schema if exists "View Schema" cascade; create schema "View Schema"; set search_path = "View Schema", public;
create type kind as enum ('a', 'b''c');
create type pair as (x int, "Y y" text);
create table customers(id int primary key, name varchar(20) not null, "Country" text collate "C", kind kind,
  gone int, tags text[], info jsonb);
alter table customers drop column gone;
create table orders(id int primary key, customer_id int, amount numeric(10, 2), placed timestamptz, "select" int, p pair);
create table items(order_id int, "line No" int, sku char(5), qty smallint, primary key (order_id, "line No"));
create table tree(id int, parent int, label text);
create table parts(id int, at date) partition by range (at);
create view base as select id, name as who from customers;
create function pairs_of(int) returns setof pair language sql stable as 'select $1, ''y''::text';
create function outs(a int, out b int, out c text) returns setof record language sql stable as 'select 1, ''x''::text';
create function records() returns setof record language sql stable as 'select 1, ''x''::text';
create function is_near(int, int) returns boolean language sql immutable as 'select abs($1 - $2) < 3';
create operator ~=~ (leftarg = int, rightarg = int, function = is_near);
insert into customers select i, 'n' || i % 7, 'C' || i % 3, case when i % 2 = 0 then 'a'::kind end from generate_series(1, 20) i;
insert into orders select i * 2, i % 9, i * 1.5, '2020-01-01'::timestamptz + i * interval '1 day', i from generate_series(1, 20) i;
create function pick_last(anyelement, anyelement) returns anyelement language sql immutable as 'select $2';
create aggregate last_of(anyelement) (sfunc = pick_last, stype = anyelement);
"""

VIEWS = r"""
select 1 as one, 'x' as t, null as n, -1 as minus, true as yes
select 'it''s \ odd'::text as "Mixed ""Name", 1.5 as "select"
select * from customers
select c.* from customers c
select id, name || '!' as loud, upper("Country") from customers where id > 5 and kind = 'b''c'
select customers.id from customers, orders where customers.id = orders.customer_id
select c.id, o.amount from customers c join orders o on o.customer_id = c.id
select c.id, o.amount from customers as c left join orders as o on (o.customer_id = c.id and o.amount > 10) where o.id is null
select a.id, b.id as other from customers a cross join customers b
select id, a.name, b.amount from customers a join orders b using (id)
select id, a.name from customers a left join orders b using (id) left join tree t using (id)
select id, a.name from customers a right join orders b using (id)
select a.id as x, b.id as y from customers a full join orders b on a.id = b.id
select id from customers a full join orders b using (id)
select * from customers natural join base
select j.id from (customers a join orders b using (id)) as j
select c.n, c.m from customers c(n, m)
select t.a, t.name from customers t(a)
select x.id, (select count(*) from orders o where o.customer_id = x.id) as n from customers x
select id from customers where id in (select customer_id from orders)
select id from customers where id not in (select customer_id from orders where customer_id is not null)
select id from customers where (id, name) in (select customer_id, sku from orders join items on order_id = id)
select id from customers c where exists (select 1 from orders where customer_id = c.id)
select id from customers c where not exists (select from orders where customer_id = c.id)
select id from customers where id > all (select customer_id from orders)
select id from customers where id <> any (select customer_id from orders)
select id from customers where id operator("View Schema".~=~) any (select customer_id from orders)
select id from customers where (id, 1) < (select customer_id, 2 from orders limit 1)
select id from customers where (id, 1) = (select customer_id, 2 from orders limit 1)
select id from customers where name like any (array['a%', 'b%']) or "Country" = any ('{x,y}')
select id from customers where id = any (array(select customer_id from orders))
select id from customers where id = any ((select array_agg(customer_id) from orders)::int[])
select array(select id from orders order by id desc) as ids
select (select max(id) from orders) + 1 as m
select count(*), count(distinct kind) as kinds, sum(id) filter (where id > 1), min(name) from customers
select kind, count(*) as n from customers group by kind having count(*) > 1
select kind, upper(name) as u, count(*) from customers group by kind, upper(name) order by 3 desc, u
select kind, name, count(*) from customers group by grouping sets ((kind), (name), (), (kind, name))
select kind, name, grouping(kind, name) as g, count(*) from customers group by rollup (kind, name)
select kind, count(*) from customers group by cube (kind, (name, id)), "Country"
select id, name, count(*) from customers group by id
select 'x'::text as c, 1 as n, count(*) from customers group by 1, 2
select date_trunc('month', placed) as m, sum(amount) from orders group by date_trunc('month', placed) order by 1
select extract(year from placed) as y, count(*) from orders group by 1
select string_agg(name, ', ' order by name desc, id) as names, array_agg(distinct id order by id) as ids from customers
select string_agg(distinct name::text, ',' order by name::text) from customers
select percentile_cont(0.5) within group (order by amount desc) as median, mode() within group (order by id) as m from orders
select rank(5) within group (order by id) from orders
select last_of(id order by placed) from orders
select json_agg(c) as j, jsonb_object_agg(id, name) from customers c
select row_to_json(c.*) as j, to_jsonb(c) - 'id' as k from customers c
select c as whole from customers c
select (row(c.*, 1))::text as r, (c).name as n from customers c
select (p).x, (p)."Y y" as yy from orders
select distinct kind from customers
select distinct on (customer_id) id, customer_id, amount from orders order by customer_id, placed desc nulls last
select distinct on (upper(name), kind) name from customers order by upper(name), kind
select id from customers order by name collate "C" desc, id nulls first
select id, name as n from customers order by n using ~>~
select id from customers order by id limit 10 offset 5
select id from customers order by id fetch first 3 rows with ties
select id from customers limit all
select id from customers limit (select count(*) / 2 from orders)
select id, row_number() over () as r from customers
select id, rank() over (partition by kind order by id desc) as r, lag(id, 1, 0) over (order by id) from customers
select id, sum(id) over w as s, avg(id) over (w rows between 2 preceding and current row)
  from customers window w as (partition by kind order by id)
select sum(amount) over (order by placed range between interval '1 day' preceding and interval '2 days'
  following exclude current row) from orders
select count(*) filter (where id > 1) over (order by id groups between unbounded preceding and 1 following exclude ties) from orders
select first_value(id) over (order by id rows unbounded preceding) from orders
select kind, sum(count(*)) over (order by kind) from customers group by kind
select id from customers union select id from orders
select id, name from customers union all select id, 'x' from orders order by 1 desc limit 3
select id from customers except all select id from orders intersect select id from tree
(select id from customers order by name limit 1) union all (select id from orders limit 2)
select id from customers union (select id from orders union all select id from tree)
select x.id from (select id from customers union all select id from orders) x where x.id > 1
select 1 as a union all select 2 union all select 3 union all select 4
select null as a, 'x' as b union select 'y', null
with c as (select id from customers) select * from c
with c(x, y) as (select id, name from customers), d as materialized (select x from c) select d.x, c.y from d join c using (x)
with c as not materialized (select id from customers) select a.id, b.id as bid from c a, c b where exists (select 1 from c)
with recursive t(n) as (values (1) union all select n + 1 from t where n < 10) select n from t
with recursive t as (select id, parent, 1 as depth from tree where parent is null union
  select c.id, c.parent, t.depth + 1 from tree c join t on c.parent = t.id) select * from t
select * from (with c as (select 1 as one) select one from c) s
values (1, 'a'), (2, 'b')
select v.a, v.b from (values (1, 'x'), (2, 'y')) as v(a, b)
select id from customers where (id, name) in (values (1, 'a'), (2, 'b'))
select n from generate_series(1, 10) n
select g.n, g.i from generate_series(1, 10) with ordinality as g(n, i)
select x from unnest(array[1, 2]) x
select a, b from unnest(array[1, 2], array['x', 'y']) as u(a, b)
select * from rows from (generate_series(1, 2), generate_series(5, 7)) with ordinality as r(a, b, c)
select * from pairs_of(3)
select pp.x, pp."Y y" from pairs_of(3) as pp
select q.k from pairs_of(3) q(k, l)
select o.b, o.c from outs(1) o
select r.a, r.b from records() as r(a int, b varchar(5))
select r.a from rows from (records() as (a int, b text collate "C")) with ordinality as r(a, b, n)
select c.id, t.tag from customers c, unnest(c.tags) as t(tag)
select c.id, l.amount from customers c
  left join lateral (select amount from orders o where o.customer_id = c.id order by amount limit 1) l on true
select c.id, x.key, x.value from customers c cross join lateral jsonb_each(c.info) x
select c.id, e.value ->> 'a' as a from customers c, jsonb_array_elements(c.info -> 'list') e
select id from customers tablesample system (10) repeatable (5)
select id from only customers
select s.id from customers s tablesample bernoulli (1.5)
select id from parts
select who from base where who <> 'x'
select b.who, c.name from base b join customers c on c.id = b.id
select relname from pg_class where relkind = 'r'
with pg_class as (select 1 as x) select pg_class.x, c.relname from pg_class, pg_catalog.pg_class c
select id from customers for update
select c.id from customers c, orders o for share of c skip locked for key share of o nowait
select case when id > 1 then 'big' when id is null then null else name end as size from customers
select case kind when 'a' then 1 else 2 end as k from customers
select coalesce(name, 'none') as n, nullif(id, 0), greatest(id, 1), least(1, 2.5) from customers
select name::text::varchar(3) as n, amount::int, amount::numeric(5, 1) as rough from customers, orders
select (select (select c.id) as inner_one) as nested from customers c
select customers.id from customers where id = (select orders.id
  from orders where orders.id = customers.id and exists (select 1 from customers where customers.id = orders.id))
select s.id, s.id_1 from (select a.id, b.id from customers a, orders b) s(id, id_1)
select count(*) from (select * from customers a, orders b) s
select t.customers from (select customers from customers) t
select tableoid::regclass as t, ctid from orders
select current_date as d, current_user as u, now() at time zone 'UTC' as utc, placed at time zone 'Asia/Kolkata' as l from orders
select sub."A b" from (select id as "A b" from customers) sub
select "select" from orders where "select" between 1 and 5
select array[id, 1] as a, tags[1] as t, tags[1:2] as ts, info -> 'a' ->> 'b' as j from customers
select from customers
select x.* from xmltable('/rows/row' passing xmlparse(document '<rows/>') columns id int path '@id', n for ordinality,
  "B b" text default 'x' not null) x
select x.a, c.id from customers c, xmltable(xmlnamespaces('u' as "Ns", default 'd'), ('/r' || c.id) passing xmlelement(name r)
  columns a varchar(3) path 'a' || c.name, b xml) as x(a)
select xmlelement(name "Foo", xmlattributes(id as a, name), 'x', name) as e,
  xmlforest(id, name as "N n"), xmlconcat('<a/>', '<b/>') from customers
select xmlpi(name php, 'echo') as p, xmlparse(content '<a/>') as c, xmlserialize(document '<a/>'::xml as varchar(10)) as s,
  xmlagg(xmlelement(name b))
select xml '<a/>' is document as d, xmlexists('/a' passing xmlparse(content '<a/>' strip whitespace)) as e,
  xmlroot('<a/>', version '1.0', standalone yes) as r, xmlroot('<a/>', version no value) as n
select d.d, c.c from current_date d, coalesce(1, 2) c
select (jsonb_each(info)).key as k, (jsonb_each(info)).value from customers
select s.i, (s.r).b, (s.r).c from (select id as i, outs(1) as r from customers) s
with c as (select outs(id) as r from customers) select (c.r).c from c
  union all select (s.r).key from (select jsonb_each(info) as r from customers) s
select (s).id, (x.s).name as n from customers s, (select c as s from customers c) x
select case when 'I will disappear' is not distinct from ''::text then 'A'::text else 'B' end as t
select * from (select 1 as "offset", 'HT' as triangle union select 0 as "offset", 'LT') t
select x::date as d from (select '2020-01-01' as x) s
select (select amount from orders where customer_id = customers.id order by placed desc limit 1) as last_one from customers
  where id = (select max(id) from orders) and "Country" = 'x' limit 1
select distinct ts_stat.word from ts_stat('select sku::text from items'::text) ts_stat
select pg_stat_activity.pid, pg_stat_activity.query from pg_stat_activity join pg_locks using (pid)
select a.pid, a.query from pg_stat_get_activity(null) a
select s.i from generate_series(1, 3) s(i), generate_series(1, 2) s_1, (select s.n from generate_series(1, 2) s(n)) x
select generate_series from generate_series(1, 3)
select x from (select (select generate_series from generate_series(1, 3) limit 1) as x from generate_series(1, 2)) s
select id::regclass::text as r, 'customers'::regclass as c from customers
select exists (select 1 from orders) as e, not exists (select 1 from tree) as n
select lag(x) over w2 from (select id as x from customers) s window w1 as (order by x), w2 as (w1 rows 1 preceding)
select a.id from ((customers a join orders b on a.id = b.customer_id) join items i on i.order_id = b.id)
  left join (tree t join parts p on p.id = t.id) on t.id = a.id
select a.id from customers a join (orders b join items i on i.order_id = b.id) using (id)
"""

SEARCHED = (
    "with recursive t(id, parent) as (select id, parent from tree union all select c.id, c.parent from tree c, t where c.parent = t.id) "
    "search depth first by id, parent set ord select id, ord::text as o from t",
    "with recursive t(id, parent) as (select id, parent from tree union all select c.id, c.parent from tree c, t where c.parent = t.id) "
    "search breadth first by id set ord cycle id set is_cycle to 'Y' default 'N' using path select id, is_cycle, path::text as p from t",
    "select a.id from customers a join orders b using (id) as j where j.id > 1",
    "select kind, count(*) from customers group by distinct rollup (kind, name), rollup (kind)",
    "select info['a']['b'] as x from customers",
    "select trim(both ' ' from name) as t, substring(name from 2 for 3) as s, position('a' in name) as p from customers",
)
"""Since 14."""
JSON = {
    16: (
        "select json_object('a' : id, 'b' : name) as j from customers",
        "select json_object('a' value id absent on null with unique keys returning jsonb) as j from customers",
        "select json_object() as j, json_array() as a, json_object(returning jsonb) as b",
        "select json_array(id, name null on null returning text) as j from customers",
        "select json_array(info::text format json) as j from customers",
        "select json_objectagg(id : name absent on null) as o from customers",
        "select json_arrayagg(name order by id returning jsonb) filter (where id > 1) as a from customers",
        "select json_arrayagg(name) over (order by id) as w from customers",
        "select id from customers where name is json and info::text is json object with unique keys and name is not json array",
    ),
    17: (
        "select json('[1]') as j, json_scalar(id) as s, json_serialize(info returning bytea) as b from customers",
        "select json_value(info, '$.a') as v, json_value(info, '$.n' returning int default -1 on empty error on error) as n from customers",
        "select json_query(info, '$.a[*]' with wrapper) as q, json_query(info, '$.b' returning text omit quotes) as r from customers",
        "select id from customers where json_exists(info, '$.a ? (@ > $x)' passing id as x) or json_exists(info, '$.b' error on error)",
    ),
}
SAME_IN_OTHER_WORDS = (
    "select id from customers a full join orders b using (id)",
    "select j.id from (customers a join orders b using (id)) as j",
    "select a.id from customers a join orders b using (id) as j where j.id > 1",
)
"""What the server prints in other words after: what a column of a join stands for instead of its name."""


@pytest.fixture
def names(pg: Server) -> Iterator[NamesOverSql]:
    with names_over(pg, OBJECTS) as names:
        yield names


def asked(connection: psycopg.Connection[Any], query: str) -> Any:
    cursor = connection.execute(query.encode())  # bytes: a % of a query is not a placeholder
    row = cursor.fetchone() if cursor.description else [None]
    assert row is not None, query
    return row[0]


def views(major: int) -> list[str]:
    lines = VIEWS.replace("\n  ", " ").splitlines()  # a line that is too long goes on behind blanks
    since = [*(SEARCHED if major >= 14 else ()), *(query for since, queries in JSON.items() if major >= since for query in queries)]
    return [line for line in lines if line] + since


TREE = """select ev_action::text from pg_rewrite where ev_class = '"View Schema".made'::regclass"""
SHOWN = """select pg_get_viewdef('"View Schema".made'::regclass)"""
ROWS = """select array_agg(m::text order by m::text) from "View Schema".made m"""
COLUMNS = """select string_agg(format('%I %s %s', attname, format_type(atttypid, atttypmod), attcollation), ', ' order by attnum)
    from pg_attribute where attrelid = '"View Schema".made'::regclass and attnum > 0"""


def test_views_come_back(pg: Server, names: NamesOverSql) -> None:
    different: list[str] = []
    with pg.connect() as users, pg.connect(options="-c search_path=") as ours:
        asked(users, 'set search_path = "View Schema", public')
        for query in views(pg.major):
            try:
                asked(users, f"create view made as {query}")
            except psycopg.Error as e:
                different.append(f"refused: {query}\n {e!r}")
                continue
            said, columns, written = asked(ours, SHOWN), asked(ours, COLUMNS), ""
            rows = asked(ours, ROWS) if query in SAME_IN_OTHER_WORDS else None
            try:
                written = view_query(asked(ours, TREE), names)
                asked(users, "drop view made")
                asked(ours, f'create view "View Schema".made as {written}')
            except (NotWritten, NotATree, psycopg.Error) as e:
                asked(users, "drop view if exists made")
                different.append(f"{query}\n  {written}\n  {e!r}")
                continue
            again, columns_again = asked(ours, SHOWN), asked(ours, COLUMNS)
            if rows is not None and rows != asked(ours, ROWS):
                different.append(f"other rows: {query}\n  {written}\n  {rows}")
            if columns != columns_again or (said != again and query not in SAME_IN_OTHER_WORDS and not same_again(ours, said, again)):
                different.append(f"{query}\n  {written}\n  {said}\n  {again}\n  {columns}\n  {columns_again}")
            asked(users, "drop view made")
    assert different == [], "\n".join(different)


def same_again(ours: psycopg.Connection[Any], said: str, again: str) -> bool:
    """Whether the server's own words become these when they are read: some change once."""
    asked(ours, 'drop view "View Schema".made')
    asked(ours, f'create view "View Schema".made as {said}')
    return bool(asked(ours, SHOWN) == again)


def made_again(ours: psycopg.Connection[Any], names: NamesOverSql) -> tuple[str, str]:
    """The view as it is, and as it is when it is made from our text, with its column names of now."""
    said, written = asked(ours, SHOWN), view_query(asked(ours, TREE), names)
    columns = asked(
        ours,
        """select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
           where attrelid = '"View Schema".made'::regclass and attnum > 0""",
    )
    asked(ours, 'drop view "View Schema".made')
    asked(ours, f'create view "View Schema".made({columns}) as {written}')
    return said, asked(ours, SHOWN)


CHANGES = (
    ("select id, name from customers", "alter table customers rename name to full_name", True),
    ("select c.id, c.name from customers c", "alter table customers rename to clients", True),
    ("select customers.id from customers", "alter table customers rename to clients", True),
    ("select a.id, b.amount from customers a join orders b using (id)", "alter table orders rename id to number", False),
    (
        "select a.id from customers a join orders b using (id)",
        "alter table orders rename id to n; alter table orders rename amount to id",
        False,
    ),
    ("select x, y from customers as c(x, y)", "alter table customers drop tags", True),
    ("select id from customers a join orders b using (id) join items i on i.order_id = id", "alter table items add id int", True),
    (
        "select * from pairs_of(1) p",
        """alter type pair add attribute z int;
        create or replace function pairs_of(int) returns setof pair language sql stable as 'select $1, ''y''::text, 5'""",
        False,
    ),
    ("select p.x, p.ordinality as n from pairs_of(1) with ordinality p", "alter type pair rename attribute x to xx", False),
    (
        "select count(*) from (customers join orders using (id)) as foo left join tree on foo.id = parent",
        "alter table orders add name text",
        False,
    ),
    ("select id as one from customers", "alter view made rename one to two", True),
    ("select id, 1 as n from customers union select id, 2 from orders", "alter view made rename n to m", True),
    ("select id from orders where 'a'::kind = 'a'", "alter type kind rename value 'a' to 'z'", True),
)
"""A view, what changes later, and whether the server prints the same after: it keeps USING with a list of column names beside the
table, and lists no columns that a type has got since.
"""


def test_a_view_of_what_has_another_name_since_comes_back(pg: Server, names: NamesOverSql) -> None:
    with pg.connect() as users, pg.connect(options="-c search_path=") as ours:
        for query, change, is_printed_alike in CHANGES:
            asked(users, OBJECTS)
            asked(users, f"create view made as {query}")
            asked(users, change)
            asked(users, "checkpoint")
            fresh = NamesOverSql(pg)
            rows = asked(ours, ROWS)
            said, again = made_again(ours, fresh)
            fresh.close()
            assert asked(ours, ROWS) == rows, query
            assert (again == said) is is_printed_alike, query


def test_policies_with_subqueries_come_back(pg: Server, names: NamesOverSql) -> None:
    rows = (
        "exists (select 1 from orders o where o.customer_id = customers.id)",
        "id in (select id from customers c where c.name = customers.name)",
        "id = (select max(customers.id) from customers)",
        "exists (select from orders where customer_id = customers.id and exists (select from orders o2 where o2.id = orders.id))",
    )
    tree = "select polqual::text from pg_policy where polname = 'made'"
    shown = "select pg_get_expr(polqual, polrelid) from pg_policy where polname = 'made'"
    with pg.connect() as users, pg.connect(options="-c search_path=") as ours:
        asked(users, 'set search_path = "View Schema", public')
        relid = asked(users, "select 'customers'::regclass::oid::int")
        for text in rows:
            asked(users, f"create policy made on customers using ({text})")
            said, written = asked(ours, shown), expression(asked(ours, tree), names, relid)
            asked(users, "drop policy made on customers")
            asked(ours, f'create policy made on "View Schema".customers using ({written})')
            assert asked(ours, shown) == said, text
            asked(users, "drop policy made on customers")


BODIES = (
    "(a int, b int) returns int return a + b * 2",
    "(text) returns bigint begin atomic select count(*) from customers where name = $1; end",
    "(n int) returns setof text begin atomic select 1; select name from customers c join orders using (id) where c.id > n; end",
)


def test_bodies_of_functions_come_back(pg: Server, names: NamesOverSql) -> None:
    """Since 14. Arguments are numbers in our text, which the server prints with their names."""
    if pg.major < 14:
        bodies: tuple[str, ...] = ()
    else:
        bodies = BODIES
    with pg.connect() as users, pg.connect(options="-c search_path=") as ours:
        asked(users, 'set search_path = "View Schema", public')
        for body in bodies:
            asked(users, f"create function made{body}")
            head = "select pg_get_function_arguments(oid), pg_get_function_result(oid), pg_get_function_sqlbody(oid), prosqlbody::text"
            arguments, result, said, tree = ours.execute(f"{head} from pg_proc where proname = 'made'").fetchone() or ("",) * 4
            asked(users, "drop function made")
            asked(ours, f'create function "View Schema".made({arguments}) returns {result} language sql {function_body(tree, names)}')
            assert asked(ours, "select pg_get_function_sqlbody(oid) from pg_proc where proname = 'made'") == said
            asked(users, "drop function made")


@pytest.mark.parametrize("pg", [max(MAJORS)], indirect=True)
def test_a_damaged_view_is_refused_or_written_but_never_a_crash(pg: Server, names: NamesOverSql) -> None:
    """Cut at every byte, and with bytes changed: a tree that is still one may be written, as nothing tells that it was another."""
    query = """with c as (select id, name from customers) select c.id, sum(o.amount) over w as s from c left join orders o using (id)
        where c.id in (select max(id) from orders group by kind having true) window w as (order by c.id rows 1 preceding)
        union all select 1, 2 order by 1""".replace("group by kind", "group by customer_id")
    with pg.connect() as users:
        asked(users, 'set search_path = "View Schema", public')
        asked(users, f"create view made as {query}")
        tree = asked(users, TREE)
    written = view_query(tree, names)
    for end in range(0, len(tree), 11):
        with pytest.raises((NotATree, NotWritten)):
            view_query(tree[:end], names)
    random, refused = Random(35), 0
    for _ in range(500):
        at = random.randrange(len(tree))
        damaged = tree[:at] + random.choice('{}()\\:"<> 0123456789abXY\x00\xff') + tree[at + random.randrange(3) :]
        try:
            assert isinstance(view_query(damaged, names), str)
        except (NotATree, NotWritten):
            refused += 1
    assert refused > 150
    assert view_query(tree, names) == written


@pytest.mark.parametrize("pg", [max(MAJORS)], indirect=True)
def test_a_long_chain_of_unions_comes_back(pg: Server, names: NamesOverSql) -> None:
    with pg.connect() as users, pg.connect(options="-c search_path=") as ours:
        asked(users, 'set search_path = "View Schema", public')
        asked(users, f"create view made as {' union all '.join(f'select {number} as n' for number in range(300))}")
        said, again = made_again(ours, names)
    assert again == said


OF_THE_SERVER = """select ev_class::oid::int, ev_action::text, pg_get_viewdef(ev_class)
    from pg_rewrite join pg_class c on c.oid = ev_class where rulename = '_RETURN' and relkind = 'v' and c.oid < 16384
    and not exists (select from pg_attribute where attrelid = c.oid and atttypid = 'anyarray'::regtype) order by 1"""


def test_the_views_of_the_server_itself_come_back(pg: Server, names: NamesOverSql) -> None:
    """Those of pg_catalog and information_schema: some of the longest that there are."""
    different: list[str] = []
    with pg.connect(options="-c search_path=") as ours:
        found = ours.execute(OF_THE_SERVER.encode()).fetchall()
        for oid, tree, said in found:
            columns = ", ".join(name for name in names.columns(oid) if name)
            written = ""
            try:
                written = view_query(tree, names)
                asked(ours, f'create view "View Schema".made({columns}) as {written}')
            except (NotWritten, NotATree, psycopg.Error) as e:
                different.append(f"{names.relation(oid)}\n  {written}\n  {e!r}")
                continue
            again = asked(ours, SHOWN)
            if said != again and not same_again(ours, said, again):
                different.append(f"{names.relation(oid)}\n  {written}\n  {said}\n  {again}")
            asked(ours, 'drop view "View Schema".made')
    assert different == [], "\n".join(different)
    assert len(found) > 100
