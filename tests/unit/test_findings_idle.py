"""Findings about connections that do nothing, and about limits of time: known sessions, figures computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture, rows

# -- IDLE-CONNECTIONS ---------------------------------------------------------------------------------------------------------


def crowd(cap: SyntheticCapture, sessions: int, megabytes: int | None = None, until: float = 60) -> list[int]:
    """A pool that does nothing until then."""
    made = []
    for n in range(sessions):
        session = cap.add_session(application_name="shop", client_addr="10.0.0.9")
        cap.sample(session, "idle", "Client:ClientRead", 0, 60, state_start_s=-600)
        if until < 60:
            cap.sample(session, "active", None, until, 60, statement_id=901)
        if megabytes is not None:
            cap.stat("proc_status", "private_bytes", None, (megabytes + (n == 7)) * 1_000_000, obj=str(cap.pids[session]))
        made.append(session)
    return made


def test_a_pool_that_does_nothing(tmp_path: Path) -> None:
    """`background` has one more idle session, whose memory was not read."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    cap.background()
    cap.add("role", usesysid=10, usename="Web")
    sessions = crowd(cap, 120, 9)
    cap.fact("memory.total_bytes", 100_000_000_000)
    (finding,) = rows(cap, "IDLE-CONNECTIONS")
    assert (finding.severity, finding.subject, finding.cost_s) == ("low", "idle connections", None)
    assert finding.statement.startswith("121 connections did nothing for the whole window")
    assert (
        "keep at least 1030.9 MB of private memory (1.1 % of the memory of the host) (measured for 120 of them), 8.6 MB each"
        in finding.statement
    )
    assert f"pid {cap.pids[sessions[7]]} keeps the most, 9.5 MB; most are of application shop from 10.0.0.9 (120)" in finding.statement
    assert finding.evidence[0]["private_bytes"] == 1_081_000_000
    assert f"WHERE pid = {cap.pids[sessions[7]]};" in finding.action and 'ALTER ROLE "Web" SET idle_session_timeout' in finding.action


def test_few_sessions_with_much_memory_and_waits_for_snapshots_before_14(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, rate_hz=10, server_version_num=130023)
    crowd(cap, 20, 60)
    cap.fact("memory.total_bytes", 8_000_000_000)
    cap.sample(cap.add_session(), "active", "LWLock:ProcArray", 0, 3)
    (finding,) = rows(cap, "IDLE-CONNECTIONS")
    assert finding.severity == "medium" and "keep at least 1145.4 MB" in finding.statement
    assert finding.statement.endswith("before 14 each snapshot passes over all of them: sessions waited 3.0 s for ProcArrayLock")
    assert "idle_session_timeout" not in finding.action


@pytest.mark.parametrize(("sessions", "until"), [(80, 60), (150, 50)])
def test_a_small_pool_and_one_that_works(tmp_path: Path, sessions: int, until: float) -> None:
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    crowd(cap, sessions, 9, until)
    assert rows(cap, "IDLE-CONNECTIONS") == []


@pytest.mark.parametrize("pings", [0, 5, 7])
def test_statements_that_no_sample_caught(tmp_path: Path, pings: int) -> None:
    """A pool asks each connection now and then whether it still stands. Who runs a statement more often than that, works."""
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    for _ in range(110):
        made, at = cap.add_session(application_name="shop"), 60 / (pings + 1)
        for n in range(pings + 1):
            cap.sample(made, "idle", "Client:ClientRead", n * at, (n + 1) * at)
    found = [f.statement.split(" for the whole window")[1].split(" (")[0] for f in rows(cap, "IDLE-CONNECTIONS")]
    assert found == {0: [""], 5: [" apart from 550 short statements"], 7: []}[pings]


def test_sessions_whose_memory_was_not_read(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    crowd(cap, 100)
    (finding,) = rows(cap, "IDLE-CONNECTIONS")
    assert "MB" not in finding.statement and "has the most memory" not in finding.action
