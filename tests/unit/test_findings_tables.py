"""Findings about tables and statements: the planted trouble gives exactly its row, what only looks like it gives none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture, one, rows
from leadline.findings import evaluate

VACUUM = {"autovacuum_vacuum_threshold": 50, "autovacuum_vacuum_scale_factor": 0.2, "autovacuum_vacuum_max_threshold": -1}
ANALYZE = {"autovacuum_analyze_threshold": 50, "autovacuum_analyze_scale_factor": 0.1, "autovacuum_naptime": 60}


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """A healthy server under an ordinary load, with its settings."""
    made = SyntheticCapture(tmp_path)
    made.background()
    made.ordinary_load()
    made.add("database", datid=16384, datname="app")
    for name, value in {"autovacuum": "on", "track_counts": "on", "autovacuum_max_workers": 3, **VACUUM, **ANALYZE}.items():
        made.setting(name, value)
    return made


def table(cap: SyntheticCapture, name: str, *, size: int = 0, view: str = "pg_stat_user_tables", **metrics: Any) -> None:
    """Counters of public.name: a value that stayed, or (before, after). Times are seconds before the end of the window."""
    usual = {"relid": 20_000 + len(name), "seq_scan": 0, "seq_tup_read": 0, "n_tup_ins": 0, "n_tup_upd": 0, "n_tup_del": 0, "n_live_tup": 0}
    usual |= {"n_dead_tup": 0, "n_mod_since_analyze": 0, "autovacuum_count": 0, "vacuum_count": 0, "autoanalyze_count": 0}
    given = {**usual, "reltuples": metrics.get("n_live_tup", 0), "relpages": 0, **metrics}
    for metric, value in given.items():
        before, after = value if isinstance(value, tuple) else (value, value)
        if metric.startswith("last_"):
            before = after = cap.wall_us(cap.seconds) / 1e6 - after
        cap.stat(view, metric, before, after, obj=f"app/public/{name}")
    cap.add("relation", datid=16384, relid=given["relid"], nspname="public", relname=name, relkind="r", size_bytes=size)


# -- AUTOVACUUM-OFF ---------------------------------------------------------------------------------------------------------


def test_autovacuum_is_off_for_a_table(cap: SyntheticCapture) -> None:
    table(cap, "off", size=200_000_000, n_live_tup=100_000, n_dead_tup=(60_000, 100_000), autovacuum_enabled=0, last_vacuum=7200)
    table(cap, "on", size=200_000_000, n_live_tup=100_000, n_dead_tup=100_000)
    table(cap, "off_not_due", size=10**9, n_live_tup=10**6, n_dead_tup=100_000, autovacuum_enabled=0)
    found = one(cap, "AUTOVACUUM-OFF")
    assert (found.subject, found.severity, found.cost_s) == ("table public.off", "medium", None)
    assert found.statement == (
        "autovacuum is off for public.off: 100000 dead rows wait in this table of database app, about 95.4 MB;"
        " 40000 more than at the start, 60 s earlier; the last vacuum was 2.0 hours ago"
    )
    assert "ALTER TABLE public.off RESET (autovacuum_enabled);" in found.action and "ALTER SYSTEM" not in found.action


@pytest.mark.parametrize("name", ["autovacuum", "track_counts"])
def test_autovacuum_is_off_for_the_server(cap: SyntheticCapture, name: str) -> None:
    cap.setting(name, "off")
    table(cap, "a", size=1000, n_live_tup=100_000, n_dead_tup=50_000)
    table(cap, "Bb", size=3_000_000_000, n_live_tup=100_000, n_dead_tup=50_000, autovacuum_enabled=0)
    found = one(cap, "AUTOVACUUM-OFF")
    assert (found.subject, found.severity) == ("server", "high")
    assert found.statement.startswith(
        f'{name} is off: 100000 dead rows wait in 2 tables (most in public."Bb") of database app, about 953.7 MB'
    )
    assert f"ALTER SYSTEM SET {name} = on;" in found.action and "RESET" not in found.action


def test_autovacuum_is_off_for_a_toast_table(cap: SyntheticCapture) -> None:
    table(cap, "t", n_live_tup=10, n_dead_tup=1)
    table(cap, "t", view="pg_stat_toast_tables", relid=30_000, size=10**6, n_live_tup=20_000, n_dead_tup=20_000, autovacuum_enabled=0)
    found = one(cap, "AUTOVACUUM-OFF")
    assert "off for the TOAST table of public.t: 20000 dead rows" in found.statement
    assert "RESET (toast.autovacuum_enabled)" in found.action


# -- AUTOVACUUM-BLOCKED -----------------------------------------------------------------------------------------------------


def holder(cap: SyntheticCapture, age_s: float, datid: int = 16384) -> int:
    session = cap.add_session(application_name="report", pid=4711, datid=datid)
    cap.sample(session, "idle in transaction", "Client:ClientRead", 0, 60, xact_start_s=60 - age_s, backend_xmin=9_999_000)
    return session


def test_a_vacuum_that_may_not_remove_what_a_transaction_could_see(cap: SyntheticCapture) -> None:
    holder(cap, 900)
    table(cap, "kept", size=10**7, n_live_tup=50_000, n_dead_tup=(90_000, 100_000), last_autovacuum=30, autovacuum_count=(7, 8))
    table(cap, "not_yet", size=10**7, n_live_tup=50_000, n_dead_tup=100_000, last_autovacuum=1000)
    found = one(cap, "AUTOVACUUM-BLOCKED")
    assert (found.subject, found.severity, found.confidence) == ("table public.kept", "medium", "high")
    assert found.statement.startswith(
        "The vacuum of public.kept that ended 30 s before the end left 100000 dead rows, about 6.4 MB: the transaction of pid 4711"
        " (idle in transaction, application report) has been open for 900 s; 10000 more dead rows than 60 s before"
    )
    assert "pg_terminate_backend(4711)" in found.action


@pytest.mark.parametrize(("age_s", "datid"), [(20, 16384), (900, 5)])
def test_a_transaction_that_began_after_the_vacuum_or_is_elsewhere_keeps_nothing(cap: SyntheticCapture, age_s: float, datid: int) -> None:
    cap.add("database", datid=5, datname="other")
    holder(cap, age_s, datid)
    table(cap, "kept", size=10**7, n_live_tup=50_000, n_dead_tup=100_000, last_autovacuum=30)
    assert rows(cap, "AUTOVACUUM-BLOCKED") == []


def test_a_lock_that_autovacuum_passes_over(cap: SyntheticCapture) -> None:
    session = cap.add_session(application_name="migration", pid=4712)
    cap.sample(session, "idle in transaction", "Client:ClientRead", 0, 60, xact_start_s=-540)
    table(cap, "locked", size=10**7, n_live_tup=50_000, n_dead_tup=100_000, relid=777, last_autovacuum=5000)
    table(cap, "other", size=10**7, n_live_tup=50_000, n_dead_tup=100_000, relid=778, last_autovacuum=5000)
    cap.stat("pg_locks", "xact_age_s", 540, 600, obj="777/4712/ShareLock")
    cap.stat("pg_locks", "xact_age_s", None, 600, obj="778/4712/ShareLock")
    found = one(cap, "AUTOVACUUM-BLOCKED")
    assert found.subject == "table public.locked"
    assert "passes over it while pid 4712 (idle in transaction, application migration) holds ShareLock, for 600 s by now" in found.statement


# -- AUTOVACUUM-SLOW --------------------------------------------------------------------------------------------------------


def workers(cap: SyntheticCapture, count: int, wait: str | None) -> None:
    for n in range(count):
        cap.sample(cap.add_session(backend_type="autovacuum worker", pid=5000 + n), "active", wait, 0, 60)


def test_workers_that_sleep_while_dead_rows_come(cap: SyntheticCapture) -> None:
    workers(cap, 1, "Timeout:VacuumDelay")
    table(cap, "behind", size=3 * 10**9, n_live_tup=500_000, n_dead_tup=(900_000, 10**6))
    found = one(cap, "AUTOVACUUM-SLOW")
    assert (found.subject, found.severity) == ("autovacuum", "high")
    assert found.statement == (
        "1000000 dead rows, about 1907.3 MB, wait in public.behind of database app, 100000 more than at the start, 60 s earlier; "
        "workers slept 60.0 of 60.0 s for the cost limit"
    )
    assert "autovacuum_vacuum_cost_limit = 2000" in found.action and "All workers have work" not in found.action


def test_all_workers_are_busy_and_more_tables_wait(cap: SyntheticCapture) -> None:
    workers(cap, 3, None)
    for name in ("a", "bb", "ccc", "dddd"):
        table(cap, name, size=10**6, n_live_tup=50_000, n_dead_tup=(20_000, 30_000))
    found = one(cap, "AUTOVACUUM-SLOW")
    assert "all 3 workers were busy 100 % of the time" in found.statement and "pauses" not in found.action


@pytest.mark.parametrize(("count", "wait", "dead"), [(3, None, (30_000, 31_000)), (1, "Timeout:VacuumDelay", (31_000, 30_000))])
def test_workers_that_keep_up(cap: SyntheticCapture, count: int, wait: str | None, dead: tuple[int, int]) -> None:
    workers(cap, count, wait)
    table(cap, "a", size=10**6, n_live_tup=50_000, n_dead_tup=dead)
    assert rows(cap, "AUTOVACUUM-SLOW") == []


# -- STALE-STATISTICS -------------------------------------------------------------------------------------------------------


def load(cap: SyntheticCapture, query: str, statement_id: int = 5, seconds: float = 30) -> None:
    cap.add("statement", statement_id=statement_id, id_source="server", query=query)
    cap.sample(cap.add_session(application_name="shop"), "active", None, 0, seconds, statement_id=statement_id)


def test_a_table_that_changed_since_it_was_analysed(cap: SyntheticCapture) -> None:
    table(cap, "orders", n_live_tup=100_000, n_mod_since_analyze=80_000, last_autoanalyze=36_000)
    table(cap, "fresh", n_live_tup=100_000, n_mod_since_analyze=80_000, last_autoanalyze=30)
    table(cap, "below", n_live_tup=10**6, n_mod_since_analyze=150_000, last_autoanalyze=36_000)
    load(cap, "select * from orders o join customer using (id)")
    load(cap, "select * from reorders", 6)
    found = one(cap, "STALE-STATISTICS")
    assert (found.subject, found.severity, found.confidence) == ("table public.orders", "medium", "high")
    assert found.statement == (
        "80000 rows of public.orders have changed since it was analysed 10.0 hours ago, of about 100000; 1 statement that names it took"
        " 30.0 s of database time, most: select * from orders o join customer using (id)"
    )
    assert "`ANALYZE public.orders;`" in found.action and "RESET" not in found.action


def test_a_table_that_was_never_analysed(cap: SyntheticCapture) -> None:
    """Where autovacuum is on, one that is being loaded right now is on its way."""
    table(cap, "loading", n_live_tup=50_000, n_mod_since_analyze=50_000, n_tup_ins=(0, 50_000), reltuples=-1)
    table(cap, "never", n_live_tup=50_000, n_mod_since_analyze=50_000, reltuples=-1, autovacuum_enabled=0)
    found = one(cap, "STALE-STATISTICS")
    assert found.statement == "public.never has never been analysed and has about 50000 rows; autovacuum is off for this table"
    assert found.severity == "low" and "RESET (autovacuum_enabled)" in found.action


def test_nobody_lost_much_by_old_statistics_of_a_table_that_is_hardly_used(cap: SyntheticCapture) -> None:
    """Look-ups by key in a table that has just been loaded."""
    table(cap, "account", n_live_tup=20_000, n_mod_since_analyze=20_000, reltuples=-1)
    load(cap, "select v from account where id = $1", seconds=0.1)
    assert one(cap, "STALE-STATISTICS").severity == "low"


def test_a_partitioned_table_is_not_analysed_by_itself(cap: SyntheticCapture) -> None:
    table(cap, "parted", is_partitioned=1, partitions=12, partition_rows=500_000, reltuples=-1)
    table(cap, "analysed", is_partitioned=1, partitions=12, partition_rows=500_000, reltuples=500_000, last_analyze=10**6)
    load(cap, "select count(*) from parted group by a")
    found = one(cap, "STALE-STATISTICS")
    assert (found.subject, found.severity) == (
        "table public.parted",
        "medium",
    ) and "its 12 partitions have about 500000 rows" in found.statement
    assert "from a job" in found.action


# -- MISSING-INDEX ----------------------------------------------------------------------------------------------------------


def statement(cap: SyntheticCapture, statement_id: int, before: dict[str, float] | None = None, **after: float) -> None:
    """Counters of pg_stat_statements, as sums since they began; before: other values before the window (none: it had not run)."""
    names = ("calls", "total_exec_time", "rows", "shared_blks_hit", "shared_blks_read", "plans", "total_plan_time")
    for name in (*names, *(n for n in after if n not in names)):
        value = None if before is None else before.get(name, 0)
        cap.stat("pg_stat_statements", name, value, after.get(name, 0), obj=str(statement_id))


def scanned(cap: SyntheticCapture, query: str, *, result_rows: float = 600, blocks: float = 600 * 5000, name: str = "orders") -> None:
    """600 scans of 40 MB with 200,000 rows, all by one statement, which is active for half of the window."""
    table(cap, name, size=5000 * 8192, n_live_tup=200_000, seq_scan=(100, 700), seq_tup_read=(0, 600 * 200_000))
    load(cap, query)
    statement(
        cap,
        5,
        {"calls": 10, "total_exec_time": 500, "rows": 10},
        calls=610,
        total_exec_time=30_500,
        rows=10 + result_rows,
        shared_blks_hit=blocks,
    )


def test_a_table_is_read_whole_for_one_row(cap: SyntheticCapture) -> None:
    scanned(cap, "select * from orders where customer = $1")
    found = one(cap, "MISSING-INDEX")
    assert (found.subject, found.severity, found.confidence, found.cost_s) == ("table public.orders", "medium", "high", 30.0)
    assert found.statement == (
        "public.orders of database app (39.1 MB) was read from end to end 600 times in 60 s, 200000 rows each time, for 1.0 rows"
        " of a result;"
        " one statement that names it took 30.0 s of database time, most: select * from orders where customer = $1"
    )
    assert "CREATE INDEX CONCURRENTLY ... ON public.orders" in found.action and "pg_stat_statements" not in found.action


def test_without_counters_of_statements_a_missing_index_is_a_guess(cap: SyntheticCapture) -> None:
    table(cap, "orders", size=5000 * 8192, n_live_tup=200_000, seq_scan=(100, 700), seq_tup_read=(0, 600 * 200_000))
    cap.add("statement", statement_id=5, id_source="server", query="update orders set a = 1 where customer = 7")
    session = cap.add_session()
    for second in range(30):
        cap.sample(session, "active", None, second, second + 0.5, statement_id=5)
    found = one(cap, "MISSING-INDEX")
    assert found.confidence == "low" and found.cost_s == 15.0 and "of a result" not in found.statement
    assert "With the extension" in found.action


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("select * from orders", {}),
        ("select region, sum(price) from orders where day > $1 group by region", {}),
        ("select count(*) from orders where price > 10", {}),
        ("select * from orders where day > $1", {"result_rows": 600 * 50_000}),
        ("select * from orders where id = $1", {"blocks": 600 * 4}),
        ("select * from reorders where id = $1", {}),
        ("copy orders to stdout", {}),
        ("insert into orders select 1 where 1 = $1", {}),
    ],
)
def test_full_reports_and_statements_that_use_an_index_are_fine(cap: SyntheticCapture, query: str, options: dict[str, float]) -> None:
    scanned(cap, query, **options)
    assert rows(cap, "MISSING-INDEX") == []


def test_small_tables_and_a_reset_of_the_statistics_are_fine(cap: SyntheticCapture) -> None:
    table(cap, "small", size=80_000, n_live_tup=900, seq_scan=(0, 10**6), seq_tup_read=(0, 9 * 10**8))
    table(cap, "reset", size=10**8, n_live_tup=10**6, seq_scan=(900, 10), seq_tup_read=(10**9, 10**9 + 10**8))
    load(cap, "select * from small, reset where small.id = $1")
    assert rows(cap, "MISSING-INDEX") == []


# -- PLAN-FLIP, JIT-COST, PARALLEL-STARVED, PLANNING-TIME -------------------------------------------------------------------


@pytest.mark.parametrize("query", ["select * from orders where customer = $1 and day > $2", "execute late (7)"])
def test_a_statement_that_reads_a_hundred_times_more(cap: SyntheticCapture, query: str) -> None:
    load(cap, query)
    before = {"calls": 1000, "total_exec_time": 2000, "rows": 5000, "shared_blks_hit": 20_000}
    statement(cap, 5, before, calls=1100, total_exec_time=22_000, rows=5500, shared_blks_hit=220_000)
    found = one(cap, "PLAN-FLIP")
    assert (found.subject, found.severity, found.cost_s) == ("statement 5", "medium", 19.8)
    assert found.statement.startswith(
        "100 calls read 2000 blocks and took 200.00 ms each, 100 times the blocks and 100 times the time"
        " of the 1000 calls before the capture: 19.8 s more"
    )
    assert "WHERE queryid = 5;" in found.verify


@pytest.mark.parametrize(
    ("calls_before", "after"),
    [
        (1000, {"total_exec_time": 22_000, "shared_blks_hit": 22_000}),  # waits, not blocks
        (1000, {"total_exec_time": 2300, "shared_blks_hit": 220_000}),  # blocks, not time
        (1000, {"total_exec_time": 22_000, "shared_blks_hit": 220_000, "rows": 500_000}),  # a larger result
        (5, {"total_exec_time": 22_000, "shared_blks_hit": 220_000}),  # nothing to compare with
        (2000, {"total_exec_time": 22_000, "shared_blks_hit": 220_000}),  # a reset
    ],
)
def test_other_changes_are_no_other_plan(cap: SyntheticCapture, calls_before: int, after: dict[str, float]) -> None:
    statement(
        cap,
        5,
        {"calls": calls_before, "total_exec_time": 2000, "rows": 5000, "shared_blks_hit": 20_000},
        **{"calls": 1100, "rows": 5500, **after},
    )
    assert rows(cap, "PLAN-FLIP") == []


def test_statements_that_compile_more_than_they_run(cap: SyntheticCapture) -> None:
    jit = {"jit_generation_time": 2000, "jit_inlining_time": 1000, "jit_optimization_time": 3000, "jit_emission_time": 3000}
    load(cap, "select sum(a + b) from wide")
    statement(cap, 5, {name: 0 for name in ("jit_functions", *jit)}, calls=30, total_exec_time=12_000, jit_functions=300, **jit)
    statement(
        cap,
        6,
        None,
        calls=30,
        total_exec_time=60_000,
        jit_functions=30,
        jit_generation_time=100,
        jit_inlining_time=0,
        jit_optimization_time=0,
        jit_emission_time=0,
    )
    found = one(cap, "JIT-COST")
    assert found.cost_s == 9.0 and found.statement == (
        "One statement compiled 300 functions in 30 calls. Compilation took 9.0 s, 75 % of the execution time;"
        " most: 300.0 ms of 400.0 ms per call of select sum(a + b) from wide"
    )


def test_what_is_compiled_while_a_plan_is_set_up_is_no_part_of_its_execution(cap: SyntheticCapture) -> None:
    """As on a real server: 6.1 s of compilation for 6.0 s of execution."""
    load(cap, "select sum(a + b) from wide")
    jit = {"jit_generation_time": 600, "jit_inlining_time": 500, "jit_optimization_time": 3000, "jit_emission_time": 2000}
    statement(cap, 5, {name: 0 for name in ("jit_functions", *jit)}, calls=10, total_exec_time=6000, jit_functions=30, **jit)
    assert "took 6.1 s, 100 % of the execution time; most: 610.0 ms of 610.0 ms per call" in one(cap, "JIT-COST").statement


def test_before_15_jit_is_not_counted(cap: SyntheticCapture) -> None:
    statement(cap, 5, {}, calls=30, total_exec_time=12_000)
    with cap.open() as capture:
        [(rule, why)] = evaluate(capture, only=["JIT-COST"]).not_evaluated
    assert rule == "JIT-COST" and "from version 15" in why


def parallel(cap: SyntheticCapture, allowed: int = 8) -> None:
    cap.setting("max_parallel_workers", allowed)
    cap.setting("max_worker_processes", 8)


def test_workers_that_plans_did_not_get(cap: SyntheticCapture) -> None:
    parallel(cap, 4)
    cap.stat("pg_stat_database", "parallel_workers_to_launch", 100, 300, obj="app")
    cap.stat("pg_stat_database", "parallel_workers_launched", 100, 150, obj="app")
    load(cap, "select count(*) from big")
    statement(cap, 5, {}, calls=100, total_exec_time=30_000, parallel_workers_to_launch=200, parallel_workers_launched=50)
    found = one(cap, "PARALLEL-STARVED")
    assert (found.severity, found.cost_s) == ("medium", None) and found.statement == (
        "Plans asked for 200 parallel workers in 60 s and got 50 (25 %); max_parallel_workers is 4, max_worker_processes 8;"
        " most are missing for: select count(*) from big"
    )
    assert "The limit for all statements is `max_parallel_workers`" in found.action and "needs a restart" not in found.action


@pytest.mark.parametrize(("leaders", "found"), [(2, 1), (1, 0)])
def test_all_workers_are_in_use(cap: SyntheticCapture, leaders: int, found: int) -> None:
    """Before 18 nobody counts those that were refused; one statement with all workers need not have been refused any."""
    parallel(cap)
    for n in range(8):
        cap.sample(cap.add_session(backend_type="parallel worker", leader_pid=4800 + n % leaders), "active", None, 0, 60)
    assert len(rows(cap, "PARALLEL-STARVED")) == found


def test_planning_that_takes_longer_than_execution(cap: SyntheticCapture) -> None:
    load(cap, "select * from parted where a = 1")
    statement(cap, 5, {"plans": 0}, calls=1000, total_exec_time=1000, plans=1000, total_plan_time=9000)
    statement(cap, 6, {"plans": 0}, calls=1000, total_exec_time=90_000, plans=1000, total_plan_time=5000)
    found = one(cap, "PLANNING-TIME")
    assert found.cost_s == 9.0 and found.statement == (
        "One statement took 9.0 s to plan (1000 plans for 1000 calls) and 1.0 s to execute;"
        " most: 9.00 ms for each plan of select * from parted where a = 1"
    )


# -- PLAN-INVALIDATION ------------------------------------------------------------------------------------------------------


def prepared(cap: SyntheticCapture, statement_id: int, query: str, *, plans: float, plan_ms: float, calls: float = 10_000) -> None:
    """A statement that sessions keep prepared. Four of them are there from the start; the fixture has five more."""
    cap.add("statement", statement_id=statement_id, id_source="server", query=query)
    before = {"calls": 5000, "plans": 24, "total_plan_time": 100}
    statement(cap, statement_id, before, calls=5000 + calls, plans=24 + plans, total_plan_time=100 + plans * plan_ms, total_exec_time=9000)


def command(cap: SyntheticCapture, name: str, times: float) -> None:
    cap.stat("pg_stat_statements_commands", "calls", 3, 3 + times, obj=name)


def test_commands_that_discard_plans(cap: SyntheticCapture) -> None:
    """Of 25 + 5 commands on the table each made five sessions plan at most; the index that is no more was one of the table."""
    table(cap, "account")
    cap.add("relation", datid=16384, relid=777, nspname="public", relname="by_note", relkind="i", table_relid=20_007)
    command(cap, "ALTER TABLE/account", 25)
    command(cap, "DROP INDEX/by_note", 5)
    command(cap, "ALTER TABLE/elsewhere", 900)
    prepared(cap, 5, "select * from public.account where id = $1", plans=150, plan_ms=20)
    prepared(cap, 6, "select * from accounts where id = $1", plans=150, plan_ms=2000)  # nothing happened to its table
    found = one(cap, "PLAN-INVALIDATION")
    sessions = 5
    assert found.samples == 30 * sessions and found.cost_s == pytest.approx(150 * 0.020)
    assert found.statement == (
        "Up to 5 sessions planned one statement again at most 150 times, in 10000 calls, because its kept plan was discarded. This took"
        " at most 3.0 s, 20.00 ms for each plan of the costliest. 30 commands on their tables discarded the plans: ALTER TABLE of account"
        " (25 times), DROP INDEX of public.account (5 times); costliest: select * from public.account where id = $1"
    )
    assert "Run such commands less often" in found.action and "Autovacuum visits" not in found.action


def test_autovacuum_that_discards_plans(cap: SyntheticCapture) -> None:
    table(cap, "Queue", autoanalyze_count=(10, 70), autovacuum_count=(5, 65))
    prepared(cap, 5, 'select * from "Queue" q join item i using (id)', plans=400, plan_ms=10)
    found = one(cap, "PLAN-INVALIDATION")
    assert found.cost_s == pytest.approx(4.0) and "autovacuum: ANALYZE of public.Queue (60 times)" in found.statement
    assert "Autovacuum visits the table very often" in found.action and "Run such commands" not in found.action


@pytest.mark.parametrize("case", ["sent as text", "no command", "one command", "new sessions", "cheap", "never kept"])
def test_plans_that_no_command_discarded(cap: SyntheticCapture, case: str) -> None:
    """A statement that is planned at each call, one that sessions prepare when they begin, and effects that do not matter."""
    if case != "no command":
        command(cap, "ALTER TABLE/account", 1 if case == "one command" else 30)
    if case == "new sessions":
        for n in range(25):
            cap.sample(cap.add_session(start_s=n), "active", None, n + 1, n + 2)
    query = "select * from account where id = $1"
    if case in ("sent as text", "never kept"):
        cap.add("statement", statement_id=5, id_source="server", query=query)
        before = {"calls": 5000, "plans": 5000} if case == "sent as text" else {}
        statement(cap, 5, before, calls=before.get("calls", 0) + 150, plans=before.get("plans", 0) + 150, total_plan_time=3000)
    else:
        prepared(cap, 5, query, plans=150, plan_ms=0.5 if case == "cheap" else 20)
    assert rows(cap, "PLAN-INVALIDATION") == []


def test_without_the_counter_of_plans_nobody_knows(cap: SyntheticCapture) -> None:
    command(cap, "ALTER TABLE/account", 30)
    statement(cap, 5, {"calls": 5000}, calls=15_000, total_exec_time=9000)
    with cap.open() as capture:
        [(rule, why)] = evaluate(capture, only=["PLAN-INVALIDATION"]).not_evaluated
    assert rule == "PLAN-INVALIDATION" and "track_planning is off" in why


# -- CATALOG-BLOAT, SLOW-LOADER, SINGLE-ROW-COMMITS -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deleted", "dead", "found"), [(12_000, (500, 900), 1), (300, (19_000, 20_000), 1), (300, (500, 900), 0), (0, (20_000, 20_000), 0)]
)
def test_temporary_tables_that_come_and_go(cap: SyntheticCapture, deleted: int, dead: tuple[int, int], found: int) -> None:
    columns = {"n_tup_ins": (0, deleted), "n_tup_del": (0, deleted), "n_dead_tup": dead}
    table(cap, "pg_attribute", view="pg_stat_sys_tables", size=2 * 10**8, n_live_tup=100, **columns)
    load(cap, "create temp table work (a int)", seconds=3)
    result = rows(cap, "CATALOG-BLOAT")
    assert len(result) == found
    for finding in result:
        assert f"{deleted} rows of the catalogs of database app were deleted in 60 s" in finding.statement
        assert "such statements took 3.0 s of database time, as create temp table work" in finding.statement


def test_a_copy_that_waits_for_its_client(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=5, id_source="server", query='copy shop."Or ders" (a, b) from stdin with (format csv)')
    session = cap.add_session(application_name="etl", pid=4711)
    cap.sample(session, "active", "Client:ClientRead", 0, 40, statement_id=5)
    cap.sample(session, "active", None, 40, 50, statement_id=5)
    found = one(cap, "SLOW-LOADER")
    assert (found.severity, found.confidence, found.cost_s) == ("medium", "high", 40.0)
    assert found.statement.startswith('COPY into shop."Or ders" by application etl from local waited 40.0 of 50.0 s (80 %, ')
    assert found.evidence[0]["pid"] == 4711


def test_a_copy_that_the_server_is_busy_with(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=5, id_source="server", query="copy orders from stdin")
    session = cap.add_session(application_name="etl")
    cap.sample(session, "active", "Client:ClientRead", 0, 20, statement_id=5)
    cap.sample(session, "active", None, 20, 50, statement_id=5)
    assert rows(cap, "SLOW-LOADER") == []


def inserts(cap: SyntheticCapture, commit: int) -> None:
    """A session that inserts for half of the window and waits for its commits in the other half, under this statement."""
    cap.add("statement", statement_id=5, id_source="server", query="insert into orders values ($1, $2)")
    cap.add("statement", statement_id=6, id_source="server", query="commit")
    session = cap.add_session(application_name="import")
    cap.sample(session, "active", None, 0, 60, every=2, statement_id=5)
    cap.sample(session, "active", "IO:WALSync", 0, 60, every=2, offset=1, statement_id=commit)


def test_rows_that_are_committed_one_by_one(cap: SyntheticCapture) -> None:
    inserts(cap, 5)
    statement(cap, 5, {"calls": 100, "rows": 100}, calls=6100, rows=6100, total_exec_time=30_000)
    found = one(cap, "SINGLE-ROW-COMMITS")
    assert (found.severity, found.cost_s) == ("medium", 30.0)
    assert found.statement == (
        "1 session of application import spent 30.0 of 60.0 s of INSERT waiting for the commit of each row"
        " (100 calls a second of 1.0 rows): insert into orders values ($1, $2)"
    )


@pytest.mark.parametrize(("commit", "per_call"), [(6, 1), (5, 100)])
def test_rows_that_are_committed_together(cap: SyntheticCapture, commit: int, per_call: int) -> None:
    inserts(cap, commit)
    statement(cap, 5, {}, calls=6000, rows=6000 * per_call, total_exec_time=30_000)
    assert rows(cap, "SINGLE-ROW-COMMITS") == []
