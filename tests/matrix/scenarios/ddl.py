"""DDL and maintenance that waits, or that others wait for."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.ground import Ground, Stopwatch
from matrix.scenario import Expected, Truth, scenario
from matrix.scenarios.locks import holds

SLOW = "create function slow(n int) returns int language plpgsql immutable as $$ begin perform pg_sleep(60); return n; end $$"


@scenario()
def alter_waits_behind_a_report(g: Ground) -> Iterator[Truth]:
    """A reader left its transaction open, ALTER TABLE waits for it, and two readers wait for ALTER TABLE."""
    t = g.table("account")
    pid = holds(g, "report", f"select count(*) from {t}").info.backend_pid
    ddl, own = g.blocked("migration", f"alter table {t} add column note text")
    queue = Stopwatch()
    for number in range(2):
        g.blocked(f"reader{number}", f"select * from {t}", queue)
    yield lambda: [
        Expected("DDL-QUEUE", f"relation {t}", queue.within(g.window), (f"pid {ddl}", f"pid {pid}", "report"), "high"),
        Expected("BLOCK-CHAIN", f"pid {pid}", own.within(g.window) + queue.within(g.window), ("report",), "high"),
    ]


@scenario()
def truncate_waits_behind_a_statement(g: Ground) -> Iterator[Truth]:
    """TRUNCATE waits for a long statement, and inserts wait for TRUNCATE."""
    t = g.table("log")
    reader = g.connect("export")
    g.start(reader, f"select pg_sleep(60) from {t}")
    g.wait_for("application_name = 'export' and wait_event = 'PgSleep'")
    ddl, own = g.blocked("cleanup", f"truncate {t}")
    queue = Stopwatch()
    for number in range(3):
        g.blocked(f"writer{number}", f"insert into {t} values ({number + 10}, 0)", queue)
    yield lambda: [
        Expected("DDL-QUEUE", f"relation {t}", queue.within(g.window), (f"pid {ddl}", "export"), "high"),
        Expected("BLOCK-CHAIN", f"pid {reader.info.backend_pid}", own.within(g.window) + queue.within(g.window), (), "high"),
    ]


@scenario()
def drop_index_waits_behind_a_prepared_transaction(g: Ground) -> Iterator[Truth]:
    """A prepared transaction holds the table; DDL waits for it and a reader for the DDL."""
    t = g.table("account")
    holds(g, "gone", f"update {t} set v = 1", "prepare transaction 'left'")
    _, own = g.blocked("migration", f"alter table {t} alter v type bigint")
    _, queue = g.blocked("reader", f"select * from {t}")
    yield lambda: [
        Expected("DDL-QUEUE", f"relation {t}", queue.within(g.window), ("prepared transaction",), "high"),
        Expected("BLOCK-CHAIN", "prepared transaction", own.within(g.window) + queue.within(g.window), ("postgres/left",), "high"),
    ]
    g.sql("rollback prepared 'left'")


@scenario()
def create_index_blocks_writers(g: Ground) -> Iterator[Truth]:
    """CREATE INDEX without CONCURRENTLY takes long; inserts wait."""
    t = g.table("account", 5)
    g.sql(SLOW)
    builder = g.connect("deploy")
    g.start(builder, f"create index on {t} (slow(v))")
    g.wait_for("application_name = 'deploy' and wait_event = 'PgSleep'")
    watch = Stopwatch()
    for number in range(2):
        g.blocked(f"writer{number}", f"insert into {t} values ({number + 10}, 0)", watch)
    pid = builder.info.backend_pid
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 2 sessions", t, "deploy"), "high")]


@scenario()
def alter_that_rewrites_blocks_readers(g: Ground) -> Iterator[Truth]:
    """ALTER TABLE rewrites a table with a slow expression; readers wait."""
    t = g.table("account", 5)
    g.sql(SLOW)
    ddl = g.connect("migration")
    g.start(ddl, f"alter table {t} alter v type bigint using slow(v)")
    g.wait_for("application_name = 'migration' and wait_event = 'PgSleep'")
    watch = Stopwatch()
    for number in range(3):
        g.blocked(f"reader{number}", f"select * from {t}", watch)
    pid = ddl.info.backend_pid
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 3 sessions", t), "high")]


@scenario()
def vacuum_full_blocks_readers(g: Ground) -> Iterator[Truth]:
    """VACUUM FULL builds the indexes again, one of which is slow; readers wait."""
    t = g.table("account", 5)
    g.sql(SLOW.replace("perform", "if current_setting('a.b', true) = 'slow' then perform").replace("; return", "; end if; return"))
    g.sql(f"create index on {t} (slow(v))")
    vacuum = g.connect("night")
    vacuum.execute("set a.b = 'slow'")
    g.start(vacuum, f"vacuum full {t}")
    g.wait_for("application_name = 'night' and wait_event = 'PgSleep'")
    _, watch = g.blocked("reader", f"select * from {t}")
    pid = vacuum.info.backend_pid
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session", t), "high")]


@scenario()
def refresh_blocks_readers_of_the_view(g: Ground) -> Iterator[Truth]:
    """REFRESH MATERIALIZED VIEW without CONCURRENTLY takes long; readers wait."""
    g.sql("create materialized view totals as select pg_sleep(60)::text as t with no data")
    refresh = g.connect("cron")
    g.start(refresh, "refresh materialized view totals")
    g.wait_for("application_name = 'cron' and wait_event = 'PgSleep'")
    _, watch = g.blocked("reader", "table totals")
    pid = refresh.info.backend_pid
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("blocked 1 session", "public.totals"), "high")]


@scenario()
def partition_attached_behind_a_reader(g: Ground) -> Iterator[Truth]:
    """DETACH PARTITION waits for a reader of the partitioned table; all other readers wait."""
    g.sql("create table part (id int) partition by list (id)")
    g.sql("create table part_1 partition of part for values in (1)")
    pid = holds(g, "report", "select * from part").info.backend_pid
    ddl, own = g.blocked("rotate", "alter table part detach partition part_1")
    _, queue = g.blocked("reader", "select * from part where id = 1")
    yield lambda: [
        Expected("DDL-QUEUE", "relation public.part", queue.within(g.window), (f"pid {ddl}", f"pid {pid}"), "high"),
        Expected("BLOCK-CHAIN", f"pid {pid}", own.within(g.window) + queue.within(g.window), (), "high"),
    ]


@scenario()
def vacuum_waits_for_a_pinned_page(g: Ground) -> Iterator[Truth]:
    """VACUUM FREEZE needs a page on which an open cursor stands."""
    g.sql("create table pinned (id int, t text) with (autovacuum_enabled = off)")
    g.sql("insert into pinned select n, repeat('x', 200) from generate_series(1, 2000) n")
    reader = holds(g, "reader", "declare here no scroll cursor for select ctid from pinned")
    reader.execute("fetch 500 from here")
    vacuum = g.connect("maintenance")
    watch = g.start(vacuum, "vacuum (freeze) pinned")
    g.wait_for("wait_event_type = 'BufferPin'")
    yield lambda: [Expected("PIN-CLEANUP", "pins on public.pinned", watch.within(g.window), ("client backend",))]


SLOW_VACUUM = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"


def vacuumed_slowly(g: Ground) -> int:
    """The pid of the autovacuum worker that is in the table."""
    g.wait_for("backend_type = 'autovacuum worker' and query like '%public.account%'")
    [[pid]] = g.sql("select pid from pg_stat_activity where backend_type = 'autovacuum worker' and query like '%public.account%'")
    return int(pid)


@scenario(settings={"autovacuum_naptime": 1, "deadlock_timeout": "60s"})
def ordinary_autovacuum_holds_the_table(g: Ground) -> Iterator[Truth]:
    """ALTER TABLE waits for a slow autovacuum, which has not yet been asked to give way."""
    often = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1"
    g.sql(f"create table account (id int, t text) with ({SLOW_VACUUM}, {often})")
    g.sql("insert into account select n, repeat('x', 500) from generate_series(1, 5000) n")
    g.sql("delete from account where id % 2 = 0")
    pid = vacuumed_slowly(g)
    _, watch = g.blocked("migration", "alter table account add column note text")
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", watch.within(g.window), ("autovacuum", "public.account"), "high")]


@scenario(settings={"autovacuum_naptime": 1})
def autovacuum_against_wraparound_holds_the_table(g: Ground) -> Iterator[Truth]:
    """ALTER TABLE waits for an autovacuum that gives way to nobody, and readers wait for ALTER TABLE."""
    g.sql(f"create table account (id int, t text) with ({SLOW_VACUUM}, autovacuum_freeze_max_age = 100000, autovacuum_enabled = off)")
    g.sql("insert into account select n, repeat('x', 500) from generate_series(1, 5000) n")
    block = "begin insert into pg_temp.n values (1); exception when division_by_zero then null; end"
    g.sql(f"do $$ begin create temp table n (n int); for n in 1..101000 loop {block}; end loop; end $$")
    pid = vacuumed_slowly(g)
    _, own = g.blocked("migration", "alter table account add column note text")
    _, queue = g.blocked("reader", "select count(*) from account")
    yield lambda: [
        Expected("BLOCK-CHAIN", f"pid {pid}", own.within(g.window) + queue.within(g.window), ("autovacuum", "public.account"), "high"),
        Expected("DDL-QUEUE", "relation public.account", queue.within(g.window), (f"pid {pid}",), "high"),
    ]
