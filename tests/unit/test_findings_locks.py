"""BLOCK-CHAIN, DDL-QUEUE, ROW-HOTSPOT and RELATION-EXTEND: a clean capture gives no row, a planted one exactly one, by hand computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture, rows
from leadline.findings import Finding, evaluate
from leadline.views.lock_tree import lock_trees
from leadline.views.spenders import objects

LOCK_FINDINGS = ["BLOCK-CHAIN", "DDL-QUEUE", "ROW-HOTSPOT", "RELATION-EXTEND"]
DATID, TABLE = 16384, 16500


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """60 s, 100 Hz, a table public.accounts, and one session 30 s on a CPU: 30 s of database time."""
    made = SyntheticCapture(tmp_path)
    made.background()
    worker = made.add_session(application_name="worker")
    made.sample(worker, "active", None, 0, 29.4, statement_id=901)  # background() makes the other 0.6 s
    made.add("relation", datid=DATID, relid=TABLE, relfilenode=TABLE, nspname="public", relname="accounts", relkind="r", table_relid=TABLE)
    return made


def found(cap: SyntheticCapture, only: list[str] = LOCK_FINDINGS) -> list[Finding]:
    return rows(cap, *only)


def transactions(cap: SyntheticCapture, session: int, from_s: float, to_s: float, length_s: float = 0.1) -> None:
    """One short transaction after another on the CPU."""
    count = round((to_s - from_s) / length_s)
    for k in range(count):
        cap.sample(session, "active", None, from_s + k * length_s, from_s + (k + 1) * length_s, statement_id=8)


def test_a_clean_capture_has_no_lock_findings(cap: SyntheticCapture) -> None:
    cap.ordinary_load()
    assert found(cap) == []


def test_few_short_row_conflicts_are_no_finding(cap: SyntheticCapture) -> None:
    clients = cap.ordinary_load(clients=4)
    for second in range(0, 50, 5):  # ten waits of 50 ms among 4 x 48 s of work
        cap.lock_wait(clients[0], clients[1], second, second + 0.05)
    assert found(cap) == []


def test_a_chain_names_its_root_and_what_the_victims_lost(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=7, id_source="server", query="update accounts\n  set balance = $1 where id = $2")
    root = cap.add_session(pid=4711, application_name="batch")
    cap.sample(root, "active", None, 5, 5.4, statement_id=7, xact_start_s=5)
    cap.sample(root, "idle in transaction", "Client:ClientRead", 5.4, 15, statement_id=7, xact_start_s=5)
    first, second = cap.add_session(pid=5001), cap.add_session(pid=5002)
    cap.lock_wait(first, root, 6, 15)
    cap.lock_wait(second, first, 7, 15, locktype="tuple", mode="ExclusiveLock", datid=DATID, relid=TABLE, page=3, tuple=1)
    (finding,) = found(cap)
    assert finding.id == "BLOCK-CHAIN"
    assert finding.subject == "pid 4711"
    assert finding.cost_s == pytest.approx(9 + 8)
    assert finding.share_of_db_time == pytest.approx(17 / (30 + 0.4 + 17), abs=1e-6)
    assert finding.samples == 1700
    assert finding.severity == "medium"  # 36 % of database time, but not half a session of the window
    assert finding.confidence == "high"
    for text in ("pid 4711 (idle in transaction, application batch)", "2 sessions", "17.0 s", "up to 2 deep", "on public.accounts"):
        assert text in finding.statement
    assert "ShareLock wanted, ExclusiveLock held" in finding.statement  # of the lock right behind the root
    assert finding.statement.endswith("it last ran: update accounts set balance = $1 where id = $2")
    assert [(e["victim_pid"], e["depth"], e["lost_s"]) for e in finding.evidence] == [(5001, 1, 9.0), (5002, 2, 8.0)]
    assert (finding.ts_from, finding.ts_to) == (cap.ts(6), cap.ts(15))


def test_two_roots_share_the_time_of_their_victim(cap: SyntheticCapture) -> None:
    victim = cap.add_session()
    roots = [cap.add_session(pid=6001), cap.add_session(pid=6002)]
    for root in roots:
        cap.sample(root, "idle in transaction", "Client:ClientRead", 9, 21)
        cap.lock_wait(victim, root, 10, 20, locktype="relation", datid=DATID, relid=TABLE, mode="AccessExclusiveLock")
    findings = found(cap, ["BLOCK-CHAIN"])
    assert [(f.subject, f.cost_s) for f in findings] == [("pid 6001", pytest.approx(5)), ("pid 6002", pytest.approx(5))]


def test_only_the_looks_behind_a_root_count_for_it(tmp_path: Path) -> None:
    """Seconds come from the samples, the looks only split them: over SQL each pass looks at locks, here once a second."""
    cap = SyntheticCapture(tmp_path, tier="sql", rate_hz=1)
    victim, root, other = cap.add_session(), cap.add_session(pid=6001), cap.add_session(pid=6002)
    for session in (root, other):
        cap.sample(session, "active", "Timeout:PgSleep", 0, 40)
    cap.lock_wait(victim, root, 10, 16, hz=1)
    cap.lock_wait(victim, other, 16, 18, hz=1)
    findings = found(cap, ["BLOCK-CHAIN"])
    assert [(f.subject, f.cost_s, f.confidence) for f in findings] == [
        ("pid 6001", pytest.approx(6), "medium"),
        ("pid 6002", pytest.approx(2), "low"),
    ]


def test_an_advisory_lock_kept_over_many_transactions_blocks_for_long(cap: SyntheticCapture) -> None:
    """A pooler gave the session that holds it to others: their transactions are short, the wait behind the lock is not."""
    victim, root = cap.add_session(), cap.add_session(pid=6001)
    cap.lock_wait(victim, root, 10, 15, locktype="advisory", mode="ExclusiveLock", datid=DATID)
    for tenth in range(80, 200):
        cap.sample(root, "active", None, tenth / 10, (tenth + 1) / 10)
    (finding,) = found(cap, ["BLOCK-CHAIN", "LOCK-CONVOY"])
    assert (finding.id, finding.subject) == ("BLOCK-CHAIN", "pid 6001")
    assert finding.cost_s == pytest.approx(5)


def test_a_prepared_transaction_can_be_the_root(cap: SyntheticCapture) -> None:
    cap.lock_wait(cap.add_session(), -1, 10, 15)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("BLOCK-CHAIN", "prepared transaction")
    assert finding.statement.startswith("A prepared transaction blocked 1 session for 5.0 s")
    assert finding.cost_s == pytest.approx(5)


def test_a_prepared_transaction_is_named_when_its_own_lock_tells_which(cap: SyntheticCapture) -> None:
    for name, transaction in (("shop/order 17", 700), ("shop/order 18", 800)):
        cap.stat("pg_prepared_xacts", "transaction", transaction, transaction, obj=name)
        cap.stat("pg_prepared_xacts", "prepared_age_s", 3600, 3620, obj=name)
    cap.lock_wait(cap.add_session(), -1, 10, 15, transactionid=700)
    (finding,) = found(cap)
    assert finding.subject == "prepared transaction shop/order 17"


def test_a_table_locked_by_a_prepared_transaction_does_not_tell_which(cap: SyntheticCapture) -> None:
    cap.stat("pg_prepared_xacts", "transaction", 700, 700, obj="shop/order 17")
    cap.stat("pg_prepared_xacts", "prepared_age_s", 3600, 3620, obj="shop/order 17")
    cap.lock_wait(cap.add_session(), -1, 10, 15, transactionid=700)
    cap.lock_wait(cap.add_session(), -1, 10, 15, locktype="relation", datid=DATID, relid=999, mode="AccessShareLock")
    finding = next(f for f in found(cap) if f.id == "BLOCK-CHAIN")
    assert finding.subject == "prepared transaction"
    assert "; the server lists shop/order 17, prepared 3620 s before" in finding.statement


def test_a_relation_without_a_name_is_given_by_its_numbers(cap: SyntheticCapture) -> None:
    root = cap.add_session()
    cap.sample(root, "idle in transaction", "Client:ClientRead", 9, 21)
    cap.lock_wait(cap.add_session(), root, 10, 20, locktype="relation", datid=DATID, relid=999, mode="RowExclusiveLock")
    (finding,) = found(cap)
    assert "on relation 16384/999" in finding.statement


def test_a_queue_behind_ddl_counts_only_those_the_queue_alone_blocks(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=9, id_source="server", query="alter table accounts add column note text")
    report, ddl = cap.add_session(pid=7001, application_name="report"), cap.add_session(pid=7002, application_name="migration")
    cap.sample(report, "idle in transaction", "Client:ClientRead", 5, 30)
    table = {"locktype": "relation", "datid": DATID, "relid": TABLE}
    cap.lock_wait(ddl, report, 10, 30, mode="AccessExclusiveLock", blocker_mode="AccessShareLock", statement_id=9, **table)
    queue = {"mode": "AccessShareLock", "blocker_mode": "AccessExclusiveLock", "blocker_kind": "queue", **table}
    readers = [cap.add_session(pid=7003), cap.add_session(pid=7004)]
    cap.lock_wait(readers[0], ddl, 12, 30, **queue)
    cap.lock_wait(readers[1], ddl, 20, 30, **queue)
    writer = cap.add_session(pid=7005)  # conflicts with the holder itself as well: the queue is not its only trouble
    cap.lock_wait(writer, ddl, 25, 30, **queue)
    cap.lock_wait(writer, report, 25, 30, samples=False, mode="AccessExclusiveLock", blocker_mode="AccessShareLock", **table)
    findings = found(cap)
    assert [f.id for f in findings] == ["BLOCK-CHAIN", "DDL-QUEUE"]  # the root is a trouble of its own
    chain, finding = findings
    assert chain.subject == "pid 7001"
    assert chain.cost_s == pytest.approx(20 + 18 + 10 + 5)
    assert finding.subject == "relation public.accounts"
    assert finding.cost_s == pytest.approx(18 + 10)
    assert finding.share_of_db_time == pytest.approx(28 / (30 + 20 + 18 + 10 + 5), abs=1e-6)
    for text in ("2 sessions queued for 28.0 s", "up to 2 at once", "pid 7002 that waits for AccessExclusiveLock on public.accounts"):
        assert text in finding.statement
    assert "(alter table accounts add column note text)" in finding.statement
    assert "pid 7001 (idle in transaction, application report) holds it up with AccessShareLock" in finding.statement
    assert [(e["victim_pid"], e["lost_s"]) for e in finding.evidence] == [(7003, 18.0), (7004, 10.0)]


def test_a_queue_for_a_moment_is_no_finding(cap: SyntheticCapture) -> None:
    report, ddl, reader = cap.add_session(), cap.add_session(), cap.add_session()
    cap.sample(report, "active", None, 9, 11)
    table = {"locktype": "relation", "datid": DATID, "relid": TABLE}
    cap.lock_wait(ddl, report, 10, 10.5, mode="AccessExclusiveLock", **table)
    cap.lock_wait(reader, ddl, 10, 10.5, blocker_mode="AccessExclusiveLock", blocker_kind="queue", **table)
    assert found(cap) == []


def rotate(cap: SyntheticCapture, clients: list[int], seconds: int, **tuple_lock: int) -> None:
    """The clients take turns of 0.1 s on one row: one works, the next waits for its transaction, the rest for the row's tuple lock."""
    for turn in range(seconds * 10):
        at = turn / 10
        holder, head, *rest = clients[turn % len(clients) :] + clients[: turn % len(clients)]
        cap.sample(holder, "active", None, at, at + 0.1, statement_id=8)
        cap.lock_wait(head, holder, at, at + 0.1, statement_id=8)
        for waiter in rest:
            cap.lock_wait(waiter, head, at, at + 0.1, statement_id=8, locktype="tuple", mode="ExclusiveLock", **tuple_lock)


def test_many_short_transactions_on_one_row_are_a_hot_row_and_no_chain(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=8, id_source="server", query="update accounts set balance = $1 where id = 1")
    clients = [cap.add_session() for _ in range(4)]
    rotate(cap, clients, 12, datid=DATID, relid=TABLE, page=3, tuple=7)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("ROW-HOTSPOT", "rows of table public.accounts")
    assert finding.cost_s == pytest.approx(3 * 12)
    assert finding.share_of_db_time == pytest.approx(36 / (30 + 12 + 36), abs=1e-6)
    assert finding.samples == 3600
    assert (finding.severity, finding.confidence) == ("high", "high")
    assert "4 sessions lost 36.0 s" in finding.statement
    assert "of 720 waits whose row is known 720 were for block 3 tuple 7" in finding.statement
    assert finding.evidence == [{"page": 3, "tuple": 7, "waits": 720}]


def test_a_root_seen_just_after_its_commit_is_no_long_transaction(cap: SyntheticCapture) -> None:
    """The sessions are read a moment before the locks: a busy holder may then look idle, outside any transaction."""
    holder, waiter = cap.add_session(), cap.add_session()
    for k in range(100):
        cap.sample(holder, "idle", "Client:ClientRead", 10 + k / 10, 10.1 + k / 10)
        cap.lock_wait(waiter, holder, 10 + k / 10, 10.1 + k / 10)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("ROW-HOTSPOT", "rows of table not known")
    assert finding.cost_s == pytest.approx(10)


def test_the_holder_of_an_advisory_lock_is_a_root_outside_a_transaction(cap: SyntheticCapture) -> None:
    holder, waiter = cap.add_session(pid=4711), cap.add_session()
    cap.sample(holder, "idle", "Client:ClientRead", 0, 60)
    cap.lock_wait(waiter, holder, 10, 20, locktype="advisory", mode="ExclusiveLock", classid=1, objid=2)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("BLOCK-CHAIN", "pid 4711")
    assert "pid 4711 (idle" in finding.statement
    assert "a commit does not free it" in finding.action and "left its transaction open" not in finding.action


def test_the_statement_names_the_table_when_no_tuple_lock_does(cap: SyntheticCapture) -> None:
    cap.add("statement", statement_id=8, id_source="server", query='UPDATE ONLY "public"."accounts" SET balance = $1')
    clients = [cap.add_session() for _ in range(2)]
    rotate(cap, clients, 12)
    (finding,) = found(cap)
    assert finding.subject == "rows of table public.accounts"
    assert finding.cost_s == pytest.approx(12)
    assert finding.confidence == "medium"
    assert "240 of 240 waits took the table from the statement" in finding.statement


def test_row_waits_behind_a_long_transaction_are_a_chain_and_no_hot_row(cap: SyntheticCapture) -> None:
    root, head = cap.add_session(pid=4711), cap.add_session()
    cap.sample(root, "idle in transaction", "Client:ClientRead", 5, 25)
    cap.lock_wait(head, root, 5, 25)
    for _ in range(3):
        cap.lock_wait(cap.add_session(), head, 6, 25, locktype="tuple", datid=DATID, relid=TABLE, page=3, tuple=7)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("BLOCK-CHAIN", "pid 4711")
    assert finding.cost_s == pytest.approx(20 + 3 * 19)


def test_waits_to_extend_a_relation_are_split_by_what_was_seen(cap: SyntheticCapture) -> None:
    holder, waiter = cap.add_session(), cap.add_session()
    transactions(cap, holder, 10, 20)
    for k in range(100):  # a new holder of the extension lock every 0.1 s
        cap.lock_wait(waiter, holder, 10 + k / 10, 10.1 + k / 10, locktype="extend", datid=DATID, relid=TABLE if k % 4 else 999)
    findings = found(cap)
    assert [(f.id, f.subject, f.cost_s) for f in findings] == [
        ("RELATION-EXTEND", "relation public.accounts", pytest.approx(7.5)),
        ("RELATION-EXTEND", "relation 16384/999", pytest.approx(2.5)),
    ]


# -- advice for this root ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["autovacuum: VACUUM public.accounts (to prevent wraparound)", None])
def test_a_vacuum_against_wraparound_is_not_to_be_ended(cap: SyntheticCapture, text: str | None) -> None:
    """Also where its text is not known: the careful advice."""
    vacuum, alter = cap.add_session(pid=4711, backend_type="autovacuum worker"), cap.add_session(pid=5001)
    cap.sample(vacuum, "active", "Timeout:VacuumDelay", 5, 30, xact_start_s=5, statement_id=7 if text else 0)
    if text:
        cap.add("statement", statement_id=7, id_source="text", query=text)
    cap.lock_wait(alter, vacuum, 6, 15, locktype="relation", datid=DATID, relid=TABLE, mode="AccessExclusiveLock")
    (finding,) = found(cap, ["BLOCK-CHAIN"])
    assert "Do not end it" in finding.action and "pg_cancel_backend(5001)" in finding.action
    assert "pg_terminate_backend" not in finding.action and "4711)" not in finding.action


def test_an_ordinary_vacuum_gives_way_after_deadlock_timeout(cap: SyntheticCapture) -> None:
    vacuum, alter = cap.add_session(pid=4711, backend_type="autovacuum worker"), cap.add_session(pid=5001)
    reader = cap.add_session(pid=5002)
    cap.add("statement", statement_id=7, id_source="text", query="autovacuum: VACUUM ANALYZE public.accounts")
    cap.sample(vacuum, "active", "Timeout:VacuumDelay", 5, 30, xact_start_s=5, statement_id=7)
    table = {"locktype": "relation", "datid": DATID, "relid": TABLE}
    cap.lock_wait(alter, vacuum, 6, 15, mode="AccessExclusiveLock", blocker_mode="ShareUpdateExclusiveLock", **table)
    cap.lock_wait(reader, alter, 7, 15, mode="AccessShareLock", blocker_mode="AccessExclusiveLock", blocker_kind="queue", **table)
    chain, queue = (next(f for f in found(cap, [rule]) if f.id == rule) for rule in ("BLOCK-CHAIN", "DDL-QUEUE"))
    assert "`SHOW deadlock_timeout;`" in chain.action and "pg_cancel_backend(4711)" in chain.action
    assert "wraparound" not in chain.action + queue.action and "4711 is an ordinary autovacuum worker" in queue.action


def test_what_ends_a_root_depends_on_its_state(cap: SyntheticCapture) -> None:
    cap.add("role", usesysid=10, usename="My App")
    busy, idle = cap.add_session(pid=6001), cap.add_session(pid=6002, usesysid=10)
    cap.sample(busy, "active", None, 5, 30, xact_start_s=5)
    cap.sample(idle, "idle in transaction", "Client:ClientRead", 5, 30, xact_start_s=5)
    for root in (busy, idle):
        cap.lock_wait(cap.add_session(), root, 6, 15)
    of = {f.subject: f.action for f in found(cap, ["BLOCK-CHAIN"])}
    assert "`SELECT pg_cancel_backend(6001);`" in of["pid 6001"] and "idle_in_transaction" not in of["pid 6001"]
    assert "`SELECT pg_terminate_backend(6002);`" in of["pid 6002"] and "cancel_backend(6002)" not in of["pid 6002"]
    assert 'ALTER ROLE "My App" SET idle_in_transaction_session_timeout' in of["pid 6002"]
    assert "transaction_timeout = '1min'" not in of["pid 6002"]  # 17 and later


@pytest.mark.parametrize("others", [0, 1])
def test_a_prepared_transaction_before_the_ddl_is_named(cap: SyntheticCapture, others: int) -> None:
    cap.add("database", datid=DATID, datname="shop")
    for name in ["shop/it's", "shop/other", "else/where"][: 1 + others] + ["else/where"]:
        cap.stat("pg_prepared_xacts", "prepared_age_s", 100, 160, obj=name)
    ddl, reader = cap.add_session(pid=7002), cap.add_session(pid=7003)
    table = {"locktype": "relation", "datid": DATID, "relid": TABLE}
    cap.lock_wait(ddl, -1, 10, 30, mode="AccessExclusiveLock", blocker_mode="AccessShareLock", **table)
    cap.lock_wait(reader, ddl, 12, 30, mode="AccessShareLock", blocker_mode="AccessExclusiveLock", blocker_kind="queue", **table)
    (finding,) = found(cap, ["DDL-QUEUE"])
    assert "`SELECT pg_cancel_backend(7002);`" in finding.action and "pid 0" not in finding.statement + finding.action
    if others:
        assert "a prepared transaction (listed: " in finding.statement and "else/where" not in finding.statement
        assert "`SELECT gid, prepared, database FROM pg_prepared_xacts ORDER BY prepared;`" in finding.action
    else:
        assert "prepared transaction shop/it's holds it up with AccessShareLock" in finding.statement
        assert "In database shop, run `COMMIT PREPARED 'it''s';` or `ROLLBACK PREPARED 'it''s';`" in finding.action


def test_what_victims_lost_is_one_number_in_the_whole_report(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    root, other = cap.add_session(application_name="batch"), cap.add_session(application_name="report")
    for session in (root, other):
        cap.sample(session, "idle in transaction", "Client:ClientRead", 5, 25)
    victims = [cap.add_session() for _ in range(3)]
    cap.lock_wait(victims[0], root, 6, 20)
    cap.lock_wait(victims[1], victims[0], 8, 18)
    cap.sample(victims[1], "active", "Lock:transactionid", 18, 20)  # past the last look
    cap.lock_wait(victims[2], root, 10, 20)  # behind both
    cap.lock_wait(victims[2], other, 10, 20, samples=False)
    with cap.open() as capture:
        found = {(f.id, f.subject): f for f in evaluate(capture, only=["BLOCK-CHAIN", "IDLE-IN-XACT"]).findings}
        trees = {tree.pid: tree for tree in lock_trees(capture)}
        samples_s = capture.scalar("select sum(weight_s) from session_sample where wait_class = 'Lock'")
        (of_objects,) = objects(capture)
    expected = {cap.pids[root]: 14 + 12 + 5, cap.pids[other]: 5}
    for pid, lost_s in expected.items():
        assert found["BLOCK-CHAIN", f"pid {pid}"].cost_s == pytest.approx(lost_s)
        assert f"waited {lost_s:.1f} s behind it" in found["IDLE-IN-XACT", f"pid {pid}"].statement
        assert trees[pid].seconds == pytest.approx(lost_s)
    assert sum(tree.seconds for tree in trees.values()) == pytest.approx(of_objects.lock_s) == pytest.approx(samples_s)


def test_the_rules_of_locks_share_the_samples_of_each_wait(cap: SyntheticCapture) -> None:
    """One victim waits in every way: for rows, behind a chain, in a queue and in a circle. Each second counts where it belongs, once."""
    cap.stat("pg_stat_database", "deadlocks", 0, 1, obj="shop")
    cap.add("database", datid=DATID, datname="shop")
    for statement_id in (8, 9):
        cap.add("statement", statement_id=statement_id, id_source="server", query="update accounts set balance = $1 where id = 1")
    victim, batch, report, ddl, other = (cap.add_session(pid=7000 + n, datid=DATID) for n in range(5))
    table = {"locktype": "relation", "datid": DATID, "relid": TABLE}
    transactions(cap, other, 0, 10)
    for k in range(100):  # the looks miss half of each short wait
        cap.lock_wait(victim, other, k / 10, k / 10 + 0.05, statement_id=8)
        cap.sample(victim, "active", "Lock:transactionid", k / 10 + 0.05, k / 10 + 0.1, statement_id=8)
    cap.sample(batch, "idle in transaction", "Client:ClientRead", 10, 20)
    cap.lock_wait(victim, batch, 12, 20, statement_id=8)
    cap.sample(report, "active", None, 20, 40)
    cap.lock_wait(ddl, report, 22, 40, mode="AccessExclusiveLock", **table)
    queue = {"mode": "AccessShareLock", "blocker_mode": "AccessExclusiveLock", "blocker_kind": "queue"}
    cap.lock_wait(victim, ddl, 24, 40, **queue, **table)
    cap.lock_wait(victim, other, 45, 46, statement_id=9)
    cap.lock_wait(other, victim, 45, 46, statement_id=9)
    found_by = {(f.id, f.subject): f.cost_s for f in found(cap, [*LOCK_FINDINGS, "DEADLOCKS"])}
    assert found_by == {
        ("BLOCK-CHAIN", "pid 7002"): pytest.approx(18 + 16),
        ("BLOCK-CHAIN", "pid 7001"): pytest.approx(8 * 19 / 14),  # 19 s in this wait, of which looks saw 14
        ("DDL-QUEUE", "relation public.accounts"): pytest.approx(16),
        ("ROW-HOTSPOT", "rows of table public.accounts"): pytest.approx(5 * 19 / 14),
        ("DEADLOCKS", "database shop"): pytest.approx(1 * 19 / 14 + 1),
    }
    with cap.open() as capture:
        rows_of = dict.fromkeys(("transactionid", "relation"), 0.0)
        for row in capture.rows("select wait_event, sum(weight_s) as s from session_sample where wait_class = 'Lock' group by all"):
            rows_of[row["wait_event"]] = row["s"]
        looks_s = capture.scalar("select sum(wait_s) from lock_look")
    assert rows_of == {"transactionid": pytest.approx(19 + 1), "relation": pytest.approx(18 + 16)}
    assert looks_s == pytest.approx(sum(rows_of.values()))
    assert found_by["ROW-HOTSPOT", "rows of table public.accounts"] + found_by["BLOCK-CHAIN", "pid 7001"] + 19 / 14 == pytest.approx(19)


def test_a_victim_that_is_hidden_over_sql_counts_by_its_looks(cap: SyntheticCapture) -> None:
    """pg_locks shows everybody who waits for whom, also to a role that may not see their state."""
    cap.tier = "sql"
    root, hidden, seen = cap.add_session(pid=6001), cap.add_session(pid=6002), cap.add_session(pid=6003)
    cap.sample(root, "idle in transaction", "Client:ClientRead", 5, 30)
    cap.sample(hidden, "hidden", None, 0, 60)
    cap.lock_wait(hidden, root, 10, 20, hz=10, samples=False)
    cap.lock_wait(seen, root, 10, 20, hz=10)
    (finding,) = found(cap, ["BLOCK-CHAIN"])
    assert finding.cost_s == pytest.approx(10 + 10) and "2 sessions" in finding.statement
    assert finding.share_of_db_time == pytest.approx(20 / (30 + 10 + 10), abs=1e-6)


def test_half_of_the_time_between_two_looks_belongs_to_each(cap: SyntheticCapture) -> None:
    """On a busy host, looks are up to a second apart: who holds the lock has changed at some time between two of them."""
    first, second, victim = cap.add_session(pid=6001), cap.add_session(pid=6002), cap.add_session()
    cap.sample(first, "idle in transaction", "Client:ClientRead", 5, 15)
    cap.sample(second, "idle in transaction", "Client:ClientRead", 15, 30)
    cap.lock_wait(victim, first, 10, 15, hz=2)
    cap.lock_wait(victim, second, 15, 20, hz=2)
    again = cap.add_session()  # one that waits again after a while: the time between is nobody's
    cap.lock_wait(again, first, 10, 11, hz=2)
    cap.lock_wait(again, second, 17, 18, hz=2)
    costs = {f.subject: f.cost_s for f in found(cap, ["BLOCK-CHAIN"])}
    assert costs == {"pid 6001": pytest.approx(6.25, abs=0.01), "pid 6002": pytest.approx(5.75, abs=0.01)}


def test_replay_that_waits_for_a_reader_is_no_database_time(cap: SyntheticCapture) -> None:
    """The startup process of a standby: the tree of locks has its wait (REPLAY-CONFLICT judges it), the rules of sessions have not."""
    startup, reader = cap.add_session(backend_type="startup"), cap.add_session(pid=6001)
    cap.sample(reader, "active", None, 5, 30)
    cap.sample(startup, None, "Lock:relation", 10, 20)
    cap.lock_wait(startup, reader, 10, 20, samples=False, locktype="relation", datid=DATID, relid=TABLE, mode="AccessExclusiveLock")
    assert found(cap, [*LOCK_FINDINGS, "LOCK-CONVOY"]) == []
    with cap.open() as capture:
        [tree] = lock_trees(capture)
        looks = capture.rows("select in_db_time, sum(wait_s) as s from lock_look group by all")
    assert looks == [{"in_db_time": False, "s": pytest.approx(10)}] and tree.seconds == pytest.approx(10)


def test_a_look_at_a_session_that_no_sample_saw_waiting_is_no_wait(cap: SyntheticCapture) -> None:
    """Over SQL, sessions and locks are read one after the other."""
    root, victim = cap.add_session(pid=6001), cap.add_session()
    cap.sample(root, "idle in transaction", "Client:ClientRead", 5, 30)
    cap.sample(victim, "active", None, 5, 30)
    cap.lock_wait(victim, root, 10, 20, samples=False)
    assert found(cap, ["BLOCK-CHAIN"]) == []


@pytest.mark.parametrize(
    ("query", "command", "advice"),
    [
        ("vacuum full accounts", "VACUUM FULL", "pg_repack"),
        ("/* nightly */ cluster accounts using i", "CLUSTER", "pg_repack"),
        ("reindex table accounts", "REINDEX", "`REINDEX TABLE CONCURRENTLY public.accounts;`"),
        ("create unique index on accounts (id)", "CREATE INDEX", "`CREATE INDEX CONCURRENTLY` lets them write"),
        ("refresh materialized view accounts", "REFRESH MATERIALIZED VIEW", "needs a unique index"),
        ("begin; truncate accounts", "TRUNCATE", "the last command before COMMIT"),
        ("alter table accounts alter id type bigint", "ALTER TABLE", "VALIDATE CONSTRAINT"),
        ("drop table accounts", "DROP", "commit right after it"),
        ("lock table accounts", "LOCK TABLE", "SHARE ROW EXCLUSIVE"),
    ],
)
def test_a_command_that_blocks_is_named_with_the_form_that_does_not(cap: SyntheticCapture, query: str, command: str, advice: str) -> None:
    root = cap.add_session(pid=4711)
    cap.add("statement", statement_id=7, id_source="text", query=query)
    cap.sample(root, "active", None, 5, 15, statement_id=7)
    cap.lock_wait(cap.add_session(), root, 6, 15, locktype="relation", datid=DATID, relid=TABLE, mode="AccessShareLock")
    cap.stat("pg_stat_progress_cluster", "heap_blks_scanned", None, 250, obj="shop/4711")
    cap.stat("pg_stat_progress_cluster", "heap_blks_total", None, 1000, obj="shop/4711")
    (finding,) = found(cap)
    assert f"it runs {command} (250 of 1000 blocks done at the end): {query}" in finding.statement
    action = " ".join(finding.action.split())
    assert advice in action and "When the capture ended it had done 250 of 1000 blocks." in action
    assert "pg_terminate_backend" not in action and "Tune it" not in action
    assert action.index(advice) < action.index("SELECT pg_cancel_backend(4711)") < action.index("what the command has done is lost")


def test_a_command_in_a_function_is_known_by_its_progress(cap: SyntheticCapture) -> None:
    root = cap.add_session(pid=4711)
    cap.add("statement", statement_id=7, id_source="text", query="select nightly()")
    cap.sample(root, "active", None, 5, 15, statement_id=7)
    cap.lock_wait(cap.add_session(), root, 6, 15, locktype="relation", datid=DATID, relid=TABLE)
    cap.stat("pg_stat_progress_create_index", "blocks_total", None, 0, obj="shop/4711")
    (finding,) = found(cap)
    assert "it runs CREATE INDEX: select nightly()" in finding.statement


def test_a_transaction_left_open_after_a_command(cap: SyntheticCapture) -> None:
    root = cap.add_session(pid=4711)
    cap.add("statement", statement_id=7, id_source="text", query="alter table accounts add note text")
    cap.sample(root, "idle in transaction", "Client:ClientRead", 5, 15, statement_id=7)
    cap.lock_wait(cap.add_session(), root, 6, 15, locktype="relation", datid=DATID, relid=TABLE)
    (finding,) = found(cap)
    assert "It ran ALTER TABLE, which keeps its lock until the transaction ends." in finding.action
    assert "pg_terminate_backend(4711)" in finding.action
