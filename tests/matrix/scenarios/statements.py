"""Statements that cost more than they need: plans that change, planning itself, workers not had, one statement for each row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from conftest import no_oracle, wait_until
from leadline.engines.postgres.server.binaries import host_dirs
from servers import Fetched

from matrix.ground import Ground, Stopwatch
from matrix.scenario import Expected, Truth, scenario

COUNTED = {"shared_preload_libraries": "pg_stat_statements", "autovacuum": False, "jit": False}
EFFECTS = ("AAS-SATURATED", "TOP-WAIT", "MISSING-INDEX", "READ-IO")


def orders(g: Ground) -> None:
    """A table with indexes on the customer, of which each has five rows, and on a place, which is in no order."""
    g.sql("create extension if not exists pg_stat_statements")
    columns = "n as id, n / 5 as customer, n::bigint * 104729 % 800000 as place"
    g.sql(f"create table orders as select {columns} from generate_series(1, 800000) n")
    g.sql("create index by_customer on orders (customer); create index by_place on orders (place)")
    g.sql("vacuum analyze orders")


def loses(g: Ground, look: Any, flip: Any) -> Callable[[], float]:
    """A client runs look a hundred times, then flip, then look again and again. Gives the seconds that it has lost by that in the
    window, by its own clock: less what a call took before.
    """
    watch, before_s, flipped = Stopwatch(), [], threading.Event()

    def step(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        if not flipped.is_set():
            for _ in range(100):
                begun = time.monotonic()
                look(db)
                before_s.append(time.monotonic() - begun)
            flip(db)
            look(db)
            flipped.set()
        with watch.on():
            look(db)
        stop.wait(0.005)

    g.begin("shop", step)
    wait_until(flipped.is_set, what="the other plan")

    def lost_s() -> float:
        calls = sum(g.window.ts_from <= end <= g.window.ts_to for _, end in watch.spans)
        return watch.within(g.window) - calls * sum(before_s) / len(before_s)

    return lost_s


def flips(g: Ground, look: Any, flip: Any) -> Iterator[Truth]:
    lost_s = loses(g, look, flip)

    def truth() -> list[Expected]:
        [[number]] = g.sql("select queryid from pg_stat_statements where query ~ '^(select|prepare).* from orders where'")
        return [Expected("PLAN-FLIP", f"statement {number}", lost_s())]

    yield truth


@scenario(settings=COUNTED, window_s=8.0, busy=True, beside=EFFECTS)
def statement_that_has_lost_its_index(g: Ground) -> Iterator[Truth]:
    """An index is dropped: the same statement reads the whole table from then on."""
    orders(g)
    yield from flips(
        g,
        lambda db: db.execute("select id from orders where customer = 777", prepare=False).fetchall(),
        lambda db: g.sql("drop index by_customer"),
    )


@scenario(settings=COUNTED | {"enable_bitmapscan": False}, window_s=8.0, busy=True, beside=EFFECTS)
def prepared_statement_with_a_generic_plan(g: Ground) -> Iterator[Truth]:
    """A prepared statement looks for the last few places. Its generic plan must suit every place, and reads the whole table."""
    orders(g)

    def look(db: psycopg.Connection[Any]) -> None:
        try:
            db.execute("execute late (799995)", prepare=False).fetchall()
        except psycopg.errors.InvalidSqlStatementName:
            db.execute("set plan_cache_mode = force_custom_plan", prepare=False)
            db.execute("prepare late (bigint) as select id from orders where place >= $1", prepare=False)

    yield from flips(g, look, lambda db: db.execute("set plan_cache_mode = force_generic_plan", prepare=False))


PLANNED = COUNTED | {"pg_stat_statements.track_planning": True, "join_collapse_limit": 10}


@scenario(settings=PLANNED, window_s=8.0, busy=True, beside=EFFECTS)
def statement_that_takes_long_to_plan(g: Ground) -> Iterator[Truth]:
    """A join of eleven tables for no row: nearly all of its time is planning. The truth is the clock of its client."""
    g.sql("create extension pg_stat_statements")
    joins = "".join(f" join pg_class t{n} on t{n}.relname = a.relname" for n in range(9))
    watch = Stopwatch()

    def plan(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with watch.on():
            db.execute(f"select count(*) from pg_class a{joins} where a.relname = 'x'", prepare=False).fetchall()

    g.repeat("orm", plan)
    says = ("from pg_class a",) if g.major >= 14 else ()  # before, the server gives sessions no ids of statements
    yield lambda: [Expected("PLANNING-TIME", "planning", watch.within(g.window), says)]


def with_llvm(major: int) -> Fetched:
    """The host's own server: those that tests fetch are built without LLVM."""
    for host in host_dirs():
        if host.major == major and (Path(host.bin_dir).parent / "lib" / "llvmjit.so").exists():
            return Fetched(major, host.version, "host", str(host.bin_dir))
    no_oracle(f"PostgreSQL {major} of this host is not installed, or has no JIT: apt-get install postgresql-{major}")


@scenario(majors=(15,), fetched=with_llvm, settings=COUNTED, window_s=6.0, busy=True, beside=EFFECTS)
def expressions_compiled_for_each_call(g: Ground) -> Iterator[Truth]:
    """A short report is compiled anew for each of its calls, as the planner takes it to be expensive."""
    g.sql("create extension pg_stat_statements")
    g.sql("create table fact as select n as a, n % 11 as b from generate_series(1, 5000) n")
    g.sql("analyze fact")
    sums = ", ".join(f"sum(a * {n} + b) filter (where a + {n} > b)" for n in range(20))

    def look(db: psycopg.Connection[Any]) -> None:
        db.execute(f"select {sums} from fact", prepare=False).fetchall()

    def compile_all(db: psycopg.Connection[Any]) -> None:
        for setting in ("jit = on", "jit_above_cost = 0", "jit_inline_above_cost = 0", "jit_optimize_above_cost = 0"):
            db.execute(f"set {setting}", prepare=False)

    lost_s = loses(g, look, compile_all)
    yield lambda: [Expected("JIT-COST", "JIT compilation", lost_s(), ("One statement compiled", "select sum(a"), "high")]


PARALLEL = {name: 0 for name in ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size")}


@scenario(settings={"max_parallel_workers": 4, "max_parallel_workers_per_gather": 3, "jit": False, "shared_buffers": "64MB", **PARALLEL},
          window_s=5.0, busy=True, beside=(*EFFECTS, "BUFFERMAPPING", "HOT-BLOCK"))  # fmt: skip
def plans_without_their_parallel_workers(g: Ground) -> Iterator[Truth]:
    """Four reports ask for three workers each, and four are allowed."""
    g.sql("create table fact as select n, n % 100 as kind, random() as x from generate_series(1, 300000) n")
    g.sql("vacuum analyze fact")

    def report(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select kind, sum(sqrt(x)), avg(x) from fact, generate_series(1, 8) group by kind").fetchall()

    g.begin("report", report, 4)
    g.wait_for("backend_type = 'parallel worker'", 4)
    says = ("max_parallel_workers is 4",)
    yield lambda: [Expected("PARALLEL-STARVED", "parallel workers", None, says)]


@scenario(window_s=5.0)
def one_statement_for_each_row(g: Ground) -> Iterator[Truth]:
    """A loop of the application looks up rows one by one, each in a transaction of its own. The truth is how long its
    backend slept, as the scheduler counts."""
    g.table("item", 1000)

    def loop(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        for number in range(1, 500):
            db.execute("select v from item where id = %s", [number], prepare=True)
            if stop.wait(0.004):
                return

    [client] = g.begin("shop", loop)
    asleep = g.asleep([client.pid])
    g.wait_for("application_name = 'shop' and query like '%item%'")
    yield lambda: [Expected("STATEMENT-STORM", f"application shop from local, {g.statement('from item')}", asleep())]
