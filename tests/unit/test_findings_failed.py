"""EXTENSION-WAIT, DEADLOCKS and ROLLBACKS by hand computation."""

from __future__ import annotations

import csv
from pathlib import Path

import duckdb
import pytest
from findings_synthetic import SyntheticCapture, rows
from leadline.tables.macros import macros


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """60 s, 100 Hz, 30 s of database time on a CPU."""
    made = SyntheticCapture(tmp_path)
    made.background()
    made.sample(made.add_session(application_name="worker"), "active", None, 0, 29.4, statement_id=901)
    made.add("statement", statement_id=5, id_source="server", query="update t set a = $1")
    made.add("statement", statement_id=6, id_source="server", query="ROLLBACK")
    made.add("database", datid=16384, datname="shop")
    return made


# -- EXTENSION-WAIT -----------------------------------------------------------------------------------------------------------


def test_no_lock_of_the_server_is_taken_for_one_of_an_extension() -> None:
    db = duckdb.connect()
    db.execute(macros().sql)
    lines = (Path(__file__).parents[2] / "crates/postgres/shm/data/wait_events.csv").read_text().splitlines()
    head, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    majors = [n for n, column in enumerate(head) if column.isdigit() and int(column) >= 13]
    names = {row[1] for row in rows if row[0] == "LWLock" and any(row[n] for n in majors)}
    assert len(names) > 50
    wrong = {name for name in names if db.execute("select is_extension_lock(?)", [name]).fetchall()[0][0]}
    assert not wrong
    for name in ("pg_stat_statements", "extension", "pg_wait_sampling", "Citus Maintenance Daemon", "timescaledb bgw launcher"):
        assert db.execute("select is_extension_lock(?)", [name]).fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("event", "subject", "advice"),
    [
        ("LWLock:pg_stat_statements", "lock of an extension: pg_stat_statements", "pg_stat_statements_info"),
        ("LWLock:pg_wait_sampling", "lock of an extension: pg_wait_sampling", "reset the profile now and then"),
        ("LWLock:extension", "lock of an extension: extension", "`extension` belongs to an extension"),
        ("LWLock:Citus Maintenance Daemon", "lock of an extension: Citus Maintenance Daemon", "`Citus Maintenance Daemon` belongs to"),
        ("Extension:Extension", "extension wait Extension", "waits for another server (postgres_fdw, dblink)"),
        ("Extension:PostgresFdwGetResult", "extension wait PostgresFdwGetResult", "waits for another server"),
        ("Extension:unknown:0x07000001", "extension wait without a name, code 0x07000001", "gives the name while it lasts"),
        ("Extension:PgSomething", "extension wait PgSomething", "`PgSomething` belongs to an extension"),
    ],
)
def test_a_wait_for_an_extension(cap: SyntheticCapture, event: str, subject: str, advice: str) -> None:
    for _ in range(2):
        cap.sample(cap.add_session(), "active", event, 0, 5, statement_id=5)
    cap.sample(cap.add_session(backend_type="background worker"), "active", "Extension:Extension", 0, 60)
    cap.setting("pg_stat_statements.max", 5000)
    cap.stat("pg_stat_statements", "calls", None, 3, obj="77")
    cap.stat("pg_stat_statements", "calls", 2, 3, obj="78")
    (finding,) = rows(cap, "EXTENSION-WAIT")
    assert finding.subject == subject and finding.cost_s == pytest.approx(10)
    assert "2 sessions lost 10.0 s" in finding.statement and finding.statement.endswith("; mostly in: update t set a = $1")
    assert ("pg_stat_statements.max is 5000, and 1 statements were new" in finding.statement) == event.endswith("pg_stat_statements")
    assert advice in " ".join(finding.action.split())


@pytest.mark.parametrize("event", ["LWLock:WALWrite", "LWLock:LockManager", "IO:DataFileRead", None])
def test_other_waits_are_not_of_extensions(cap: SyntheticCapture, event: str | None) -> None:
    cap.sample(cap.add_session(), "active", event, 0, 50, statement_id=5)
    assert rows(cap, "EXTENSION-WAIT") == []


# -- DEADLOCKS ----------------------------------------------------------------------------------------------------------------


def deadlock(cap: SyntheticCapture, from_s: float, to_s: float) -> None:
    one, two = cap.add_session(application_name="shop"), cap.add_session(application_name="shop")
    cap.lock_wait(one, two, from_s, to_s, statement_id=5)
    cap.lock_wait(two, one, from_s, to_s, statement_id=5)


def test_deadlocks_with_what_their_sessions_waited(cap: SyntheticCapture) -> None:
    cap.stat("pg_stat_database", "deadlocks", 10, 14, obj="shop")
    for n in range(4):
        deadlock(cap, 10 * n, 10 * n + 1.2)
    findings = rows(cap, "DEADLOCKS", "ROW-HOTSPOT", "BLOCK-CHAIN")
    (finding,) = findings  # the seconds are of the deadlocks, not of a hot row
    assert (finding.id, finding.subject, finding.severity) == ("DEADLOCKS", "database shop", "medium")
    assert finding.cost_s == pytest.approx(4 * 2 * 1.2)
    assert "broke 4 deadlocks in database shop in 60 s" in finding.statement
    assert "8 sessions were seen to wait 9.6 s in them; they ran: update t set a = $1" in finding.statement


@pytest.mark.parametrize(("timeout", "said"), [(1000, ""), (5000, "each deadlock stands at least"), (10, "stops the whole lock table")])
def test_deadlocks_that_no_look_saw(cap: SyntheticCapture, timeout: int, said: str) -> None:
    cap.setting("deadlock_timeout", timeout, unit="ms")
    cap.stat("pg_stat_database", "deadlocks", 0, 2, obj="shop")
    (finding,) = rows(cap, "DEADLOCKS")
    assert finding.cost_s == pytest.approx(2 * timeout / 1000)
    assert said in " ".join(finding.action.split())
    assert ("stands at least" in finding.action, "stops the whole" in finding.action) == (timeout > 1000, timeout < 100)


def test_no_deadlocks(cap: SyntheticCapture) -> None:
    cap.stat("pg_stat_database", "deadlocks", 10, 10, obj="shop")
    cap.stat("pg_stat_database", "deadlocks", 10, 0, obj="reset")
    assert rows(cap, "DEADLOCKS") == []


# -- ROLLBACKS ----------------------------------------------------------------------------------------------------------------


def ended(cap: SyntheticCapture, committed: float, rolled_back: float, deadlocks: float = 0) -> None:
    for metric, delta in (("xact_commit", committed), ("xact_rollback", rolled_back), ("deadlocks", deadlocks)):
        cap.stat("pg_stat_database", metric, 100, 100 + delta, obj="shop")


def test_rollbacks_with_what_was_seen_of_them(cap: SyntheticCapture) -> None:
    ended(cap, 400, 600, 5)
    cap.setting("default_transaction_isolation", "serializable")
    session = cap.add_session(application_name="orders")
    cap.sample(session, "idle in transaction (aborted)", "Client:ClientRead", 0, 12)
    cap.sample(session, "idle", "Client:ClientRead", 12, 20, statement_id=6)
    (finding,) = rows(cap, "ROLLBACKS")
    assert (finding.subject, finding.severity, finding.cost_s) == ("database shop", "medium", None)
    assert "600 of 1000 transactions of database shop were rolled back (60 %, 10.0/s), 5 of them by deadlocks" in finding.statement
    assert "1 sessions sat 12.0 s in failed transactions (application orders)" in finding.statement
    assert "run ROLLBACK themselves" in finding.statement
    for text in ("Roll back at once", "The application rolls back by itself", "See DEADLOCKS", "The default isolation is serializable"):
        assert text in finding.action


@pytest.mark.parametrize(("committed", "rolled_back"), [(1000, 90), (30, 30), (0, 0), (-5, 90)])
def test_few_rollbacks_are_no_finding(cap: SyntheticCapture, committed: float, rolled_back: float) -> None:
    ended(cap, committed, rolled_back)
    assert rows(cap, "ROLLBACKS") == []


def test_a_smaller_part_is_low(cap: SyntheticCapture) -> None:
    ended(cap, 800, 200)
    (finding,) = rows(cap, "ROLLBACKS")
    assert finding.severity == "low"
    for text in ("failed transactions:", "rolls back by itself", "DEADLOCKS", "default isolation"):
        assert text not in finding.action


# -- SLRU ---------------------------------------------------------------------------------------------------------------------


def test_the_session_with_too_many_subtransactions_is_named(cap: SyntheticCapture) -> None:
    boss = cap.add_session(pid=4711, application_name="batch")
    cap.sample(boss, "idle in transaction", "Client:ClientRead", 0, 60)
    cap.sample(cap.add_session(), "active", "LWLock:SubtransSLRU", 0, 10, statement_id=5)
    cap.sample(cap.add_session(), "active", "LWLock:MultiXactOffsetSLRU", 0, 10, statement_id=5)
    cap.stat("pg_stat_get_backend_subxact", "subxact_count", None, 64, obj="4711")
    cap.stat("pg_stat_get_backend_subxact", "subxact_count", None, 64, obj="4712")
    by_cache = {f.subject: f for f in rows(cap, "SLRU")}
    assert "; pid 4711 (application batch) and 1 others had more than 64 subtransactions open" in by_cache["SLRU Subtrans"].statement
    assert "WHERE pid = 4711;" in by_cache["SLRU Subtrans"].action
    assert "4711" not in by_cache["SLRU MultiXact"].statement + by_cache["SLRU MultiXact"].action


def foreign_keys(cap: SyntheticCapture) -> None:
    """Payments lead to accounts and to the smaller branches; 13 writes the events otherwise than 17."""
    for relid, name, tuples in ((100, "payment", 1e6), (101, "account", 1e5), (102, "Branch", 10)):
        cap.add("relation", datid=16384, relid=relid, nspname="public", relname=name, relkind="r", table_relid=relid, reltuples=tuples)
    for parent in (101, 102):
        cap.stat("pg_constraint", "keys", 1, 1, obj=f"100/{parent}")
    cap.add("statement", statement_id=5, id_source="server", datid=16384, query="insert into payment values ($1, $2)")


@pytest.mark.parametrize("event", ["MultiXactMemberControlLock", "MultiXactOffsetSLRU", "MultiXactGen"])
def test_the_parent_table_of_multixacts(cap: SyntheticCapture, event: str) -> None:
    foreign_keys(cap)
    cap.sample(cap.add_session(), "active", f"LWLock:{event}", 0, 10, statement_id=5)
    (finding,) = rows(cap, "SLRU")
    assert (finding.subject, finding.cost_s) == ("SLRU MultiXact", pytest.approx(10))
    assert finding.statement.endswith(
        '; rows of public."Branch" are locked by many at once, through foreign keys of public.payment (the likeliest of 2 tables)'
    )
    assert """confrelid = 'public."Branch"'::regclass;""" in finding.action


def test_the_parent_that_is_updated_too_and_locks_by_hand(cap: SyntheticCapture) -> None:
    foreign_keys(cap)
    cap.add(
        "statement", statement_id=6, id_source="server", datid=16384, query="update public.account set balance = balance + $1 where id = $2"
    )
    for statement in (5, 6):
        cap.sample(cap.add_session(), "active", "LWLock:MultiXactMemberSLRU", 0, 10, statement_id=statement)
    (finding,) = rows(cap, "SLRU")
    assert "rows of public.account are locked by many at once, through foreign keys of public.payment" in finding.statement


def test_multixacts_whose_table_is_not_known(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=5, id_source="server", datid=16384, query="insert into elsewhere values ($1)")
    cap.sample(cap.add_session(), "active", "LWLock:MultiXactMemberSLRU", 0, 10, statement_id=5)
    (finding,) = rows(cap, "SLRU")
    assert "locked by many" not in finding.statement and "regclass" not in finding.action
