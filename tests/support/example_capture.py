"""One synthetic capture with a bit of everything, for the tests of what people look at: terminal, report, commands.

60 s at 100 Hz on 2 CPUs: an ordinary load, a lock chain whose root is idle in transaction, a hot right-most index
leaf, a busy sequence, a client that reads slowly, and text that must be escaped.
"""

from __future__ import annotations

from pathlib import Path

from findings_synthetic import SyntheticCapture

NASTY = "<script>alert('x')</script> & \"quotes\""
LONG = (
    "select o.id, o.placed_at, c.name, sum(i.quantity * i.price) from orders o join customers c on c.id = o.customer_id "
    "join order_items i on i.order_id = o.id where o.placed_at > $1 and c.region = $2 and o.state in ($3, $4, $5) "
    "group by o.id, o.placed_at, c.name order by sum(i.quantity * i.price) desc limit $6"
)


def example(folder: Path) -> SyntheticCapture:
    """The capture, not yet written."""
    cap = SyntheticCapture(folder, cpu_count=2)
    cap.background()
    cap.ordinary_load(clients=4)
    for oid, name in ((16384, "shop"), (5, "postgres")):
        cap.add("database", datid=oid, datname=name, dattablespace=1663, size_bytes=-1)
    cap.add("role", usesysid=10, usename="postgres")
    for relid, name, kind, table in (
        (16400, "orders", "r", 16400),
        (16401, "orders_pkey", "i", 16400),
        (16402, "orders_id_seq", "S", 16402),
        (16403, NASTY, "r", 16403),
    ):
        cap.add("relation", datid=16384, relid=relid, relfilenode=relid, spcnode=1663, nspname="public", relname=name, relkind=kind,
                amname="btree" if kind == "i" else "", table_relid=table, size_bytes=81920, reltuples=1000.0)  # fmt: skip
    statements = {
        11: "insert into orders (customer_id, placed_at) values ($1, $2) returning id",
        12: "update accounts set balance = balance - $1 where id = $2",
        13: LONG,
        14: f'select {NASTY} from "odd"',
        15: "copy (select * from orders) to stdout",
    }
    for statement_id, query in statements.items():
        cap.add("statement", statement_id=statement_id, id_source="server", datid=16384, query=query, truncated=False)
    _lock_chain(cap)
    _hot_leaf(cap)
    reader = cap.add_session(application_name="export", client_addr="192.0.2.17", client_port=40112)
    cap.cycle(reader, [("active", "Client:ClientWrite", 8), ("active", None, 2)], 0, 60, statement_id=15)
    report = cap.add_session(application_name=NASTY)
    cap.cycle(report, [("active", None, 6), ("active", "IO:DataFileRead", 3), ("active", "IPC:ParallelFinish", 1)], 5, 45, statement_id=13)
    cap.delta(report, 5, 45, cpu_run_ns=300_000_000, cpu_queue_ns=300_000_000, shared_blks_read=2000, wal_bytes=0)
    odd = cap.add_session(application_name="odd")
    cap.sample(odd, "active", "Timeout:PgSleep", 50, 55, statement_id=14)
    cap.setting("shared_buffers", 16384, unit="8kB", boot_val="16384")
    cap.setting("work_mem", 65536, unit="kB", boot_val="4096")
    cap.fact("kernel.release", "6.1.0")
    cap.fact("cpu.count", 2)
    cap.probe("host", "partial", why="block devices are not visible in this container", hint="run on the host itself")
    return cap


def _lock_chain(cap: SyntheticCapture) -> None:
    """pid 7001 sits in a transaction; 7002 waits for it, 7003 and 7004 wait for the row behind 7002."""
    root = cap.add_session(pid=7001, application_name="batch")
    cap.sample(root, "idle in transaction", "Client:ClientRead", 10, 40, statement_id=12, xact_start_s=4, backend_xid=900)
    first = cap.add_session(pid=7002, application_name="web")
    cap.lock_wait(first, root, 12, 40, transactionid=900, statement_id=12)
    for pid in (7003, 7004):
        waiter = cap.add_session(pid=pid, application_name=NASTY if pid == 7004 else "web")
        cap.lock_wait(waiter, first, 15, 40, locktype="tuple", datid=16384, relid=16403, page=3, tuple=7, mode="ExclusiveLock",
                      statement_id=12)  # fmt: skip


def _hot_leaf(cap: SyntheticCapture) -> None:
    """Three writers wait for the right-most leaf of orders_pkey half of the time, one for the sequence."""
    writers = [cap.add_session(application_name="ingest") for _ in range(4)]
    for writer in writers[:3]:
        cap.cycle(writer, [("active", "LWLock:BufferContent", 5), ("active", None, 3), ("active", "IO:WALSync", 2)], 0, 60, statement_id=11)
        cap.delta(writer, 0, 60, cpu_run_ns=200_000_000, cpu_queue_ns=100_000_000, wal_bytes=3_000_000, status_changes=900)
    cap.cycle(writers[3], [("active", "LWLock:BufferContent", 2), ("active", None, 8)], 0, 60, statement_id=11)
    for ts in cap.moments(0, 60, 10):
        cap.add("buffer_scan", ts=ts, scope="all", buffers=16384, duration_ns=400_000, waiting=4, attributed=3, torn=0)
        leaf = {"page_kind": "btree right-most leaf", "wait_kind": "content", "waiters": 2, "waiters_exclusive": 2}
        holder = {"holder_session_id": writers[0], "holder_pid": 4010, "holder_mode": "exclusive"}
        cap.add("buffer_wait", ts=ts, buf_id=77, spcnode=1663, dbnode=16384, relfilenode=16401, fork="main", block=117, **leaf, **holder)
        cap.add("buffer_wait", ts=ts, buf_id=78, spcnode=1663, dbnode=16384, relfilenode=16402, fork="main", block=0, page_kind="sequence",
                wait_kind="content", waiters=1, waiters_exclusive=1, holder_session_id=-1)  # fmt: skip
