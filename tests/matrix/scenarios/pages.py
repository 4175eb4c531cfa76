"""Pages, caches and files that sessions compete for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg

from matrix.ground import Ground, Stopwatch
from matrix.scenario import Expected, Truth, scenario
from matrix.scenarios.locks import holds

EFFECTS = ("AAS-SATURATED", "TOP-WAIT", "LWLOCK-HOLDER-IO", "WAL-CONTENTION", "CKPT-REQUESTED")


@scenario(busy=True, beside=EFFECTS)
def inserts_of_growing_keys(g: Ground) -> Iterator[Truth]:
    """Sixteen sessions insert ever greater keys."""
    g.sql("create table edge (at timestamptz)")
    g.sql("create index edge_at on edge (at)")
    g.storm("insert into edge select clock_timestamp() from generate_series(1, 50)", 16)
    yield lambda: [Expected("RIGHT-EDGE-INDEX", "index public.edge_at", None, ("table public.edge",))]


@scenario(busy=True, window_s=30.0, beside=EFFECTS)  # sessions fall asleep in bursts, so that a short window has few of them
def numbers_of_one_sequence(g: Ground) -> Iterator[Truth]:
    """Sixteen sessions take numbers from a sequence, in statements so long that they never wait for their clients."""
    g.sql('create sequence "Hot Numbers"')
    g.storm("""select count(nextval('"Hot Numbers"')) from generate_series(1, 20000)""", 16)
    asleep = g.asleep(g.pids("pgbench"))
    yield lambda: [Expected("SEQUENCE-PAGE", "sequence public.Hot Numbers", asleep())]


def updates_of_one_page(g: Ground) -> None:
    """Sixteen sessions update a row each, and all rows lie on one page."""
    g.sql("create table counters (id int, v int)")
    g.sql("insert into counters select n, 0 from generate_series(1, 16) n")
    g.storm("\\set n random(1, 16)\ndo $$ begin for i in 1..30 loop update counters set v = v + 1 where id = {n}; end loop; end $$".replace("{n}", "(pg_backend_pid() % 16) + 1"), 16)  # noqa: E501


@scenario(busy=True, beside=(*EFFECTS, "ROW-HOTSPOT", "HOT-BLOCK"))
def rows_of_one_page(g: Ground) -> Iterator[Truth]:
    """Sixteen sessions update a row each, and all rows lie on one page."""
    updates_of_one_page(g)
    yield lambda: [Expected("HOT-HEAP-PAGE", "table public.counters")]


@scenario(busy=True, tier="sql", window_s=6.0, beside=(*EFFECTS, "ROW-HOTSPOT"), never=("HOT-HEAP-PAGE", "HOT-BLOCK"))
def rows_of_one_page_seen_over_sql(g: Ground) -> Iterator[Truth]:
    """The same over SQL, where the server does not show pages."""
    updates_of_one_page(g)
    g.wait_for("lower(wait_event) in ('buffercontent', 'buffer_content')")
    yield lambda: [Expected("BUFFER-WAITS-UNNAMED", "buffer content locks", None, ("could not be seen over SQL; mostly in: do",))]


@scenario(busy=True, beside=(*EFFECTS, "BUFFER-WAITS-UNNAMED", "RELATION-EXTEND"))
def entries_of_a_gin_index_that_are_pending(g: Ground) -> Iterator[Truth]:
    """Twelve sessions insert into a table with a GIN index: its list of pending entries has one page that all need."""
    g.sql("create unlogged table doc (words int[])")
    g.sql("create index doc_words on doc using gin (words)")
    g.storm("insert into doc select array[1, 2, n] from generate_series(1, 20) n", 12)
    g.wait_for("wait_event in ('BufferContent', 'buffer_content')")
    yield lambda: [Expected("HOT-BLOCK", "gin meta pages of public.doc_words")]


@scenario(busy=True, beside=(*EFFECTS, "HOT-BLOCK", "BUFFER-WAITS-UNNAMED", "HOT-HEAP-PAGE"))
def a_table_that_grows(g: Ground) -> Iterator[Truth]:
    """Eight sessions fill one table and queue to make it longer."""
    g.sql("create unlogged table filling (t text)")
    g.sql("alter table filling alter t set storage plain")
    g.storm("insert into filling select repeat('x', 3900) from generate_series(1, 200)", 8)
    g.wait_for("wait_event = 'extend'")
    yield lambda: [Expected("RELATION-EXTEND", "relation public.filling", None, (), "medium")]


@scenario(busy=True, beside=EFFECTS, majors=(13, 15, 17, 18))
def more_relations_than_the_fast_path_holds(g: Ground) -> Iterator[Truth]:
    """Statements that lock 200 partitions each."""
    g.sql("create table part (id int) partition by list (id)")
    each = "execute format('create table part_%s partition of part for values in (%s)', n, n)"
    g.sql(f"do $$ begin for n in 1..200 loop {each}; end loop; end $$")
    g.storm("select 1 from part limit 0", 32)
    g.wait_for("lower(wait_event) in ('lockmanager', 'lock_manager')")
    yield lambda: [Expected("LOCKMANAGER-CONTENTION", "lock table partitions", None, ("max_locks_per_transaction",))]


def reads_at_random(g: Ground, clients: int) -> None:
    """Sessions read at random from a table that is larger than the cache."""
    g.sql("create table big (id int primary key, t text) with (autovacuum_enabled = off)")
    g.sql("insert into big select n, repeat('x', 100) from generate_series(1, 100000) n")
    g.sql("analyze big")
    lookups = "select sum((select length(t) from big where id = 1 + (g * 104729) % 100000)) from generate_series(:n::bigint, :n + 500) g"
    g.storm(f"\\set n random(1, 100000)\n{lookups}", clients)


@scenario(busy=True, beside=(*EFFECTS, "BUFFERMAPPING"), settings={"shared_buffers": "1MB"}, thresholds={"min_share": 0.15})
def cache_smaller_than_what_is_read(g: Ground) -> Iterator[Truth]:
    """Sixteen sessions read at random from a table that is larger than the cache. The host's memory has it all: reads are short."""
    reads_at_random(g, 16)
    g.wait_for("wait_event = 'DataFileRead'")
    yield lambda: [Expected("READ-IO", "reads of data files")]


@scenario(busy=True, beside=(*EFFECTS, "READ-IO"), settings={"shared_buffers": "1MB"})
def cache_far_smaller_than_what_many_read(g: Ground) -> Iterator[Truth]:
    """The same: sessions also fight for the table that says which block is where."""
    reads_at_random(g, 16)
    g.wait_for("lower(wait_event) in ('buffermapping', 'buffer_mapping')")
    yield lambda: [Expected("BUFFERMAPPING", "buffer table partitions")]


def many_subtransactions(g: Ground, pages: int) -> Iterator[Truth]:
    """pages: of 2048 transactions each, that the readers need."""
    rows = pages * 2048
    g.sql("create table ledger (id int primary key)")
    block = "begin insert into ledger values (n); exception when division_by_zero then null; end"
    lookups = f"select sum((select count(*) from ledger where id = 1 + (g * 104729) % {rows})) from generate_series(1::bigint, 2000) g"
    pid = holds(g, "batch", f"do $$ begin for n in 1..{rows} loop {block}; end loop; end $$").info.backend_pid
    g.sql("select txid_current()")
    g.storm(lookups, 8)
    g.wait_for("wait_event ilike 'subtrans%'")
    says = ("subtransaction cache", *([f"pid {pid} (application batch)"] if g.major >= 16 else []))
    yield lambda: [Expected("SLRU", "SLRU Subtrans", None, says)]


@scenario(busy=True, majors=(13, 14, 15, 16), beside=EFFECTS, settings={"autovacuum": False})
def rows_of_many_subtransactions(g: Ground) -> Iterator[Truth]:
    """Readers meet rows of an open transaction that has written each in a subtransaction of its own."""
    yield from many_subtransactions(g, 64)


@scenario(busy=True, majors=(17, 18), beside=EFFECTS, settings={"autovacuum": False, "subtransaction_buffers": 16})
def rows_of_many_subtransactions_in_a_small_cache(g: Ground) -> Iterator[Truth]:
    """The same with subtransaction_buffers = 16: by default, 17 and later have room for more pages."""
    yield from many_subtransactions(g, 40)


@scenario(busy=True)
def sort_with_little_memory(g: Ground) -> Iterator[Truth]:
    """A statement sorts with 64 kB of work_mem, again and again. EXPLAIN says what one writes."""
    query = "select count(*) from (select g from generate_series(1, 60000) g order by md5(g::text)) s"
    with g.server.connect() as db:
        db.execute("set work_mem = '64kB'")
        [[plan]] = db.execute(f"explain (analyze, buffers, format json) {query}").fetchall()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    written = plan[0]["Plan"]["Temp Written Blocks"] * 8192
    watch = Stopwatch()

    def sort(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with watch.on():
            db.execute(query)

    def begin(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("set work_mem = '64kB'")
        while not stop.is_set():
            sort(db, stop)

    g.begin("sorter", begin)
    wait_for_spill = "application_name = 'sorter' and query like '%md5%'"
    g.wait_for(wait_for_spill)

    def truth() -> list[Expected]:
        runs = len(watch.spans) * watch.within(g.window) / sum((end - begun) / 1e9 for begun, end in watch.spans)
        return [Expected("TEMP-SPILL", g.statement("md5"), None, ("select count(*)",), figures={"written_bytes": written * runs})]

    yield truth


@scenario(beside=("BLOCK-CHAIN", "IDLE-IN-XACT"))
def members_of_many_multixacts(g: Ground) -> Iterator[Truth]:
    """A row that two sessions hold FOR KEY SHARE is deleted by a third, which waits for both."""
    t = g.table("parent")
    pids = [holds(g, f"child{n}", f"select * from {t} for key share").info.backend_pid for n in range(2)]
    _, watch = g.blocked("cleanup", f"delete from {t}")
    blockers = {row[0] for row in g.sql("select unnest(pg_blocking_pids(pid)) from pg_stat_activity where application_name = 'cleanup'")}
    assert blockers <= set(pids)
    share = 1 / len(blockers)
    yield lambda: [Expected("BLOCK-CHAIN", f"pid {pid}", share * watch.within(g.window)) for pid in sorted(blockers)]
