"""LOCK-CONVOY: many short holders of one lock, named with its key and what the holders did. By hand computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture, rows
from leadline.findings import Finding

DATID, TABLE = 16384, 16500


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """60 s, 100 Hz, one session 30 s on a CPU: 30 s of database time."""
    made = SyntheticCapture(tmp_path)
    made.background()
    made.sample(made.add_session(application_name="worker"), "active", None, 0, 29.4, statement_id=901)
    made.add("statement", statement_id=8, id_source="server", query="insert into job values ($1)")
    made.add("database", datid=DATID, datname="shop")
    made.add("relation", datid=DATID, relid=TABLE, relfilenode=TABLE, nspname="public", relname="job", relkind="r", table_relid=TABLE)
    return made


def found(cap: SyntheticCapture, only: list[str] | None = None) -> list[Finding]:
    return rows(cap, *(only or ["LOCK-CONVOY", "BLOCK-CHAIN", "DDL-QUEUE", "ROW-HOTSPOT", "RELATION-EXTEND"]))


def convoy(cap: SyntheticCapture, state: str, wait: str | None, length_s: float = 0.1, to_s: float = 10, **lock: Any) -> None:
    """Four sessions hold a lock in turn, a transaction each time; the other three wait."""
    four = [cap.add_session(application_name="jobs") for _ in range(4)]
    lock = {"mode": "ExclusiveLock", "datid": DATID} | lock
    for turn in range(round(to_s / length_s)):
        start, end = turn * length_s, (turn + 1) * length_s
        holder = four[turn % 4]
        cap.sample(holder, state, wait, start, end, statement_id=8)
        for victim in four:
            if victim != holder:
                cap.lock_wait(victim, holder, start, end, **lock)


KEY_42 = {"locktype": "advisory", "classid": 0, "objid": 42, "objsubid": 1}
KEY_BELOW_0 = {"locktype": "advisory", "classid": 0xFFFFFFFF, "objid": 0xFFFFFFFE, "objsubid": 1}
TWO_KEYS = {"locktype": "advisory", "classid": 7, "objid": 0xFFFFFFFF, "objsubid": 2}
NOTIFY = {"locktype": "object", "datid": 0, "classid": 1262, "mode": "AccessExclusiveLock"}


@pytest.mark.parametrize(
    ("lock", "name", "advice"),
    [
        (KEY_42, "advisory lock 42 in database shop", "Use a key for each"),
        (KEY_BELOW_0, "advisory lock -2 in database shop", "classid = 4294967295 AND objid = 4294967294 AND objsubid = 1;"),
        (TWO_KEYS, "advisory lock (7, -1) in database shop", "AND objsubid = 2;"),
        (NOTIFY, "lock of NOTIFY", "ran NOTIFY takes this lock"),
        (
            {"locktype": "object", "classid": 2615, "objid": 2200},
            "object 2200 of pg_namespace in database shop",
            "Run them from one session",
        ),
        ({"locktype": "relation", "relid": TABLE}, "table lock of public.job", "WHERE relation = 'public.job'::regclass;"),
        ({"locktype": "page", "relid": TABLE, "page": 3}, "table lock of public.job", "LOCK TABLE"),
    ],
)
def test_short_holders_of_one_lock(cap: SyntheticCapture, lock: dict[str, Any], name: str, advice: str) -> None:
    convoy(cap, "active", "IO:WALSync", **lock)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("LOCK-CONVOY", name)
    assert finding.cost_s == pytest.approx(30)  # three of four wait for 10 s
    assert finding.share_of_db_time == pytest.approx(30 / 70, abs=1e-6)
    assert finding.confidence == "high" and finding.samples == 3000
    for text in (
        "4 sessions lost 30.0 s",
        "4 sessions were seen to hold it, none for long, application jobs",
        "IO:WALSync 100 %",
        "into job",
    ):
        assert text in finding.statement
    assert finding.evidence[0] == {"held_while": "IO:WALSync", "looks": 200, "query": "insert into job values ($1)"}
    assert "the lock lasts until the commit is on disk" in finding.action and advice in " ".join(finding.action.split())


def test_what_the_holders_did_decides_the_advice(cap: SyntheticCapture) -> None:
    convoy(cap, "idle in transaction", "Client:ClientRead", locktype="advisory", objid=1, objsubid=1)
    (finding,) = found(cap)
    assert "while they held it: idle in transaction 100 %" in finding.statement
    assert "In 100 % of the scans the holder was idle in its transaction" in finding.action and "synchronous_commit" not in finding.action


def test_a_holder_that_has_not_run_yet_and_one_that_waits_for_another_lock(cap: SyntheticCapture) -> None:
    """The server gives the lock to the first waiter before that wakes up: its wait lasts until it has a CPU."""
    convoy(cap, "active", "Lock:advisory", locktype="advisory", objid=1, objsubid=1)
    (finding,) = found(cap)
    assert "while they held it: woken but not running yet 100 %" in finding.statement


def test_keys_too_small_to_be_named_count_together(cap: SyntheticCapture) -> None:
    for key in range(40):
        convoy(cap, "active", None, to_s=0.4, locktype="advisory", classid=5, objid=key, objsubid=2)
    (finding,) = found(cap)
    assert finding.subject == "40 advisory locks in database shop" and finding.cost_s == pytest.approx(40 * 1.2)
    assert "To see who has the lock now" not in finding.action


def test_a_long_holder_is_no_convoy(cap: SyntheticCapture) -> None:
    """BLOCK-CHAIN has the seconds then, and nobody else."""
    boss = cap.add_session(application_name="boss")
    cap.sample(boss, "idle in transaction", "Client:ClientRead", 0, 10)
    for _ in range(3):
        cap.lock_wait(cap.add_session(), boss, 0, 10, locktype="advisory", datid=DATID, objid=1, objsubid=1)
    assert [f.id for f in found(cap)] == ["BLOCK-CHAIN"]


def test_workers_that_give_way(cap: SyntheticCapture) -> None:
    """A migration waits for deadlock_timeout behind each worker of autovacuum: AUTOVACUUM-CANCELLED."""
    migration = cap.add_session(application_name="migrate")
    for turn in range(20):
        worker = cap.add_session(backend_type="autovacuum worker")
        cap.sample(worker, "active", None, turn, turn + 0.5)
        cap.lock_wait(migration, worker, turn, turn + 0.5, locktype="relation", datid=DATID, relid=TABLE)
    assert found(cap) == []


@pytest.mark.parametrize("locktype", ["transactionid", "tuple", "extend", "virtualxid"])
def test_locks_of_other_findings(cap: SyntheticCapture, locktype: str) -> None:
    convoy(cap, "active", None, locktype=locktype, relid=TABLE if locktype in ("tuple", "extend") else 0)
    assert "LOCK-CONVOY" not in [f.id for f in found(cap)]


def test_readers_behind_a_waiting_request_are_counted_once(cap: SyntheticCapture) -> None:
    reader, ddl, victim = (cap.add_session() for _ in range(3))
    cap.sample(reader, "active", None, 0, 0.5)
    lock = {"locktype": "relation", "datid": DATID, "relid": TABLE}
    cap.lock_wait(ddl, reader, 0, 0.5, mode="AccessExclusiveLock", **lock)
    cap.lock_wait(victim, ddl, 0, 0.5, mode="AccessShareLock", blocker_mode="AccessExclusiveLock", blocker_kind="queue", **lock)
    assert sum(f.cost_s or 0 for f in found(cap)) <= 1.0


def test_a_few_short_waits_are_no_finding(cap: SyntheticCapture) -> None:
    convoy(cap, "active", None, to_s=0.1, locktype="advisory", objid=1, objsubid=1)
    cap.ordinary_load(clients=4)
    assert found(cap) == []
