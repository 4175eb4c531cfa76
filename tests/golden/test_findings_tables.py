"""Findings about tables and statements: the planted trouble gives exactly its row, what only looks like it gives none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.findings import Finding, evaluate

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


def rows(cap: SyntheticCapture, only: str, **thresholds: float) -> list[Finding]:
    with cap.open() as capture:
        result = evaluate(capture, only=[only], thresholds=thresholds)
        assert result.not_evaluated == []
        return result.findings


def one(cap: SyntheticCapture, only: str) -> Finding:
    (found,) = rows(cap, only)
    return found


# -- AUTOVACUUM-OFF ---------------------------------------------------------------------------------------------------------


def test_autovacuum_is_off_for_a_table(cap: SyntheticCapture) -> None:
    table(cap, "off", size=200_000_000, n_live_tup=100_000, n_dead_tup=(60_000, 100_000), autovacuum_enabled=0, last_vacuum=7200)
    table(cap, "on", size=200_000_000, n_live_tup=100_000, n_dead_tup=100_000)
    table(cap, "off_not_due", size=10**9, n_live_tup=10**6, n_dead_tup=100_000, autovacuum_enabled=0)
    found = one(cap, "AUTOVACUUM-OFF")
    assert (found.subject, found.severity, found.cost_s) == ("table public.off", "medium", None)
    assert found.statement == (
        "autovacuum is off for public.off: 100000 dead rows wait in this table of database app, about 100.0 MB;"
        " 40000 more than 60 s before; the last vacuum was 2.0 hours ago"
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
        f'{name} is off: 100000 dead rows wait in 2 tables (most in public."Bb") of database app, about 1000.0 MB'
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
        "The vacuum of public.kept that ended 30 s before the end left 100000 dead rows, about 6.7 MB: the transaction of pid 4711"
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
        "1000000 dead rows, about 2000.0 MB, wait in public.behind of database app, 100000 more than 60 s before; "
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
