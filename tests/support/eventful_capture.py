"""A made capture of 60 s in which much happens beside its load, for the marks of leadline explore."""

from __future__ import annotations

from pathlib import Path

import duckdb
from findings_synthetic import SyntheticCapture

ALTER = "/* release 7 */ ALTER TABLE orders\n  add column note text"
STATEMENTS = {
    21: ALTER, 22: "-- nightly\ncreate index on orders (note)", 23: "select created from orders", 24: "alternate", 25: "drop table old",
}  # fmt: skip


class Eventful(SyntheticCapture):
    """60 s with two checkpoints, DDL, a crash, a wall clock that is set, and 50 passes that were not made."""

    def _insert_ticks(self, db: duckdb.DuckDBPyConnection) -> None:
        super()._insert_ticks(db)
        db.execute(f"delete from tick where ts >= {self.ts(55)} and ts < {self.ts(55.5)}")
        db.execute(f"update tick set missed = 50 where ts = {self.ts(55.5)}")


def eventful(folder: Path) -> SyntheticCapture:
    """The capture, not yet written."""
    cap = Eventful(folder)
    for statement_id, query in STATEMENTS.items():
        cap.add("statement", statement_id=statement_id, id_source="server", datid=16384, query=query, truncated=False)
    checkpointer = cap.add_session(backend_type="checkpointer")
    cap.sample(checkpointer, None, "Activity:CheckpointerMain", 0, 60)
    cap.sample(checkpointer, None, "Timeout:CheckpointWriteDelay", 10, 20)
    cap.sample(checkpointer, None, "IO:DataFileSync", 20, 22)
    cap.sample(checkpointer, None, "IO:DataFileWrite", 40, 41)
    client = cap.add_session(pid=7001)
    cap.sample(client, "active", None, 30, 33, statement_id=21, query_start_s=29.9)
    cap.sample(client, "idle", "Client:ClientRead", 33, 40, statement_id=21)
    cap.sample(client, "active", None, 40, 40.5, statement_id=21)
    cap.sample(client, "active", None, 41, 42, statement_id=23)
    cap.sample(client, "active", None, 42, 43, statement_id=24)
    cap.sample(cap.add_session(pid=7002), "active", "Lock:relation", 31, 32, statement_id=22)
    worker = cap.add_session(pid=7003, backend_type="parallel worker")
    cap.sample(worker, "active", None, 31, 32, statement_id=22)  # the same statement, not one more
    cap.add("server_gap", ts_from=cap.ts(50), ts_to=cap.ts(52), cause="crash", reason="new shared memory")
    for second in range(61):
        wall = cap.wall_us(second) * 1000 + (5_000_000_000 if second > 44 else 0)
        cap.add("clock", ts=cap.ts(second), realtime_ns=wall, boottime_ns=cap.ts(second), uncertainty_ns=100)
    return cap
