"""The shared-memory probe on a hot standby: its startup process is no ordinary session, and waits for those that are.

Oracles: pg_stat_activity and pg_locks of the standby. pg_blocking_pids knows nothing of the startup process.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from conftest import MAJORS, running, wait_until
from leadline.findings import evaluate
from recording import recording
from standby import Standby

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", MAJORS)
def test_replay_that_waits_for_sessions_is_seen(major: int, tmp_path: Path) -> None:
    """For a snapshot that still sees what vacuum removed, then for a lock on a table that is to be altered."""
    with running(major) as primary, Standby(primary.private) as standby, ExitStack() as stack:
        writer, asker, reader = (
            stack.enter_context(psycopg.connect(server.dsn, autocommit=True)) for server in (primary, standby, standby)
        )
        reader_pid = reader.info.backend_pid
        startup = "select pid, wait_event_type, wait_event from pg_stat_activity where backend_type = 'startup'"

        def waits_for(*events: str) -> bool:
            return any(row[2] in events for row in asker.execute(startup))

        writer.execute("create table seen as select generate_series(1, 1000) as id")
        wait_until(lambda: asker.execute("select to_regclass('seen')").fetchone() != (None,), what="the table on the standby")
        wait_until(lambda: asker.execute("select count(*) from seen").fetchone() == (1000,), what="its rows")
        reader.execute("begin isolation level repeatable read; select count(*) from seen")
        writer.execute("delete from seen where id < 900")
        writer.execute("vacuum seen")
        wait_until(lambda: waits_for("RecoveryConflictSnapshot"), what="replay waits for the snapshot")
        with recording(tmp_path / "snapshot", standby.pid, 50) as record:
            wait_until(lambda: record.recorder.status()["ticks"] >= 5, what="five passes")
            ((startup_pid, *event),) = asker.execute(startup).fetchall()
        pids = {row[0] for row in asker.execute("select pid from pg_stat_activity")}
        sampled = record.capture.rows("select distinct pid, backend_type, wait_class, wait_event from session_sample")
        assert {row["pid"] for row in sampled} == pids
        assert [(r["pid"], r["wait_class"], r["wait_event"]) for r in sampled if r["backend_type"] == "startup"] == [(startup_pid, *event)]

        (finding,) = evaluate(record.capture, ["REPLAY-CONFLICT"], {"min_stall_s": 0.01}).findings
        assert f"pid {reader_pid} (idle in transaction) held the oldest snapshot" in finding.statement

        reader.execute("rollback")
        reader.execute("begin; lock table seen in access share mode")
        altering = threading.Thread(target=writer.execute, args=("alter table seen add column more int",))
        altering.start()
        wait_until(lambda: waits_for("relation"), what="replay waits for the lock")
        with recording(tmp_path / "lock", standby.pid, 50) as record:
            wait_until(lambda: record.recorder.status()["ticks"] >= 10, what="ten passes")
            held = "select pid, relation from pg_locks where granted and mode = 'AccessShareLock' and relation = 'seen'::regclass"
            holders = asker.execute(held.replace("where", "where pid <> pg_backend_pid() and")).fetchall()
        (finding,) = evaluate(record.capture, ["REPLAY-CONFLICT"], {"min_stall_s": 0.01}).findings
        assert f"pid {reader_pid} (idle in transaction) held the lock" in finding.statement
        edges = record.capture.rows("select distinct pid, blocker_pid, relid, mode from lock_wait")
        reader.execute("rollback")
        altering.join(30)
    assert [(e["pid"], e["blocker_pid"], e["relid"]) for e in edges] == [(startup_pid, *holders[0])]
    assert edges[0]["mode"] == "AccessExclusiveLock"
