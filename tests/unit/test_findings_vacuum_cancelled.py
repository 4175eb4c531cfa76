"""AUTOVACUUM-CANCELLED: workers that gave way to requests for locks, by hand computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture, rows


def cancel(
    cap: SyntheticCapture, at: float, works_s: float = 5, waits_s: float = 1, stays_s: float = 0, text: str = "VACUUM public.account",
    hz: float = 20, **columns: Any,
) -> None:  # fmt: skip
    """A worker that began `works_s` before `at`, when a request that began `waits_s` before makes it leave."""
    statement = 700 + len(text)
    cap.add("statement", statement_id=statement, id_source="text", query=f"autovacuum: {text}")
    worker = cap.add_session(pid=9001, backend_type="autovacuum worker", datid=16384, start_s=at - works_s)
    cap.sample(worker, "active", "Timeout:VacuumDelay", at - works_s, at + stays_s, statement_id=statement)
    waiter = cap.add_session(application_name="migrate")
    table = {"locktype": "relation", "datid": 16384, "relid": 100, "mode": "AccessExclusiveLock"}
    cap.lock_wait(waiter, worker, at - waits_s, at, hz, statement_id=800, **table | columns)


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    made = SyntheticCapture(tmp_path)
    made.background()
    made.setting("deadlock_timeout", 1000, unit="ms")
    made.add("relation", datid=16384, relid=100, nspname="public", relname="account", relkind="r", table_relid=100, size_bytes=10**9)
    made.add("statement", statement_id=800, id_source="server", query="alter table account add column c int")
    made.setting("autovacuum_vacuum_threshold", 50)
    made.setting("autovacuum_vacuum_scale_factor", 0.2)
    return made


def dead(cap: SyntheticCapture, rows: float, vacuumed_s: float | None = None) -> None:
    number = {"relid": 100, "seq_scan": 1, "n_tup_ins": 1, "n_tup_upd": 1, "n_tup_del": 1, "n_live_tup": 1_000_000, "reltuples": 1_000_000}
    for metric, value in (number | {"n_dead_tup": rows}).items():
        cap.stat("pg_stat_user_tables", metric, value, value, obj="shop/public/account")
    if vacuumed_s is not None:
        moment = cap.wall_us(60) / 1e6 - vacuumed_s
        cap.stat("pg_stat_user_tables", "last_autovacuum", moment, moment, obj="shop/public/account")


def test_a_vacuum_that_gives_way_again_and_again(cap: SyntheticCapture) -> None:
    """Three requests of 1 s each; the worker had run for 5 s each time. A quarter of a GB of the billion bytes is dead."""
    for at in (10, 25, 40):
        cancel(cap, at)
    dead(cap, 333_333)
    (finding,) = rows(cap, "AUTOVACUUM-CANCELLED")
    assert (finding.subject, finding.severity, finding.confidence) == ("table public.account", "medium", "high")
    assert finding.cost_s == pytest.approx(3, abs=0.05)
    assert finding.statement.startswith(
        "autovacuum: VACUUM public.account gave way 3 times after 15.0 s of work: application migrate"
    )
    assert "333333 dead rows wait, about 238.4 MB; no vacuum of it has come to its end" in finding.statement
    assert finding.statement.endswith("asked with: alter table account add column c int")
    assert [row["waited_s"] for row in finding.evidence] == pytest.approx([1, 1, 1], abs=0.1)
    assert "VACUUM (ANALYZE) public.account;" in finding.action and "AccessExclusiveLock on the table in migrate" in finding.action


@pytest.mark.parametrize(("old_s", "found"), [(None, 1), (3600.0, 1), (20.0, 0)])
def test_once_counts_where_the_table_waits_for_long(cap: SyntheticCapture, old_s: float | None, found: int) -> None:
    cancel(cap, 30)
    dead(cap, 333_333, old_s)
    assert len(rows(cap, "AUTOVACUUM-CANCELLED")) == found


def test_an_analyze_that_gives_way(cap: SyntheticCapture) -> None:
    """It takes the same lock, and the server cancels it in whatever phase it is."""
    for at in (10, 25, 40):
        cancel(cap, at, text="ANALYZE public.account")
    (finding,) = rows(cap, "AUTOVACUUM-CANCELLED")
    assert finding.statement.startswith("autovacuum: ANALYZE public.account gave way 3 times")
    assert finding.cost_s == pytest.approx(3, abs=0.05)


@pytest.mark.parametrize(
    "change",
    [{"waits_s": 0.5}, {"stays_s": 3}, {"text": "VACUUM public.account (to prevent wraparound)"}],
    ids=lambda c: next(iter(c)),
)
def test_workers_that_did_not_give_way(cap: SyntheticCapture, change: dict[str, object]) -> None:
    """They ended by themselves, went on, or may not be cancelled."""
    for at in (10, 25, 40):
        cancel(cap, at, **change)  # type: ignore[arg-type]
    dead(cap, 333_333)
    assert rows(cap, "AUTOVACUUM-CANCELLED") == []


@pytest.mark.parametrize("says_since_when", [True, False])  # 13 does not
def test_looks_at_locks_are_rare_on_a_busy_host(cap: SyntheticCapture, says_since_when: bool) -> None:
    """One look half-way through each wait: the samples of the waiter say when it began and ended."""
    for at in (10, 25, 40):
        cancel(cap, at, waits_s=0.5, hz=2, wait_start=cap.wall_us(at - 1) if says_since_when else 0)
        cap.sample(len(cap.pids), "active", "Lock:relation", at - 1, at, statement_id=800)
    (finding,) = rows(cap, "AUTOVACUUM-CANCELLED")
    assert [row["waited_s"] for row in finding.evidence] == pytest.approx([1, 1, 1], abs=0.05)
    assert finding.cost_s == pytest.approx(3, abs=0.05)
