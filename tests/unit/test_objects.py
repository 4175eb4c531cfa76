"""What was waited for: `object` and `object_kind` of lock_wait and hot_block, from the names that the capture has."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture
from leadline.views.lock_tree import lock_trees
from leadline.views.spenders import objects

VOUCHER, INDEX = 20001, 20002


def planted(tmp_path: Path) -> SyntheticCapture:
    """A table that was rewritten while the capture ran (it has two files), its index, and what has no name."""
    cap = SyntheticCapture(tmp_path, seconds=10)
    for relfilenode in (20001, 20101):
        cap.add("relation", datid=16384, relid=VOUCHER, relfilenode=relfilenode, nspname="public", relname="voucher", relkind="r")
    cap.add("relation", datid=16384, relid=INDEX, relfilenode=INDEX, nspname="public", relname="voucher_pkey", relkind="i")
    boss = cap.add_session(application_name="batch")
    cap.sample(boss, "idle in transaction", "Client:ClientRead", 0, 10)
    locks = (
        {"locktype": "tuple", "datid": 16384, "relid": VOUCHER, "page": 3, "tuple": 7},
        {"locktype": "relation", "datid": 16384, "relid": INDEX},
        {"locktype": "relation", "datid": 16384, "relid": 29999},
        {"locktype": "transactionid", "transactionid": 815},
        {"locktype": "advisory", "datid": 16384, "classid": 1, "objid": 42},
        {"locktype": "virtualxid"},
    )
    for number, lock in enumerate(locks):
        cap.lock_wait(cap.add_session(application_name=f"till{number}"), boss, 2, 6, **lock)
    cap.add("buffer_wait", ts=cap.ts(3), dbnode=16384, relfilenode=INDEX, fork="main", wait_kind="content", waiters=1)
    cap.add("buffer_wait", ts=cap.ts(3), spcnode=1663, dbnode=16384, relfilenode=29999, fork="main", wait_kind="content", waiters=1)
    return cap


@pytest.mark.parametrize("hold", [True, False])
def test_a_lock_and_a_page_say_what_they_are_of(tmp_path: Path, hold: bool) -> None:
    with planted(tmp_path).open(hold=hold) as capture:
        found = capture.rows("select object, object_kind, target, count(*) as n from lock_wait group by all order by min(session_id)")
        pages = capture.rows("select object, object_kind from hot_block order by object")
        assert capture.scalar("select count(*) from lock_chain") == capture.scalar("select count(*) from lock_wait") == 6 * 80
    assert [(row["object"], row["object_kind"], row["target"]) for row in found] == [
        ("public.voucher", "table", "row (3,7) of public.voucher"),
        ("public.voucher_pkey", "index", "public.voucher_pkey"),
        ("relation 29999", "relation", "relation 29999"),
        ("rows (waits for transactions)", "transactionid", "transaction 815"),
        ("advisory lock 1/42", "advisory", "advisory lock 1/42"),
        ("virtualxid", "virtualxid", "virtualxid"),
    ]
    assert {row["n"] for row in found} == {80}, "a table with two files is waited for once"
    assert [tuple(row.values()) for row in pages] == [("file 1663/16384/29999", "file"), ("public.voucher_pkey", "index")]


def test_the_views_count_a_wait_for_a_rewritten_table_once(tmp_path: Path) -> None:
    with planted(tmp_path).open() as capture:
        [tree] = lock_trees(capture)
        waited = {waiter.object: waiter.seconds for waiter in tree.waiters}
        listed = {row.object: (row.object_kind, row.kind, row.lock_s) for row in objects(capture)}
    assert waited["row (3,7) of public.voucher"] == pytest.approx(4) and tree.seconds == pytest.approx(24)
    assert listed["public.voucher"] == ("table", "r", pytest.approx(4))
    assert listed["advisory lock 1/42"] == ("advisory", "", pytest.approx(4))
