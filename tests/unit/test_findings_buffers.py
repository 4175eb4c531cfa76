"""Findings about pages and internal locks: a clean capture gives no row, a planted one exactly one, by hand computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture, rows
from leadline.findings import Finding, evaluate

PAGE_FINDINGS = ["RIGHT-EDGE-INDEX", "SEQUENCE-PAGE", "HOT-HEAP-PAGE", "HOT-BLOCK", "LWLOCK-HOLDER-IO", "BUFFER-WAITS-UNNAMED"]
LOCK_FINDINGS = ["LOCKMANAGER-CONTENTION", "BUFFERMAPPING", "PIN-CLEANUP", "SLRU"]
DATID = 16384
INDEX, TABLE, SEQUENCE, SMALL = 16401, 16400, 16402, 16410


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    """60 s, 100 Hz, named relations, and one session 30 s on a CPU: 30 s of database time."""
    made = SyntheticCapture(tmp_path)
    made.background()
    worker = made.add_session(application_name="worker")
    made.sample(worker, "active", None, 0, 29.4, statement_id=901)  # background() makes the other 0.6 s
    made.add("statement", statement_id=5, id_source="server", query="insert into orders\n (x) values ($1)")
    for relid, name, kind, table, size in (
        (TABLE, "orders", "r", TABLE, 80_000_000),
        (INDEX, "orders_pkey", "i", TABLE, 8_000_000),
        (SEQUENCE, "orders_id_seq", "S", SEQUENCE, 8192),
        (SMALL, "counter", "r", SMALL, 65536),
    ):
        made.add(
            "relation",
            datid=DATID,
            relid=relid,
            relfilenode=relid,
            spcnode=1663,
            nspname="public",
            relname=name,
            relkind=kind,
            table_relid=table,
            size_bytes=size,
        )
    return made


def found(cap: SyntheticCapture, only: list[str] = PAGE_FINDINGS) -> list[Finding]:
    return rows(cap, *only)


def wait(cap: SyntheticCapture, event: str, sessions: int = 5, seconds: float = 4) -> None:
    """Sessions that all wait from second 10 on: sessions * seconds of database time."""
    for _ in range(sessions):
        cap.sample(cap.add_session(), "active", event, 10, 10 + seconds, statement_id=5)


def seen(
    cap: SyntheticCapture, relfilenode: int, page_kind: str, waiters: int, block: int = 117, seconds: float = 4, **columns: Any
) -> None:
    """A page found contended five times a second from second 10 on."""
    for ts in cap.moments(10, 10 + seconds, 5):
        seen_at(cap, (ts - cap.ts(0)) / 1e9, relfilenode, page_kind, waiters, block, **columns)


def seen_at(cap: SyntheticCapture, second: float, relfilenode: int, page_kind: str, waiters: int, block: int = 117, **columns: Any) -> None:
    given = {"waiters": waiters, "waiters_exclusive": waiters, "spcnode": 1663, "dbnode": DATID, "fork": "main", "wait_kind": "content"}
    given |= {"holder_session_id": -1} | columns
    cap.add("buffer_wait", ts=cap.ts(second), relfilenode=relfilenode, page_kind=page_kind, block=block, **given)


def looked(cap: SyntheticCapture, waiting: int, attributed: int, seconds: float = 4) -> None:
    cap.add_every("buffer_scan", 10, 10 + seconds, 5, scope="all", buffers=16384, duration_ns=10**6, waiting=waiting, attributed=attributed)


def test_a_clean_capture_has_no_page_findings(cap: SyntheticCapture) -> None:
    cap.ordinary_load()
    assert found(cap, PAGE_FINDINGS + LOCK_FINDINGS) == []


def test_a_little_contention_is_no_finding(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent", sessions=5, seconds=0.04)  # 0.2 s of 30 s
    seen(cap, INDEX, "btree right-most leaf", waiters=5, seconds=0.04)
    looked(cap, waiting=5, attributed=5, seconds=0.04)
    assert found(cap) == []


def test_the_right_most_leaf_is_named_with_its_share_of_the_waits(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")  # 20 s; 3 of 4 waiters seen were on the leaf
    seen(cap, INDEX, "btree right-most leaf", waiters=2, block=117)
    seen(cap, INDEX, "btree right-most leaf", waiters=1, block=118)
    seen(cap, TABLE, "heap tail", waiters=1, block=9000)
    looked(cap, waiting=5, attributed=4)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("RIGHT-EDGE-INDEX", "index public.orders_pkey")
    assert finding.cost_s == pytest.approx(20 * 3 / 4)
    assert finding.share_of_db_time == pytest.approx(15 / (30 + 20), abs=1e-6)
    assert finding.samples == 1500
    assert (finding.severity, finding.confidence) == ("medium", "high")  # 15 s are less than half of the window of 60 s
    for text in (
        "15.0 s (30.0 % of database time)",
        "right-most leaf of index public.orders_pkey of table public.orders",
        "block 117 and 1 more",
        "75 % of the waiters",
        "up to 2 at once",
        "of 100 buffer waits in scans of all buffers, the page is known for 80",
    ):
        assert text in finding.statement
    assert [(e["block"], e["waiters"], e["wait_s"]) for e in finding.evidence] == [(117, 40, 10.0), (118, 20, 5.0)]
    assert (finding.ts_from, finding.ts_to) == (cap.ts(10), cap.ts(13.8))


def test_leaves_that_were_right_most_until_just_before_belong_to_the_edge(cap: SyntheticCapture) -> None:
    """Sessions still queue for a leaf when it has been split: only one of ten looks finds it right-most."""
    wait(cap, "LWLock:BufferContent")
    for k in range(20):
        kind = "btree right-most leaf" if k % 10 == 9 else "btree leaf"
        seen_at(cap, 10 + k / 5, INDEX, kind, waiters=4, block=100 + 7 * k)
    seen(cap, SEQUENCE, "sequence", waiters=1, block=0)
    looked(cap, waiting=5, attributed=5)
    edge, sequence = found(cap)
    assert (edge.id, edge.subject, sequence.id) == ("RIGHT-EDGE-INDEX", "index public.orders_pkey", "SEQUENCE-PAGE")
    assert (edge.cost_s, sequence.cost_s) == (pytest.approx(16), pytest.approx(4))
    assert "14.4 s of it on leaves that were right-most until just before" in edge.statement  # 18 of 20 looks


def test_a_leaf_just_left_of_the_right_most_one_belongs_to_the_edge(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    seen(cap, INDEX, "btree right-edge leaf", waiters=3, block=500)
    seen(cap, INDEX, "btree right-most leaf", waiters=1, block=510)
    looked(cap, waiting=5, attributed=4)
    (finding,) = found(cap)
    assert (finding.id, finding.cost_s) == ("RIGHT-EDGE-INDEX", pytest.approx(20))
    assert "15.0 s of it on leaves that were right-most until just before" in finding.statement


@pytest.mark.parametrize(("looks", "edge"), [(6, True), (5, False)])
def test_leaves_in_ascending_order_are_the_edge_though_no_look_was_in_time(cap: SyntheticCapture, looks: int, edge: bool) -> None:
    """A busy host: whoever holds the leaf is off the CPU while the others split on, far to the right."""
    wait(cap, "LWLock:BufferContent")
    for k in range(looks):
        seen_at(cap, 10 + k / 5, INDEX, "btree leaf", waiters=4, block=100 + 300 * k)
    looked(cap, waiting=5, attributed=4)
    assert [f.id for f in found(cap)] == ["RIGHT-EDGE-INDEX" if edge else "HOT-BLOCK"]


def test_a_leaf_elsewhere_in_the_index_is_not_the_edge(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    for k in range(20):
        seen_at(cap, 10 + k / 5, INDEX, "btree leaf", waiters=4, block=(100, 300, 200, 50)[k % 4])
    seen_at(cap, 14, INDEX, "btree right-most leaf", waiters=1, block=900)
    looked(cap, waiting=5, attributed=4)
    assert [(f.id, f.subject) for f in found(cap)] == [("HOT-BLOCK", "btree leaf pages of public.orders_pkey")]


def test_a_statement_whose_waiters_are_seen_less_often_keeps_its_seconds(cap: SyntheticCapture) -> None:
    """Both statements wait 20 s. Those who draw numbers wait for long and are seen each time, those who insert only each fourth time."""
    for statement, waiters_page in ((5, INDEX), (6, SEQUENCE)):
        for session in (cap.add_session() for _ in range(5)):
            cap.sample(session, "active", "LWLock:BufferContent", 10, 14, statement_id=statement)
            for ts in cap.moments(10, 14, 5 if waiters_page == SEQUENCE else 1.25):
                cap.add("buffer_waiter", ts=ts, buf_id=waiters_page, session_id=session, mode="exclusive")
    seen(cap, SEQUENCE, "sequence", waiters=5, block=0, buf_id=SEQUENCE)
    for second in range(5):
        seen_at(cap, 10 + 0.8 * second, INDEX, "btree right-most leaf", waiters=5, buf_id=INDEX)
    looked(cap, waiting=10, attributed=6)
    edge, sequence = found(cap)
    assert (edge.id, sequence.id) == ("RIGHT-EDGE-INDEX", "SEQUENCE-PAGE")
    assert (edge.cost_s, sequence.cost_s) == (pytest.approx(20), pytest.approx(20))
    assert (edge.samples, sequence.samples) == (2000, 2000)
    assert ("20 % of the waiters" in edge.statement, "80 % of the waiters" in sequence.statement) == (True, True)


def test_the_seconds_of_a_statement_with_no_waiter_seen_are_split_like_all(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    other = [cap.add_session() for _ in range(5)]
    for session in other:
        cap.sample(session, "active", "LWLock:BufferContent", 10, 14, statement_id=6)
        for ts in cap.moments(10, 14, 5):
            cap.add("buffer_waiter", ts=ts, buf_id=1, session_id=session, mode="exclusive")
    seen(cap, SEQUENCE, "sequence", waiters=6, block=0, buf_id=1)
    seen(cap, INDEX, "btree right-most leaf", waiters=2, buf_id=2)
    looked(cap, waiting=10, attributed=8)
    assert {f.id: f.cost_s for f in found(cap)} == {
        "SEQUENCE-PAGE": pytest.approx(20 + 20 * 6 / 8),
        "RIGHT-EDGE-INDEX": pytest.approx(20 * 2 / 8),
    }


def test_looks_at_known_hot_pages_do_not_outweigh_the_rest(cap: SyntheticCapture) -> None:
    """Between looks at all buffers the recorder looks at pages seen hot before: these find the sequence, never a new leaf."""
    wait(cap, "LWLock:BufferContent")
    seen(cap, SEQUENCE, "sequence", waiters=2, block=0)
    seen(cap, INDEX, "btree right-most leaf", waiters=2)
    looked(cap, waiting=5, attributed=4)
    for ts in cap.moments(10.1, 14, 10):
        if (ts - cap.ts(10)) % 200_000_000:
            cap.add("buffer_scan", ts=ts, scope="hot", buffers=1, waiting=5, attributed=2)
            cap.add(
                "buffer_wait",
                ts=ts,
                relfilenode=SEQUENCE,
                page_kind="sequence",
                waiters=2,
                spcnode=1663,
                dbnode=DATID,
                wait_kind="content",
                fork="main",
                holder_session_id=-1,
            )
    assert {f.id: f.cost_s for f in found(cap)} == {"SEQUENCE-PAGE": pytest.approx(10), "RIGHT-EDGE-INDEX": pytest.approx(10)}


def test_an_index_without_a_name_is_given_by_its_numbers(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    seen(cap, 999, "btree right-most leaf", waiters=5)
    looked(cap, waiting=5, attributed=2)
    (finding,) = found(cap)
    assert finding.subject == "index file 1663/16384/999"
    assert "the name could not be read" in finding.statement
    assert finding.confidence == "medium"  # most waits could not be named


def test_a_hot_sequence_is_named(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:buffer_content")  # as 12 writes it
    seen(cap, SEQUENCE, "sequence", waiters=4, block=0)
    looked(cap, waiting=5, attributed=4)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("SEQUENCE-PAGE", "sequence public.orders_id_seq")
    assert finding.cost_s == pytest.approx(20)
    assert "page of sequence public.orders_id_seq" in finding.statement


def test_a_small_hot_table_is_named(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    seen(cap, SMALL, "heap", waiters=3, block=2)
    seen(cap, SMALL, "heap tail", waiters=1, block=7)
    looked(cap, waiting=5, attributed=4)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("HOT-HEAP-PAGE", "table public.counter")
    assert finding.cost_s == pytest.approx(20)
    assert "small table public.counter: block 2 and 1 more" in finding.statement


def test_a_table_that_outgrew_its_size_in_the_catalog_is_not_small(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    seen(cap, SMALL, "heap tail", waiters=4, block=128)  # the first block beyond 1 MB
    looked(cap, waiting=5, attributed=4)
    assert [(f.id, f.subject) for f in found(cap)] == [("HOT-BLOCK", "heap tail pages of public.counter")]


@pytest.mark.parametrize(("block", "rule"), [(31, "HOT-HEAP-PAGE"), (32, "HOT-BLOCK")])
def test_a_block_counts_as_large_as_the_server_was_built_with(cap: SyntheticCapture, block: int, rule: str) -> None:
    cap.setting("block_size", 32768)
    wait(cap, "LWLock:BufferContent")
    seen(cap, SMALL, "heap tail", waiters=4, block=block)  # 32 blocks are 1 MB
    looked(cap, waiting=5, attributed=4)
    assert [f.id for f in found(cap)] == [rule]


def test_the_tail_of_a_large_table_is_a_hot_block(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    seen(cap, TABLE, "heap tail", waiters=2, block=9000)
    seen(cap, INDEX, "btree leaf", waiters=1, block=5)
    seen(cap, INDEX, "btree root", waiters=1, block=3)
    looked(cap, waiting=5, attributed=4)
    (finding,) = found(cap)  # the two other kinds have 25 % of the waiters each, less than 30 %
    assert (finding.id, finding.subject) == ("HOT-BLOCK", "heap tail pages of public.orders")
    assert finding.cost_s == pytest.approx(20 / 2)
    assert "1 block, block 9000 most; 50 % of the waiters" in finding.statement


def test_a_holder_that_waits_for_storage_is_named(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    seen(
        cap,
        TABLE,
        "heap tail",
        waiters=1,
        block=9000,
        holder_pid=4711,
        holder_session_id=1,
        holder_wait_event_info=cap.code("IO:DataFileExtend"),
    )
    seen(cap, TABLE, "heap tail", waiters=3, block=9001, holder_pid=4711, holder_session_id=1)  # this holder runs
    looked(cap, waiting=5, attributed=4)
    hot, finding = found(cap)
    assert hot.id == "HOT-BLOCK"
    assert (finding.id, finding.subject) == ("LWLOCK-HOLDER-IO", "holders waiting for IO:DataFileExtend")
    assert finding.cost_s == pytest.approx(20 / 4)
    assert "At least 5.0 s" in finding.statement
    assert "heap tail page of public.orders" in finding.statement
    assert "20 of 40 looks that caught a holder" in finding.statement


def test_a_flush_of_the_wal_by_the_holder_of_walwrite_is_no_finding(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:WALWrite")
    cap.add_every(
        "lwlock_wait",
        10,
        14,
        5,
        wait_event_info=cap.code("LWLock:WALWrite"),
        lock_index=8,
        partition=-1,
        waiters=5,
        holder_pid=4711,
        holder_session_id=1,
        holder_wait_event_info=cap.code("IO:WALSync"),
    )
    assert found(cap) == []


def test_the_sql_tier_says_who_waited_for_pages_without_names(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, tier="sql", rate_hz=10)
    cap.probe("buffers", "off", why="the server does not show buffers over SQL")
    cap.add("statement", statement_id=5, id_source="server", query="insert into orders (x) values ($1)")
    wait(cap, "LWLock:BufferContent")
    with cap.open() as capture:
        result = evaluate(capture, only=PAGE_FINDINGS)
    (finding,) = result.findings
    assert finding.id == "BUFFER-WAITS-UNNAMED"
    assert finding.cost_s == pytest.approx(20)
    assert finding.samples == 200
    assert "could not be seen over SQL; mostly in: insert into orders" in finding.statement
    assert finding.evidence[0]["sessions"] == 5
    assert {name for name, why in result.not_evaluated} == set(PAGE_FINDINGS) - {"BUFFER-WAITS-UNNAMED"}


def test_waits_for_pages_that_no_look_could_name(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:BufferContent")
    looked(cap, waiting=5, attributed=0)
    for second in (10, 11, 12, 13):  # four waiters on a page out of a hundred say nothing
        seen_at(cap, second, SEQUENCE, "sequence", waiters=1)
    (finding,) = found(cap)
    assert finding.id == "BUFFER-WAITS-UNNAMED"


@pytest.mark.parametrize(("event", "identity"), [("LockManager", "LOCKMANAGER-CONTENTION"), ("BufferMapping", "BUFFERMAPPING")])
def test_partitions_under_contention(cap: SyntheticCapture, event: str, identity: str) -> None:
    wait(cap, f"LWLock:{event}")
    for partition, waiters in ((3, 4), (9, 1)):
        cap.add_every(
            "lwlock_wait",
            10,
            14,
            5,
            wait_event_info=cap.code(f"LWLock:{event}"),
            lock_index=100 + partition,
            partition=partition,
            waiters=waiters,
            holder_session_id=-1,
        )
    (finding,) = found(cap, PAGE_FINDINGS + LOCK_FINDINGS)
    assert finding.id == identity
    assert finding.cost_s == pytest.approx(20)
    assert finding.share_of_db_time == pytest.approx(20 / 50, abs=1e-6)
    assert "2 partitions contended, partition 3 with 80 % of the waiters" in finding.statement
    assert finding.evidence == [{"statement_id": 5, "wait_s": 20.0, "sessions": 5, "query": "insert into orders (x) values ($1)"}]


@pytest.mark.parametrize(
    ("event", "cache"),
    [
        ("LWLock:SubtransSLRU", "Subtrans"),
        ("LWLock:MultixactMemberSLRU", "MultiXact"),
        ("IPC:XactGroupUpdate", "Xact"),
        ("IO:SlruRead", "file"),
    ],
)
def test_transaction_status_caches(cap: SyntheticCapture, event: str, cache: str) -> None:
    wait(cap, event)
    wait(cap, "LWLock:SerializableXactHash")  # not an SLRU
    (finding,) = found(cap, PAGE_FINDINGS + LOCK_FINDINGS)
    assert (finding.id, finding.subject) == ("SLRU", f"SLRU {cache}")
    assert finding.cost_s == pytest.approx(20)
    assert finding.share_of_db_time == pytest.approx(20 / 70, abs=1e-6)


def test_the_file_of_a_cache_belongs_to_the_cache_its_statement_waits_for(cap: SyntheticCapture) -> None:
    wait(cap, "LWLock:SubtransBuffer")
    wait(cap, "IO:SLRURead", sessions=1)
    cap.sample(cap.add_session(), "active", "IO:SLRURead", 20, 23, statement_id=901)  # this statement waits for no cache
    subtrans, other = found(cap, PAGE_FINDINGS + LOCK_FINDINGS)
    assert [(f.id, f.subject) for f in (subtrans, other)] == [("SLRU", "SLRU Subtrans"), ("SLRU", "SLRU file")]
    assert subtrans.cost_s == pytest.approx(24)
    assert subtrans.statement.endswith("to the subtransaction cache; 4.0 s of it in reads and writes of files by the same statements")
    assert other.cost_s == pytest.approx(3)


@pytest.mark.parametrize("names", [("Subtrans", "Xact"), ("subtransaction", "transaction")])  # up to 16, and from 17 on
def test_the_counters_of_a_cache_say_whether_it_is_too_small(cap: SyntheticCapture, names: tuple[str, str]) -> None:
    wait(cap, "LWLock:SubtransSLRU")
    for name, read in zip(names, (30_000, 7)):
        cap.stat("pg_stat_slru", "blks_hit", 1000, 91_000, obj=name)
        cap.stat("pg_stat_slru", "blks_read", 100, 100 + read, obj=name)
    (finding,) = found(cap, ["SLRU"])
    assert finding.statement.endswith("to the subtransaction cache; of 120000 look-ups in it 30000 read a page from its file (25.0 %)")


@pytest.mark.parametrize(("lock_s", "found_s"), [(15, 20), (25, None)])  # five sessions wait 20 s for partitions
def test_a_queue_for_a_lock_is_no_fight_for_the_lock_table(cap: SyntheticCapture, lock_s: float, found_s: float | None) -> None:
    wait(cap, "LWLock:LockManager")
    wait(cap, "Lock:extend", sessions=1, seconds=5)
    cap.sample(cap.add_session(), "active", "Lock:transactionid", 20, 20 + (lock_s - 5) / 2, statement_id=5)
    cap.sample(cap.add_session(), "active", "Lock:transactionid", 20, 20 + (lock_s - 5) / 2, statement_id=5)
    findings = found(cap, ["LOCKMANAGER-CONTENTION"])
    assert [f.cost_s for f in findings] == ([] if found_s is None else [pytest.approx(found_s)])


def test_vacuum_that_waits_for_a_pin(cap: SyntheticCapture) -> None:
    vacuum = cap.add_session(pid=8001, backend_type="autovacuum worker")
    cap.sample(vacuum, "active", "BufferPin:BufferPin", 10, 40)
    seen(cap, TABLE, "heap", waiters=0, block=12, wait_kind="pin")  # who waits for a pin is not in the buffer's queue
    seen_at(cap, 39, SMALL, "heap", waiters=0, block=3, wait_kind="pin")
    (finding,) = found(cap, PAGE_FINDINGS + LOCK_FINDINGS)
    assert (finding.id, finding.subject, finding.severity) == ("PIN-CLEANUP", "pins on public.orders", "medium")
    assert finding.cost_s == pytest.approx(30)
    assert finding.share_of_db_time == pytest.approx(30 / 60, abs=1e-6)
    assert "block 12 of public.orders: autovacuum worker 8001" in finding.statement


def test_replay_that_waits_for_a_pin_is_outside_database_time(cap: SyntheticCapture) -> None:
    cap.sample(cap.add_session(pid=8001, backend_type="startup"), None, "BufferPin:BufferPin", 10, 15)
    (finding,) = found(cap, LOCK_FINDINGS)
    assert finding.id == "PIN-CLEANUP"
    assert finding.cost_s == pytest.approx(5)
    assert finding.share_of_db_time is None


# -- advice for this subject and this version ----------------------------------------------------------------------------------


def test_the_index_of_a_toast_table_is_not_to_be_dropped(cap: SyntheticCapture) -> None:
    toast = {"datid": DATID, "spcnode": 1663, "nspname": "pg_toast", "size_bytes": 80_000_000}
    cap.add("relation", relid=16403, relfilenode=16403, relname="pg_toast_16400", relkind="t", table_relid=TABLE, **toast)
    cap.add("relation", relid=16404, relfilenode=16404, relname="pg_toast_16400_index", relkind="i", table_relid=16403, **toast)
    for index in (16404, INDEX):
        wait(cap, "LWLock:BufferContent")
        seen(cap, index, "btree right-most leaf", waiters=5)
    looked(cap, waiting=5, attributed=5)
    findings = {f.subject: f for f in found(cap)}
    toast_index, own = findings["index pg_toast.pg_toast_16400_index"], findings["index public.orders_pkey"]
    assert "TOAST table of public.orders" in toast_index.action and "Drop the index" not in toast_index.action
    assert "indexrelid = 'public.orders_pkey'::regclass" in own.action and "TOAST" not in own.action
    assert "bt_page_stats('public.orders_pkey', 117)" in own.verify


def test_the_meta_page_of_gin_is_its_pending_list(cap: SyntheticCapture) -> None:
    gin = {"datid": DATID, "spcnode": 1663, "nspname": "public", "size_bytes": 80_000_000}
    cap.add("relation", relid=16405, relfilenode=16405, relname="Words", relkind="i", amname="gin", table_relid=TABLE, **gin)
    wait(cap, "LWLock:BufferContent")
    seen(cap, 16405, "gin meta", waiters=5, block=0)
    looked(cap, waiting=5, attributed=5)
    (finding,) = found(cap)
    assert (finding.id, finding.subject) == ("HOT-BLOCK", "gin meta pages of public.Words")
    assert 'ALTER INDEX public."Words" SET (fastupdate = off);' in finding.action and "Partition the table" not in finding.action


@pytest.mark.parametrize(("version_num", "advised"), [(150018, True), (160014, False), (180004, False)])
def test_an_upgrade_is_advised_only_before_it(tmp_path: Path, version_num: int, advised: bool) -> None:
    cap = SyntheticCapture(tmp_path, server_version_num=version_num)
    cap.background()
    wait(cap, "Lock:extend")
    (finding,) = found(cap, ["RELATION-EXTEND"])
    assert ("Upgrade to 16" in finding.action) == advised
