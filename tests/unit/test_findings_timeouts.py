"""TIMEOUT-REPEATED and CLIENT-GONE: a clean capture gives no row, a planted one exactly one, by hand computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture, one, rows


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """60 s, 100 Hz, a session 29.4 s on a CPU beside the background: 30 s of database time."""
    made = SyntheticCapture(tmp_path)
    made.background()
    made.sample(made.add_session(application_name="worker"), "active", None, 0, 29.4, statement_id=901)
    made.add("database", datid=16384, datname="shop")
    made.add("statement", statement_id=5, id_source="server", query="select sum(v) from item where words like $1")
    return made


# -- TIMEOUT-REPEATED ---------------------------------------------------------------------------------------------------------


def runs(cap: SyntheticCapture, lengths: list[float], after: str = "idle", wait: str | None = None) -> int:
    """Runs of one statement, each followed by a second of rest."""
    session, at = cap.add_session(application_name="report"), 1.0
    for length in lengths:
        cap.sample(session, "active", wait, at, at + length, statement_id=5)
        cap.sample(session, after, "Client:ClientRead", at + length, at + length + 1)
        at += length + 1
    return session


def undone(cap: SyntheticCapture, rollbacks: int, deadlocks: int = 0) -> None:
    cap.stat("pg_stat_database", "xact_rollback", 100, 100 + rollbacks, obj="shop")
    cap.stat("pg_stat_database", "deadlocks", 0, deadlocks, obj="shop")


def calls(cap: SyntheticCapture, ended: int) -> None:
    for metric in ("calls", "total_exec_time", "rows"):
        cap.stat("pg_stat_statements", metric, 10, 10 + ended, obj="5")


def test_runs_that_end_at_statement_timeout(cap: SyntheticCapture) -> None:
    runs(cap, [5.0, 5.0, 1.3, 5.0])
    cap.setting("statement_timeout", 5000, unit="ms")
    undone(cap, 3)
    found = one(cap, "TIMEOUT-REPEATED")
    assert (found.subject, found.confidence, found.severity) == ("statement 5", "high", "medium")
    assert found.cost_s == pytest.approx(15) and found.share_of_db_time == pytest.approx(15 / (30 + 16.3), abs=1e-6)
    assert found.statement == (
        "3 runs of one statement in 1 session ended without a result after 5.0 s each, which is statement_timeout (5.0 s)"
        " (15.0 s and 32.4 % of database time thrown away); application report; select sum(v) from item where words like $1"
    )
    assert "If it needs longer than 5.0 s" in found.action and "waited for a lock" not in found.action
    assert "Let report wait longer" in found.action


@pytest.mark.parametrize("proof", ["calls", "aborted"])
def test_a_limit_that_only_the_session_knows(cap: SyntheticCapture, proof: str) -> None:
    """The driver has set it: the settings of new sessions are others. The server did not count the runs, or the transaction failed."""
    runs(cap, [2.0] * 4, after="idle in transaction (aborted)" if proof == "aborted" else "idle")
    cap.setting("statement_timeout", 0, unit="ms")
    if proof == "calls":
        undone(cap, 4)
        calls(cap, 0)
    found = one(cap, "TIMEOUT-REPEATED")
    assert found.cost_s == pytest.approx(8) and found.confidence == "low"
    assert "perhaps because of a timeout that the session or its client has set, or of the same error" in found.statement


@pytest.mark.parametrize("limit_ms", [5000, 5050])
def test_sessions_that_touch_no_table_and_keep_their_rollbacks_to_themselves(cap: SyntheticCapture, limit_ms: int) -> None:
    """Runs until the very limit that is set are enough. A little short of it, they may have ended by themselves."""
    runs(cap, [5.0] * 4)
    cap.setting("statement_timeout", limit_ms, unit="ms")
    undone(cap, 0)
    assert [f.cost_s for f in rows(cap, "TIMEOUT-REPEATED")] == ([pytest.approx(20)] if limit_ms == 5000 else [])


@pytest.mark.parametrize("rollbacks", [3, 4, 6, 7])
def test_waits_for_a_lock_that_only_the_session_bounds(cap: SyntheticCapture, rollbacks: int) -> None:
    """Nobody counts the calls. The rollbacks of the database are these runs, or there are too few of them, or others fail, too."""
    runs(cap, [1.0] * 4, wait="Lock:transactionid")
    undone(cap, rollbacks)
    found = rows(cap, "TIMEOUT-REPEATED")
    assert [f.confidence for f in found] == (["low"] if rollbacks in (4, 6) else [])
    assert all("waited for a lock when they ended" in f.statement for f in found)


def test_runs_that_wait_for_a_lock_until_lock_timeout(cap: SyntheticCapture) -> None:
    runs(cap, [1.0] * 6, wait="Lock:relation")
    cap.setting("lock_timeout", 1000, unit="ms")
    cap.setting("deadlock_timeout", 1000, unit="ms")
    undone(cap, 6)
    found = one(cap, "TIMEOUT-REPEATED")
    assert "which is lock_timeout (1.0 s)" in found.statement and "waited for a lock when they ended" in found.statement
    assert "who holds it" in found.action and "Make the statement faster" not in found.action


CASES = ("sleeps", "counted", "of any length", "two", "deadlocks", "short", "rolled back by others", "autovacuum gives way")


@pytest.mark.parametrize("case", CASES)
def test_runs_that_no_limit_ended(cap: SyntheticCapture, case: str) -> None:
    """Some take the same time each time, as pg_sleep() does. Others are ended by the search for deadlocks."""
    lengths = {"of any length": [1.0, 2.0, 3.0, 4.0, 5.0], "two": [5.0, 5.0], "short": [0.1] * 20}.get(case, [1.0] * 6)
    runs(cap, lengths, wait="Lock:relation" if case in ("deadlocks", "autovacuum gives way") else None)
    cap.setting("deadlock_timeout", 1000, unit="ms")
    if case in ("two", "short", "of any length"):
        cap.setting("statement_timeout", 5000 if case != "short" else 100, unit="ms")
    undone(cap, {"sleeps": 0, "counted": 0, "autovacuum gives way": 6}.get(case, 20), deadlocks=6 if case == "deadlocks" else 0)
    if case in ("counted", "rolled back by others"):
        calls(cap, len(lengths))
    assert rows(cap, "TIMEOUT-REPEATED") == []


# -- CLIENT-GONE --------------------------------------------------------------------------------------------------------------


def connected(cap: SyntheticCapture, port: int, closed_s: float | None, since: bool = True) -> int:
    """A session over TCP whose client closes the connection at closed_s. The socket is read once a second."""
    session = cap.add_session(application_name="web", client_addr="10.0.0.9", client_port=port)
    for second in range(60):
        state = "ESTABLISHED" if closed_s is None or second < closed_s else "CLOSE_WAIT"
        since_ms = None if closed_s is None or second < closed_s or not since else round(1e3 * (second - closed_s))
        client = {"remote_addr": "10.0.0.9", "remote_port": port}
        cap.add("tcp_sample", ts=cap.ts(second), cookie=port, pid=cap.pids[session], **client, state=state, last_ack_recv=since_ms)
    return session


def test_a_statement_that_goes_on_without_its_client(cap: SyntheticCapture) -> None:
    """Two sessions after their clients left, one that waits for a lock of the other; a third ended at once, a fourth has its client."""
    cap.setting("client_connection_check_interval", 0, unit="ms")
    works, waits, ends, stays = connected(cap, 1001, 9.2), connected(cap, 1002, 20), connected(cap, 1003, 30), connected(cap, 1004, None)
    cap.sample(works, "active", None, 5, 60, statement_id=5)
    cap.lock_wait(waits, works, 15, 40, statement_id=5)
    cap.sample(ends, "active", None, 25, 30.5, statement_id=5)
    cap.sample(stays, "active", None, 5, 60, statement_id=5)
    found = one(cap, "CLIENT-GONE")
    assert found.subject == "clients of application web from 10.0.0.9" and found.cost_s == pytest.approx(50.8 + 20)
    assert "2 sessions worked for 70.8 s" in found.statement and "; 20.0 s of it waiting for locks" in found.statement
    assert "; 1 other session waited 25.0 s behind their locks; 1 still did at the end" in found.statement
    assert "; client_connection_check_interval is off" in found.statement
    assert f"pg_cancel_backend({cap.pids[works]})" in found.action


def test_where_nobody_knows_when_the_client_left(cap: SyntheticCapture) -> None:
    """An older capture does not say how long ago the last acknowledgement came: between two readings is as near as it gets."""
    session = connected(cap, 1001, 10, since=False)
    cap.sample(session, "active", None, 5, 60, statement_id=5)
    assert one(cap, "CLIENT-GONE").cost_s == pytest.approx(50.5)


def test_sockets_that_are_closed_after_the_work(cap: SyntheticCapture) -> None:
    session = connected(cap, 1001, 30)
    cap.sample(session, "active", None, 5, 30, statement_id=5)
    cap.sample(session, "idle", "Client:ClientRead", 30, 60)
    assert rows(cap, "CLIENT-GONE") == []
