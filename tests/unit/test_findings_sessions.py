"""Findings about sessions, clients and CPU: the planted trouble gives exactly its row, what only looks like it gives none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture, one, rows
from leadline.findings import evaluate
from leadline.views import where

READ = "Client:ClientRead"


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """A healthy server under an ordinary load: no rule may fire before the test plants something."""
    made = SyntheticCapture(tmp_path)
    made.background()
    made.ordinary_load()
    return made


def db_time_s(cap: SyntheticCapture) -> float:
    with cap.open() as capture:
        return float(capture.scalar("select sum(weight_s) from db_time"))


# -- AAS-SATURATED, TOP-WAIT ------------------------------------------------------------------------------------------------


def test_more_active_sessions_than_cpus(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, cpu_count=2)
    for _ in range(8):
        session = cap.add_session()
        cap.sample(session, "active", None, 10, 50)
        cap.delta(session, 10, 50, cpu_run_ns=250_000_000, cpu_queue_ns=750_000_000)
    for _ in range(2):
        cap.sample(cap.add_session(), "active", "IO:WALSync", 10, 50)
    found = one(cap, "AAS-SATURATED")
    assert (found.severity, found.confidence, found.subject) == ("high", "high", "server")
    assert found.statement == (
        "10.0 sessions were active on average (at most 10.1 in one second) on 2 CPUs for 40 s of 60 s: "
        "2.0 running, 6.0 waiting to run, 2.0 in waits"
    )
    assert (found.cost_s, found.share_of_db_time, found.samples) == (None, None, 10 * 4000)
    assert (found.ts_from, found.ts_to) == (cap.ts(10), cap.ts(50))
    assert [(e["event"], e["seconds"]) for e in found.evidence] == [("CPU", 320.08), ("WALSync", 80.0)]


def test_a_rest_of_a_second_is_no_second_of_its_own(tmp_path: Path) -> None:
    """A reading of the scheduler's counters covers a second, and the last one falls into the two passes after the last whole second."""
    cap = SyntheticCapture(tmp_path, cpu_count=2, seconds=20.02)
    for _ in range(6):
        session = cap.add_session()
        cap.sample(session, "active", "IO:WALSync", 0, 20.02)
        cap.delta(session, 0.02, 20.02, cpu_run_ns=0, cpu_queue_ns=200_000_000)
    # two readings of 0.2 s for each session end in the last second
    assert "6.0 sessions were active on average (at most 7.1 in one second)" in one(cap, "AAS-SATURATED").statement


def test_saturation_without_scheduler_times_says_so(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, cpu_count=2, seconds=20)
    for _ in range(6):
        cap.sample(cap.add_session(), "active", None, 0, 20)
    assert "6.0 on a CPU or waiting for one (not split: no scheduler times)" in one(cap, "AAS-SATURATED").statement


def test_a_short_burst_over_the_cpus_is_no_saturation(cap: SyntheticCapture) -> None:
    for _ in range(12):
        cap.sample(cap.add_session(), "active", None, 10, 25)
    assert rows(cap, "AAS-SATURATED") == []


def test_the_wait_that_takes_most_of_the_time(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=7, id_source="server", query="insert into log\n  values ($1)")
    for n in range(8):
        session = cap.add_session()
        cap.sample(session, "active", "LWLock:BufferContent", 0, 60, statement_id=7)
        cap.sample(session, "active", "LWLock:WALWrite", 0, 60, statement_id=7, every=4, offset=n % 4)
    found = one(cap, "TOP-WAIT")
    assert (found.severity, found.subject, found.samples) == ("info", "wait LWLock:BufferContent", 48_000)
    assert found.cost_s is None and found.share_of_db_time is None
    assert "Waits of class LWLock took 480.0 s" in found.statement
    assert "360.0 s of it LWLock:BufferContent; 360.0 s of that in: insert into log values ($1)" in found.statement
    assert found.evidence[0]["event"] == "BufferContent" and found.evidence[0]["sessions"] == 8


def test_sleeping_on_purpose_is_no_top_wait(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    cap.sample(cap.add_session(backend_type="autovacuum worker"), "active", "Timeout:VacuumDelay", 0, 60)
    cap.sample(cap.add_session(), "active", "Timeout:PgSleep", 0, 60)
    assert rows(cap, "TOP-WAIT") == []


def test_a_wait_of_a_nearly_idle_server_is_no_top_wait(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    cap.sample(cap.add_session(), "active", "IO:WALSync", 0, 60, every=5)
    assert rows(cap, "TOP-WAIT") == []


# -- CPU-STARVED --------------------------------------------------------------------------------------------------------------


def test_sessions_that_wait_for_a_cpu(cap: SyntheticCapture) -> None:
    for _ in range(4):
        session = cap.add_session(application_name="report")
        cap.sample(session, "active", None, 0, 60)
        cap.delta(session, 0, 60, cpu_run_ns=250_000_000, cpu_queue_ns=750_000_000)
    for metric, per_s in (("user", 3_000_000_000), ("system", 1_000_000_000), ("steal", 0), ("idle", 0)):
        cap.counter(f"stat.cpu_{metric}_ns", 10**12, per_s)
    found = one(cap, "CPU-STARVED")
    assert found.subject == "CPUs of the host"
    assert found.cost_s == pytest.approx(4 * 60 * 0.75, rel=0.03)
    assert found.share_of_db_time == pytest.approx(found.cost_s / db_time_s(cap))
    assert found.severity == "high"
    assert "on 4 CPUs; the sessions used 159.0 s of the 240.0 CPU seconds that were busy on the host" in found.statement
    assert "hypervisor" not in found.statement
    assert found.evidence[0]["application_name"] == "report"
    assert found.evidence[0]["waiting_to_run_s"] == pytest.approx(180, abs=1)


def test_a_woken_session_waits_for_a_cpu_though_it_still_looks_idle(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    for _ in range(8):
        session = cap.add_session(application_name="shop")
        cap.sample(session, "idle", "Client:ClientRead", 0, 60)
        cap.delta(session, 0, 60, cpu_run_ns=100_000_000, cpu_queue_ns=300_000_000)
    found = one(cap, "CPU-STARVED")
    assert (found.cost_s, found.share_of_db_time) == (pytest.approx(8 * 60 * 0.3), pytest.approx(1))
    assert found.severity == "critical"
    assert "for 144.0 s (75 % of the time they could have run, 100.0 % of database time)" in found.statement
    assert [e["application_name"] for e in found.evidence] == ["shop"]
    with cap.open() as capture:
        assert where.window(capture).db_time_s == pytest.approx(144)
        # what is waiting for a CPU is not idle
        assert [(o.what, round(o.seconds, 1)) for o in where.outside(capture)] == [("idle", 8 * 60 - 144)]


def test_a_wait_ends_when_the_session_is_woken(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    session = cap.add_session()
    step: list[tuple[str | None, str | None, int]]
    step = [("active", "LWLock:WALWrite", 4), ("active", None, 1), ("active", "Lock:tuple", 2), ("idle", None, 1), ("idle", READ, 2)]
    cap.cycle(session, step, 0, 60)
    # of the second, 0.1 s each without a wait: active and idle. The session ran for 0.115 s of them, so 0.085 s were run queue
    cap.delta(session, 0, 60, cpu_run_ns=115_000_000, cpu_queue_ns=460_000_000)
    with cap.open() as capture:
        split = where.cpu_split(capture)
        seconds = {c.wait_class: c.seconds for c in where.by_class(capture)}
        outside = {o.what: o.seconds for o in where.outside(capture)}
    assert split.queue_s == pytest.approx(60 * 0.46, rel=0.01)
    assert split.run_s == pytest.approx(60 * 0.0575, rel=0.01)
    # the 0.375 s that are left are taken off all waits alike, but off the lock and the client one pass for each time, of two
    taken = 0.375 / 0.6
    assert seconds == {
        "CPU": pytest.approx(split.run_s + split.queue_s),
        "LWLock": pytest.approx(60 * 0.4 * (1 - taken), rel=0.02),
        "Lock": pytest.approx(60 * (0.2 - 0.1 * taken), rel=0.02),
    }
    assert outside == {"idle": pytest.approx(60 * (0.0575 + 0.2 - 0.1 * taken), rel=0.02)}


def test_busy_cpus_with_a_short_queue_are_fine(cap: SyntheticCapture) -> None:
    session = cap.add_session()
    cap.sample(session, "active", None, 0, 60)
    cap.delta(session, 0, 60, cpu_run_ns=900_000_000, cpu_queue_ns=100_000_000)
    assert rows(cap, "CPU-STARVED") == []


def test_cpu_is_not_split_without_scheduler_times(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    session = cap.add_session()
    cap.sample(session, "active", None, 0, 60)
    cap.delta(session, 0, 60, status_changes=10)
    with cap.open() as capture:
        ((name, why),) = evaluate(capture, only=["CPU-STARVED"]).not_evaluated
    assert name == "CPU-STARVED" and "scheduler times" in why


# -- IDLE-IN-XACT -------------------------------------------------------------------------------------------------------------


def test_an_idle_root_blocker_of_a_few_seconds_in_a_short_capture(tmp_path: Path) -> None:
    """Three pauses of three seconds each, far below the fixed age of a minute: the victims' seconds decide."""
    cap = SyntheticCapture(tmp_path, seconds=20, cpu_count=2)
    cap.ordinary_load(6)
    cap.add("statement", statement_id=55, id_source="server", query="update stock set n = n - $1 where id = $2")
    boss = cap.add_session(application_name="checkout", pid=4711)
    victims = [cap.add_session(application_name="shop") for _ in range(5)]
    for start in (1, 7, 13):
        cap.sample(boss, "idle in transaction", READ, start, start + 3, statement_id=55, backend_xid=900)
        for victim in victims:
            cap.lock_wait(victim, boss, start + 0.5, start + 3)
    found = one(cap, "IDLE-IN-XACT")
    assert found.subject == "pid 4711"
    assert found.cost_s == pytest.approx(3 * 5 * 2.5)
    assert found.share_of_db_time == pytest.approx(found.cost_s / db_time_s(cap))
    assert (found.severity, found.confidence, found.samples) == ("high", "high", 3 * 5 * 50)
    assert (
        "(application checkout) was idle in transaction 3 times, for 3.0 s at most, and 5 sessions waited 37.5 s behind it"
        in found.statement
    )
    assert found.statement.endswith("it last ran: update stock set n = n - $1 where id = $2")
    assert [e["victims_lost_s"] for e in found.evidence] == [12.5, 12.5, 12.5]
    assert (found.ts_from, found.ts_to) == (cap.ts(1), cap.ts(16) - cap.period_ns)


def test_only_the_root_of_a_chain_is_named(cap: SyntheticCapture) -> None:
    """The one in the middle waits itself: it is no idle transaction, and the last victim's time counts for the root."""
    root, middle, last = (cap.add_session() for _ in range(3))
    cap.sample(root, "idle in transaction", READ, 5, 15, backend_xid=1)
    cap.lock_wait(middle, root, 6, 15)
    cap.lock_wait(last, middle, 8, 15)
    found = one(cap, "IDLE-IN-XACT")
    assert found.subject == f"pid {cap.pids[root]}"
    assert found.cost_s == pytest.approx(9 + 7)


def test_an_idle_psql_that_holds_nothing_is_left_alone(cap: SyntheticCapture) -> None:
    cap.sample(cap.add_session(application_name="psql"), "idle in transaction", READ, 0, 60, state_start_s=-7200, xact_start_s=-7200)
    assert rows(cap, "IDLE-IN-XACT") == []


def test_a_long_idle_transaction_that_holds_back_vacuum_is_low_without_victims(cap: SyntheticCapture) -> None:
    session = cap.add_session(application_name="psql")
    cap.sample(session, "idle in transaction", READ, 0, 60, state_start_s=-600, xact_start_s=-600, backend_xmin=cap.next_xid - 5000)
    found = one(cap, "IDLE-IN-XACT")
    assert (found.severity, found.cost_s, found.share_of_db_time) == ("low", None, None)
    assert "for 660.0 s; nobody waited for it, but its transaction holds back vacuum by 5000 transactions" in found.statement


def test_a_transaction_that_is_long_but_at_work_is_not_abandoned(cap: SyntheticCapture) -> None:
    """Open for two hours, idle for a moment at a time: what counts for an abandoned one is since when it is idle. Vacuum it holds back."""
    session = cap.add_session(application_name="etl")
    steps: list[tuple[str | None, str | None, int]] = [("active", None, 50), ("idle in transaction", READ, 20)]
    cap.cycle(session, steps, 0, 60, xact_age_s=7200, backend_xid=cap.next_xid - 5000, backend_xmin=cap.next_xid - 5000)
    (finding,) = rows(cap, "IDLE-IN-XACT", "XMIN-HORIZON")
    assert finding.id == "XMIN-HORIZON" and "for 2.0 hours" in finding.statement


@pytest.mark.parametrize(
    ("value", "source", "says"),
    [
        (0, "default", "; the server sets no idle_in_transaction_session_timeout"),
        (3_600_000, "configuration file", "; the server sets idle_in_transaction_session_timeout to 3600 s"),
        (60_000, "user", ""),  # of leadline's own role
    ],
)
def test_the_limit_that_did_not_end_an_idle_transaction(cap: SyntheticCapture, value: int, source: str, says: str) -> None:
    session = cap.add_session(application_name="report")
    cap.sample(session, "idle in transaction", READ, 0, 60, xact_start_s=-900, state_start_s=-600, backend_xmin=cap.next_xid - 5000)
    cap.setting("idle_in_transaction_session_timeout", value, source=source, unit="ms")
    found = one(cap, "IDLE-IN-XACT")
    assert found.statement.count("idle_in_transaction_session_timeout") == bool(says) and says in found.statement


def test_round_trips_of_a_contended_row_are_no_idle_transaction(cap: SyntheticCapture) -> None:
    """Many clients update one row: whoever holds it is often idle in transaction, for a round trip at a time."""
    clients = [cap.add_session(application_name="bench") for _ in range(4)]
    for second in range(0, 60, 2):
        holder, *others = clients[second // 2 % 4 :] + clients[: second // 2 % 4]
        cap.cycle(holder, [("active", None, 1), ("idle in transaction", READ, 4), ("idle", READ, 1)], second, second + 2)
        for other in others:
            cap.lock_wait(other, holder, second, second + 2)
    assert rows(cap, "IDLE-IN-XACT") == []


def test_a_blocker_that_works_is_not_idle(cap: SyntheticCapture) -> None:
    blocker, victim = cap.add_session(), cap.add_session()
    cap.sample(blocker, "active", "IO:DataFileRead", 5, 30, backend_xid=1)
    cap.lock_wait(victim, blocker, 6, 30)
    assert rows(cap, "IDLE-IN-XACT") == []


# -- XMIN-HORIZON -------------------------------------------------------------------------------------------------------------


def test_a_session_with_an_old_snapshot(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=8, id_source="server", query="select count(*) from history")
    session = cap.add_session(pid=815, application_name="report")
    cap.sample(session, "active", None, 0, 60, statement_id=8, backend_xmin=(cap.next_xid - 20_000_000) % 2**32)
    cap.sample(cap.add_session(), "active", None, 0, 60, backend_xmin=cap.next_xid - 2_000_000)
    cap.next_xid = 4_294_967_296 + 10_000_000  # the counter has wrapped: the xmin of both is still behind it
    found = one(cap, "XMIN-HORIZON")
    assert (found.subject, found.severity, found.cost_s) == ("pid 815", "high", None)
    assert "20000000 transactions" in found.statement and "1 more hold" in found.statement
    assert found.statement.endswith("select count(*) from history")
    assert [e["age_xids"] for e in found.evidence] == [20_000_000, 2_000_000]


@pytest.mark.parametrize(
    ("view", "metric", "obj", "subject"),
    [
        ("pg_replication_slots", "catalog_xmin_age", "cdc", "replication slot cdc"),
        ("pg_prepared_xacts", "transaction_age", "shop/tx1", "prepared transaction shop/tx1"),
        ("pg_stat_replication", "backend_xmin_age", "standby1/10.0.0.2/99", "standby feedback of standby1/10.0.0.2/99"),
    ],
)
def test_a_horizon_without_a_session(cap: SyntheticCapture, view: str, metric: str, obj: str, subject: str) -> None:
    cap.stat(view, metric, 2_999_000, 3_000_000, obj=obj)
    found = one(cap, "XMIN-HORIZON")
    assert (found.subject, found.severity) == (subject, "medium")
    assert "3000000 transactions" in found.statement


HOUR = 3600.0


def forgotten(cap: SyntheticCapture, age_s: float, obj: str = "shop/tx1") -> None:
    """A prepared transaction of a quiet server: old by the clock, young by transactions."""
    cap.stat("pg_prepared_xacts", "transaction_age", 40, 45, obj=obj)
    cap.stat("pg_prepared_xacts", "prepared_age_s", age_s - 60, age_s, obj=obj)


def dead_rows(cap: SyntheticCapture, table: str, before: float, after: float, live: float) -> None:
    cap.stat("pg_stat_user_tables", "n_dead_tup", before, after, obj=table)
    cap.stat("pg_stat_user_tables", "n_live_tup", live, live, obj=table)


def test_a_prepared_transaction_forgotten_on_a_quiet_server(cap: SyntheticCapture) -> None:
    forgotten(cap, 3 * HOUR)
    found = one(cap, "XMIN-HORIZON")
    assert (found.subject, found.severity, found.confidence) == ("prepared transaction shop/tx1", "low", "medium")
    assert found.statement == "prepared transaction shop/tx1 (transaction) has kept dead rows from being vacuumed for 3.0 hours"
    assert found.evidence[0]["age_xids"] == 45 and found.evidence[0]["age_s"] == 3 * HOUR


def test_dead_rows_that_wait_make_a_horizon_old_sooner(cap: SyntheticCapture) -> None:
    forgotten(cap, 400)
    dead_rows(cap, "shop/public/orders", 9_000, 12_000, live=20_000)
    dead_rows(cap, "shop/public/items", 1_000, 1_000, live=1_000)
    dead_rows(cap, "shop/public/archive", 50_000, 50_000, live=10_000_000)  # not due for vacuum
    dead_rows(cap, "other/public/orders", 90_000, 90_000, live=10)  # of a database that it does not hold back
    found = one(cap, "XMIN-HORIZON")
    assert (found.subject, found.severity) == ("prepared transaction shop/tx1", "low")
    assert found.statement.endswith(
        "for 7 minutes; 13000 dead rows wait in 2 tables due for vacuum, 3000 more than when the capture began"
    )
    assert (found.evidence[0]["dead_rows"], found.evidence[0]["dead_rows_growth"]) == (13_000, 3_000)


@pytest.mark.parametrize(("age_s", "dead"), [(3599, 0), (3599, 9_999), (299, 500_000)])
def test_a_horizon_that_is_young_by_the_clock_is_none(cap: SyntheticCapture, age_s: float, dead: float) -> None:
    forgotten(cap, age_s)
    dead_rows(cap, "shop/public/orders", 0, dead, live=100)
    assert rows(cap, "XMIN-HORIZON") == []


@pytest.mark.parametrize(
    ("state", "columns", "is_old"),
    [
        ("idle in transaction", {"backend_xid": 9_999_990}, True),
        ("idle in transaction", {"backend_xmin": 9_999_990}, True),
        ("idle in transaction", {}, False),  # holds nothing
        ("active", {"backend_xmin": 9_999_990, "query_start_s": -2 * HOUR}, True),
        ("active", {"backend_xmin": 9_999_990, "query_start_s": -5}, False),  # a statement's own young snapshot
    ],
)
def test_a_session_that_is_old_by_the_clock(cap: SyntheticCapture, state: str, columns: dict[str, Any], is_old: bool) -> None:
    cap.sample(cap.add_session(pid=816), state, READ if state != "active" else None, 0, 60, xact_start_s=-2 * HOUR, **columns)
    found = rows(cap, "XMIN-HORIZON")
    assert [(f.subject, f.severity) for f in found] == ([("pid 816", "low")] if is_old else [])


def test_a_slot_that_has_the_snapshots_of_a_standby(cap: SyntheticCapture) -> None:
    """The standby is there: its report is what ends the horizon, not the slot."""
    sender = cap.walsender("west")
    for metric, value in {"xmin_age": 3_000_000, "active": 1, "is_logical": 0, "active_pid": cap.pids[sender]}.items():
        cap.stat("pg_replication_slots", metric, value, value, obj="west_slot")
    found = one(cap, "XMIN-HORIZON")
    assert found.subject == "replication slot west_slot"
    assert "replication slot west_slot (xmin, standby feedback of west) keeps rows" in found.statement
    assert "hot_standby_feedback" in found.action and "pg_drop_replication_slot" not in found.action


def test_a_slot_that_nothing_reads_is_old_by_the_clock(cap: SyntheticCapture) -> None:
    cap.stat("pg_replication_slots", "xmin_age", 10, 12, obj="standby2")
    since = cap.wall_us(-5 * HOUR) / 1e6
    cap.stat("pg_replication_slots", "inactive_since", since, since, obj="standby2")
    cap.stat("pg_replication_slots", "inactive_since", since, since, obj="of_wal_only")  # holds no rows back
    found = one(cap, "XMIN-HORIZON")
    assert (found.subject, found.severity) == ("replication slot standby2", "low")
    assert "for 5.0 hours" in found.statement


def test_a_vacuum_that_runs_for_hours_is_no_horizon(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=9, id_source="server", query="VACUUM (freeze) history")
    began = -2 * HOUR
    cap.sample(cap.add_session(), "active", None, 0, 60, statement_id=9, backend_xmin=9_999_000, xact_start_s=began, query_start_s=began)
    assert rows(cap, "XMIN-HORIZON") == []


def test_transactions_count_more_than_the_clock(cap: SyntheticCapture) -> None:
    forgotten(cap, 30 * HOUR)
    cap.stat("pg_replication_slots", "xmin_age", 100, 2_000_000, obj="young")
    found = one(cap, "XMIN-HORIZON")
    assert (found.subject, found.severity) == ("replication slot young", "medium")
    assert "1 more hold" in found.statement


def test_a_young_snapshot_and_the_own_one_of_vacuum_are_no_horizon(cap: SyntheticCapture) -> None:
    cap.sample(cap.add_session(), "active", None, 0, 60, backend_xmin=cap.next_xid - 900_000)
    cap.sample(cap.add_session(backend_type="autovacuum worker"), "active", None, 0, 60, backend_xmin=cap.next_xid - 9_000_000)
    cap.stat("pg_replication_slots", "xmin_age", 100, 200, obj="s")
    assert rows(cap, "XMIN-HORIZON") == []


# -- CONN-STORM, CONN-NEAR-LIMIT ------------------------------------------------------------------------------------------------


def test_sessions_that_come_and_go(cap: SyntheticCapture) -> None:
    for n in range(600):
        start = n * 0.09
        session = cap.add_session(application_name="php", client_addr="10.0.0.9", start_s=start)
        cap.sample(session, "idle", READ, start + 0.01, start + 0.5)
    found = one(cap, "CONN-STORM")
    assert (found.subject, found.severity, found.confidence) == ("application php from 10.0.0.9", "low", "high")
    assert found.statement.startswith(
        "At least 10.0 sessions a second began and ended within 5 s (half of them lived less than 0.49 s); 600 of 600"
    )


def test_the_server_counts_sessions_that_no_pass_saw(cap: SyntheticCapture) -> None:
    """590 a second by pg_stat_database, of which passes saw 10; what another database lost in a reset is not counted."""
    cap.stat("pg_stat_database", "sessions", 1000, 1000 + 590 * 60, obj="shop")
    cap.stat("pg_stat_database", "numbackends", 5, 5, obj="shop")
    cap.stat("pg_stat_database", "sessions", 90_000, 100, obj="other")
    assert (one(cap, "CONN-STORM").subject, one(cap, "CONN-STORM").severity) == ("sessions shorter than the sampling period", "high")


def test_the_counter_stands_before_what_passes_saw(cap: SyntheticCapture) -> None:
    cap.stat("pg_stat_database", "sessions", 0, 590 * 60, obj="shop")
    for n in range(600):
        session = cap.add_session(application_name="php", client_addr="10.0.0.9", start_s=n * 0.09)
        cap.sample(session, "idle", READ, n * 0.09 + 0.01, n * 0.09 + 0.5)
    found = one(cap, "CONN-STORM")
    assert (found.subject, found.severity) == ("application php from 10.0.0.9", "high")
    assert found.statement.startswith(
        "The server counts 590.0 new sessions a second, 590.0 of which ended. Samples caught 10.0 a second that began and ended within 5 s"
    )


def test_sessions_that_stay_are_no_storm_by_the_counter(cap: SyntheticCapture) -> None:
    cap.stat("pg_stat_database", "sessions", 0, 600, obj="shop")
    cap.stat("pg_stat_database", "numbackends", 5, 600, obj="shop")
    assert rows(cap, "CONN-STORM") == []


def test_a_pool_that_starts_in_the_window_is_no_storm(cap: SyntheticCapture) -> None:
    for n in range(90):
        session = cap.add_session(start_s=1 + n * 0.01)
        cap.sample(session, "idle", READ, 2, 60)
    for n in range(90):  # still there at the end: not known to be short
        session = cap.add_session(start_s=58 + n * 0.01)
        cap.sample(session, "idle", READ, 59, 60)
    assert rows(cap, "CONN-STORM") == []


def limits(cap: SyntheticCapture, most: int) -> None:
    cap.setting("max_connections", most)
    cap.setting("superuser_reserved_connections", 3)
    cap.setting("reserved_connections", 2)


def test_sessions_near_the_limit(cap: SyntheticCapture) -> None:
    limits(cap, 105)
    for _ in range(90):
        session = cap.add_session(application_name="web")
        cap.sample(session, "idle", READ, 0, 60)
        cap.sample(session, "idle in transaction", READ, 30, 31)
    found = one(cap, "CONN-NEAR-LIMIT")
    assert (found.subject, found.severity, found.cost_s) == ("max_connections", "high", None)
    assert found.statement.startswith(
        "95 client sessions at the peak, 95 % of the 100 slots for ordinary users (max_connections 105 less 5 reserved)"
    )
    assert "90 of application web" in found.statement
    assert {"application_name": "web", "usename": None, "state": "idle", "sessions": 90} in found.evidence


def test_background_processes_do_not_count_as_connections(cap: SyntheticCapture) -> None:
    limits(cap, 105)
    for _ in range(75):
        cap.sample(cap.add_session(), "idle", READ, 0, 60)
    for _ in range(30):
        cap.sample(cap.add_session(backend_type="parallel worker"), "active", None, 0, 60)
    assert rows(cap, "CONN-NEAR-LIMIT") == []


def test_an_unknown_limit_is_not_judged(cap: SyntheticCapture) -> None:
    cap.setting("fsync", "on")
    with cap.open() as capture:
        assert evaluate(capture, only=["CONN-NEAR-LIMIT"]).not_evaluated == [
            ("CONN-NEAR-LIMIT", "the value of max_connections could not be read")
        ]


# -- CHATTY-APP, FETCH-SIZE, SLOW-CLIENT ------------------------------------------------------------------------------------------


def chatter(cap: SyntheticCapture, session: int, gap: int = 3, work: int = 1, statements: int = 8, **columns: int) -> None:
    """Transactions of several statements with a gap after each but the last; the ticks are those of the sampler."""
    step: list[tuple[str | None, str | None, int]] = [("active", None, work), ("idle in transaction", READ, gap)]
    cap.cycle(session, step * (statements - 1) + [("active", None, work), ("idle", READ, 2)], 0, 60, **columns)


def test_transactions_that_wait_for_their_client(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=31, id_source="server", query="insert into line values ($1, $2)")
    for _ in range(2):
        session = cap.add_session(application_name="orm", client_addr="10.0.0.5")
        chatter(cap, session, statement_id=31)
        cap.delta(session, 0, 60, status_changes=50)
    found = one(cap, "CHATTY-APP")
    assert (found.subject, found.severity, found.share_of_db_time) == ("application orm from 10.0.0.5", "medium", None)
    gap_s = 2 * 60 * 21 / 31  # 21 of 31 ticks are gaps
    assert found.cost_s == pytest.approx(gap_s, rel=0.02)
    assert found.samples == pytest.approx(gap_s * 100, rel=0.02)
    assert "(72 %) waiting for the next statement" in found.statement
    assert "gaps of 30.0 ms per transaction, about 50 round trips a second" in found.statement
    assert found.evidence[0]["after_statement"] == "insert into line values ($1, $2)"


def test_round_trips_of_a_pooled_connection_are_shared_by_its_applications(cap: SyntheticCapture) -> None:
    session = cap.add_session(application_name="orm", client_addr="10.0.0.5")
    cap.describe(session, 45, application_name="jobs", client_addr="10.0.0.5")
    chatter(cap, session)
    cap.delta(session, 0, 60, status_changes=80, voluntary_ctxt_switches=40)
    first, second = rows(cap, "CHATTY-APP")
    assert first.subject.startswith("application orm") and "about 30 round trips a second" in first.statement
    assert second.subject.startswith("application jobs") and "about 10 round trips a second" in second.statement


def test_pgbench_is_not_chatty_while_its_gaps_do_not_dominate(cap: SyntheticCapture) -> None:
    for _ in range(4):
        chatter(cap, cap.add_session(application_name="pgbench"), gap=1, work=2, statements=7)
    assert rows(cap, "CHATTY-APP") == []


def test_one_gap_in_a_transaction_is_not_chatty(cap: SyntheticCapture) -> None:
    """BEGIN with one statement and COMMIT has nothing to send together."""
    chatter(cap, cap.add_session(), gap=3, work=1, statements=2)
    assert rows(cap, "CHATTY-APP") == []


def test_thinking_in_a_transaction_is_not_chatty(cap: SyntheticCapture) -> None:
    chatter(cap, cap.add_session(), gap=80, work=1, statements=8)
    assert rows(cap, "CHATTY-APP") == []


def fetch_loop(cap: SyntheticCapture, session: int, gap: int = 3, **columns: int) -> None:
    """One transaction; at each sample the age of the state is 1 ms, so the gaps are about 2 ms long."""
    cap.cycle(session, [("active", None, 1), ("idle in transaction", READ, gap)], 0, 60, state_age_s=0.001, **columns)


def test_a_cursor_read_a_few_rows_at_a_time(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=77, id_source="server", query='FETCH FORWARD 5 FROM "c1"')
    cap.stat("pg_stat_statements", "calls", 100, 20_100, obj="77")
    cap.stat("pg_stat_statements", "rows", 500, 100_500, obj="77")
    session = cap.add_session(pid=4242, application_name="etl")
    fetch_loop(cap, session, statement_id=77)
    cap.delta(session, 0, 60, status_changes=1875, voluntary_ctxt_switches=375)
    found = one(cap, "FETCH-SIZE")
    assert (found.subject, found.severity, found.confidence, found.share_of_db_time) == (
        "application etl from local",
        "medium",
        "high",
        None,
    )
    assert found.cost_s == pytest.approx(45)
    assert found.statement == (
        "pid 4242 of application etl read its result in about 22500 round trips (375 a second, 5.0 rows each): "
        '45.0 s of 60.0 s (75 %) went to waiting for the next request, 2.0 ms each; statement: FETCH FORWARD 5 FROM "c1"'
    )
    assert found.evidence[0]["round_trips"] == 22_500
    assert rows(cap, "CHATTY-APP") == []


def writers(cap: SyntheticCapture) -> None:
    """Another session whose snapshots move on by a hundred transactions a second."""
    writer = cap.add_session(application_name="writer")
    for second in range(60):
        cap.sample(writer, "active", None, second, second + 1, every=10, backend_xmin=cap.next_xid - 6100 + 100 * second)


def test_a_portal_read_in_parts_is_known_by_its_old_snapshot(cap: SyntheticCapture) -> None:
    """pgjdbc with a fetch size: the statement is the SELECT itself, and its snapshot stays while those of others move on."""
    cap.add("statement", statement_id=78, id_source="server", query="SELECT * FROM big")
    fetch_loop(cap, cap.add_session(application_name="java"), statement_id=78, backend_xmin=cap.next_xid - 6100)
    writers(cap)
    found = one(cap, "FETCH-SIZE")
    assert found.subject == "application java from local"
    assert found.statement.startswith("pid ") and "in about 2250" in found.statement  # estimated: no deltas here
    assert rows(cap, "CHATTY-APP") == []


@pytest.mark.parametrize(("version", "changes", "is_portal"), [(160000, 2, True), (160000, 4, False), (130000, 2, False)])
def test_a_portal_read_alone_is_known_by_its_status_reports(tmp_path: Path, version: int, changes: int, is_portal: bool) -> None:
    """Two for each round trip; with a statement in it, four or more. Version 13 reports less."""
    cap = SyntheticCapture(tmp_path, server_version_num=version)
    cap.add("statement", statement_id=78, id_source="server", query="SELECT * FROM big")
    java = cap.add_session(application_name="java", client_addr="10.0.0.9")
    cap.cycle(java, [("active", None, 1), ("idle in transaction", READ, 9)], 0, 60, statement_id=78, state_age_s=0.045, xact_age_s=30)
    cap.delta(java, 0, 60, status_changes=10 * changes, voluntary_ctxt_switches=10)
    found, other = ("FETCH-SIZE", "CHATTY-APP") if is_portal else ("CHATTY-APP", "FETCH-SIZE")
    assert one(cap, found).subject == "application java from 10.0.0.9"
    assert rows(cap, other) == []
    if is_portal:
        assert "in about 600 round trips (10 a second)" in one(cap, found).statement


def test_a_loop_of_queries_takes_new_snapshots(cap: SyntheticCapture) -> None:
    """The extended protocol keeps the last snapshot until the next statement: holding one proves no open result."""
    cap.add("statement", statement_id=78, id_source="server", query="SELECT * FROM big where id = $1")
    java = cap.add_session(application_name="java")
    for second in range(60):
        step = [("active", None, 1), ("idle in transaction", READ, 3)]
        columns = {"statement_id": 78, "backend_xmin": cap.next_xid - 6100 + 100 * second}
        cap.cycle(java, step, second, second + 1, state_age_s=0.001, xact_age_s=0.02, **columns)
    writers(cap)
    assert rows(cap, "FETCH-SIZE") == []
    assert one(cap, "CHATTY-APP").subject == "application java from local"


def test_a_loop_of_inserts_is_chatty_and_no_fetch(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=79, id_source="server", query="insert into t values ($1)")
    fetch_loop(cap, cap.add_session(application_name="loader"), statement_id=79, backend_xmin=cap.next_xid - 10)
    assert rows(cap, "FETCH-SIZE") == []
    assert one(cap, "CHATTY-APP").subject == "application loader from local"


def test_a_cursor_read_in_large_parts_is_fine(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=77, id_source="server", query="FETCH 10000 FROM c1")
    session = cap.add_session(application_name="etl")
    cap.cycle(session, [("active", None, 20), ("idle in transaction", READ, 5)], 0, 60, statement_id=77)
    assert rows(cap, "FETCH-SIZE") == []


def test_a_client_that_reads_slowly(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=9, id_source="server", query="select * from wide")
    session = cap.add_session(pid=99, application_name="csv", client_addr="10.1.1.1")
    cap.sample(session, "active", "Client:ClientWrite", 10, 40, statement_id=9)
    cap.sample(session, "active", None, 10, 40, statement_id=9, every=10)
    found = one(cap, "SLOW-CLIENT")
    assert found.subject == "application csv from 10.1.1.1"
    assert found.cost_s == pytest.approx(27)
    assert found.share_of_db_time == pytest.approx(27 / db_time_s(cap))
    assert (found.severity, found.confidence, found.samples) == ("medium", "high", 2700)
    assert (
        "pid 99 of application csv from 10.1.1.1 took its result so slowly that the server waited 27.0 s in ClientWrite (90 %"
        in found.statement
    )
    assert found.statement.endswith("mostly in: select * from wide")


def test_a_fast_reader_is_no_slow_client(cap: SyntheticCapture) -> None:
    session = cap.add_session(application_name="csv")
    cap.sample(session, "active", None, 0, 60)
    cap.sample(session, "active", "Client:ClientWrite", 0, 60, every=5)
    assert rows(cap, "SLOW-CLIENT") == []


def test_a_lower_tier_and_few_samples_lower_the_confidence(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, tier="sql", rate_hz=5)
    cap.sample(cap.add_session(application_name="csv"), "active", "Client:ClientWrite", 0, 30)
    assert one(cap, "SLOW-CLIENT").confidence == "medium"
    few = SyntheticCapture(tmp_path / "few", tier="sql", rate_hz=2)
    few.sample(few.add_session(application_name="csv"), "active", "Client:ClientWrite", 0, 6)
    assert one(few, "SLOW-CLIENT").confidence == "low"


def test_over_sql_a_fetch_loop_is_known_without_trusting_ages(tmp_path: Path) -> None:
    """Over SQL an age can be negative: the time of the sample is taken before the query runs."""
    cap = SyntheticCapture(tmp_path, tier="sql", rate_hz=10)
    cap.add("statement", statement_id=77, id_source="server", query="fetch forward 5 from c1")
    session = cap.add_session(pid=4242, application_name="etl")
    cap.cycle(session, [("idle in transaction", READ, 4), ("active", None, 1)], 0, 60, statement_id=77, state_age_s=-0.0002, xact_age_s=3)
    found = one(cap, "FETCH-SIZE")
    assert (found.confidence, found.cost_s) == ("medium", pytest.approx(48))
    assert found.statement == (
        "pid 4242 of application etl read its result in more than 480 round trips: 48.0 s of 60.0 s (80 %) went to "
        "waiting for the next request; statement: fetch forward 5 from c1"
    )
    assert rows(cap, "CHATTY-APP") == []


def test_over_sql_a_slow_fetch_of_large_parts_is_fine(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, tier="sql", rate_hz=10)
    cap.add("statement", statement_id=77, id_source="server", query="fetch forward 100000 from c1")
    cap.cycle(cap.add_session(), [("idle in transaction", READ, 4), ("active", None, 4)], 0, 60, statement_id=77)
    assert rows(cap, "FETCH-SIZE") == []


# -- SLOT-KEEPS-WAL, ARCHIVER-FAILS --------------------------------------------------------------------------------------------

GB = 10**9


def slot(cap: SyntheticCapture, name: str, before: float, after: float, *, active: bool, safe: float | None = None) -> None:
    for metric, values in {"retained_bytes": (before, after), "active": (active, active), "safe_wal_size": (safe, safe)}.items():
        if values[1] is not None:
            cap.stat("pg_replication_slots", metric, *map(float, values), obj=name)


def test_a_slot_that_nobody_reads_keeps_wal(cap: SyntheticCapture) -> None:
    cap.setting("max_wal_size", 1024)
    cap.setting("max_slot_wal_keep_size", -1)
    slot(cap, "gone", 20 * GB, 20 * GB + 60e6, active=False)
    slot(cap, "young", 1e8, 2e8, active=False)
    slot(cap, "catching_up", 5 * GB, 4 * GB, active=True)
    found = one(cap, "SLOT-KEEPS-WAL")
    assert (found.subject, found.severity) == ("replication slot gone", "high")
    assert "keeps 18.7 GB of WAL; nobody reads it; it grew by 57.2 MB in 60 s, which is 80.5 GB a day" in found.statement
    assert "it can fill the disk" in found.statement and "pg_drop_replication_slot('gone')" in found.action


def test_a_slot_that_the_next_checkpoint_takes_wal_from(cap: SyntheticCapture) -> None:
    cap.setting("max_slot_wal_keep_size", 4096)
    slot(cap, "behind", 5 * GB, 5 * GB, active=True, safe=-5e8)
    found = one(cap, "SLOT-KEEPS-WAL")
    assert found.severity == "high" and "the next checkpoint removes WAL that it needs" in found.statement


def test_a_slot_of_which_the_limit_is_not_known(cap: SyntheticCapture) -> None:
    """safe_wal_size is null without a limit, and when the slot has lost its WAL."""
    cap.setting("max_slot_wal_keep_size", 4096)
    slot(cap, "lost", 5 * GB, 5 * GB, active=False)
    assert "max_slot_wal_keep_size" not in (found := one(cap, "SLOT-KEEPS-WAL")).statement and "no limit" not in found.action
    assert "Set a limit" not in found.action


def test_a_slot_that_soon_loses_its_wal(cap: SyntheticCapture) -> None:
    slot(cap, "behind", 3 * GB, 3 * GB + 60e6, active=True, safe=3.6e9)
    found = one(cap, "SLOT-KEEPS-WAL")
    assert found.severity == "high" and "at this rate it loses its WAL in 1.0 hours" in found.statement
    assert "pg_stat_replication" in found.action and "drop" not in found.action and "max_slot_wal_keep_size =" not in found.action


def of_standby(cap: SyntheticCapture, name: str, is_copy: bool = False) -> None:
    for metric, value in {"in_recovery": 1, "is_copy": is_copy}.items():
        cap.stat("pg_replication_slots", metric, value, value, obj=name)


def test_a_slot_of_a_standby_that_nobody_reads(cap: SyntheticCapture) -> None:
    slot(cap, "member_2", 5 * GB, 5 * GB, active=False)
    of_standby(cap, "member_2")
    found = one(cap, "SLOT-KEEPS-WAL")
    assert found.severity == "medium"
    assert found.statement == "Replication slot member_2 keeps 4.7 GB of WAL on this standby; nobody reads it; it did not grow"
    assert "Patroni" in found.action and "pg_drop_replication_slot('member_2')" in found.action


def test_a_slot_that_a_standby_copies_from_the_primary(cap: SyntheticCapture) -> None:
    """Nobody may read or drop it there."""
    slot(cap, "cdc", 5 * GB, 5 * GB + 60e6, active=False)
    of_standby(cap, "cdc", is_copy=True)
    slot(cap, "still", 5 * GB, 5 * GB, active=False)
    of_standby(cap, "still", is_copy=True)
    found = one(cap, "SLOT-KEEPS-WAL")
    assert (found.subject, found.severity) == ("replication slot cdc", "low")
    assert "on this standby; it is the copy of a slot of the primary; it grew by 57.2 MB" in found.statement
    assert "Find its reader there." in found.action and "pg_drop_replication_slot" not in found.action


LIMIT = "lost WAL that its reader still needed (max_slot_wal_keep_size is 64 MB)"


@pytest.mark.parametrize(
    ("flags", "says", "does", "severity"),
    [
        ({}, f"Physical slot west {LIMIT}: nobody", "base backup", "medium"),
        ({"is_new": 1}, f"{LIMIT}, in this capture: nobody", "base backup", "high"),
        ({"is_logical": 1, "is_idle": 1}, "for idle_replication_slot_timeout: nobody", "first copy", "medium"),
        ({"is_logical": 1, "is_conflict": 1, "in_recovery": 1}, "of this standby was invalidated by", "hot_standby_feedback", "medium"),
    ],
)
def test_a_slot_that_is_lost(cap: SyntheticCapture, flags: dict[str, int], says: str, does: str, severity: str) -> None:
    """It keeps no WAL, whatever its position says."""
    cap.setting("max_slot_wal_keep_size", 64, unit="MB")
    slot(cap, "west", 5 * GB, 5 * GB + 60e6, active=False)
    cap.stat("pg_replication_slots", "is_lost", float(not flags.pop("is_new", 0)), 1, obj="west")
    for metric, value in flags.items():
        cap.stat("pg_replication_slots", metric, value, value, obj="west")
    slot(cap, "east", 1e6, 1e6, active=True)
    cap.stat("pg_replication_slots", "is_lost", 0, 0, obj="east")
    [found] = rows(cap, "SLOT-LOST", "SLOT-KEEPS-WAL")
    assert (found.id, found.subject, found.severity) == ("SLOT-LOST", "replication slot west", severity)
    assert says in found.statement and does in found.action and "pg_drop_replication_slot('west')" in found.action


def test_a_working_server_keeps_what_max_wal_size_allows(cap: SyntheticCapture) -> None:
    cap.setting("max_wal_size", 8192)
    slot(cap, "standby", 2 * GB, 3 * GB, active=True)
    slot(cap, "rarely", 2 * GB, 2 * GB, active=False)
    assert rows(cap, "SLOT-KEEPS-WAL") == []


def archiver(cap: SyntheticCapture, archived: float, failed: float, waiting: tuple[float, float] | None, last: str) -> None:
    cap.stat("pg_stat_archiver", "archived_count", 100, 100 + archived)
    cap.stat("pg_stat_archiver", "failed_count", 7, 7 + failed)
    now = cap.wall_us(60) / 1e6
    cap.stat("pg_stat_archiver", "last_archived_time", now - 7200, now - (7200 if last == "failed" else 1))
    cap.stat("pg_stat_archiver", "last_failed_time", now - 3600, now - (1 if last == "failed" else 3600))
    if waiting:
        cap.stat("pg_ls_archive_statusdir", "waiting", *waiting)


def test_an_archive_command_that_fails(cap: SyntheticCapture) -> None:
    cap.setting("wal_segment_size", 16 << 20)
    archiver(cap, 0, 12, (90, 100), "failed")
    found = one(cap, "ARCHIVER-FAILS")
    assert found.severity == "high" and "Look into the server's log" in found.action
    assert found.statement == (
        "Archiving failed 12 times in 60 s and succeeded 0 times; the last success was 2.0 hours before the end;"
        " 100 segments wait (1.6 GB), 10 more than when the capture began"
    )


def test_an_archiver_that_is_too_slow(cap: SyntheticCapture) -> None:
    archiver(cap, 3, 0, (20, 40), "archived")
    found = one(cap, "ARCHIVER-FAILS")
    assert found.severity == "medium" and found.statement.startswith("Archiving succeeded 3 times in 60 s; 40 segments wait")
    assert "takes too long" in found.action and "server's log" not in found.action


@pytest.mark.parametrize("waiting", [None, (2, 3), (40, 12)])
def test_an_archiver_that_works(cap: SyntheticCapture, waiting: tuple[float, float] | None) -> None:
    archiver(cap, 30, 0, waiting, "archived")
    assert rows(cap, "ARCHIVER-FAILS") == []


@pytest.mark.parametrize(("mode", "found"), [("on", 0), ("always", 1)])
def test_what_waits_on_a_standby_since_it_was_the_primary(cap: SyntheticCapture, mode: str, found: int) -> None:
    cap.sample(cap.add_session(backend_type="startup"), None, "Activity:RecoveryWalStream", 0, 60)
    cap.setting("archive_mode", mode)
    archiver(cap, 0, 0, (40, 40), "archived")
    assert len(rows(cap, "ARCHIVER-FAILS")) == found
