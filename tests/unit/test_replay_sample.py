"""What replay did, reading by reading, from made-up readings: activity, names, and the time each stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import open_capture

WAITS = {1: ("Activity", "RecoveryWalStream"), 2: ("Lock", "relation"), 3: ("IO", "DataFileRead"), 4: ("Timeout", "RecoveryApplyDelay")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    cap = SyntheticCapture(tmp_path, rate_hz=10)
    cap.add("replication_node", node=2, name="db2:5432", system_identifier="1")
    for code, (kind, event) in WAITS.items():
        cap.add("wait_event", wait_event_info=code, wait_event_type=kind, wait_event=event)
    cap.add("relation", datid=5, relid=1000, relfilenode=16384, nspname="public", relname="t")
    cap.add(
        "replay_record", node=2, end_lsn=200, start_lsn=100, rmgr="Heap", record_type="INSERT", spcnode=1663, dbnode=5, relfilenode=16384
    )
    cap.add("replay_record", node=2, end_lsn=300, start_lsn=200, rmgr="Standby", record_type="LOCK")
    readings: list[tuple[float, int | None, int]] = [
        (0.0, 200, 0), (0.1, 200, 3), (0.2, None, 0), (0.3, None, 3), (0.4, 300, 2), (0.5, 300, 2), (0.6, None, 1), (0.7, None, 4),
        (0.8, 999, 0), (9.0, None, 1),
    ]  # fmt: skip
    for at, record, wait in readings:
        memory = {"tier": "shm", "record_lsn": record, "startup_wait": wait}
        cap.add("replication_position", ts=cap.ts(at), node=2, in_recovery=True, replay_lsn=100, **memory)
    cap.add("replication_position", ts=cap.ts(0.25), node=2, in_recovery=True, replay_lsn=100, tier="sql")
    cap.add("replication_position", ts=cap.ts(0.25), node=1, in_recovery=False, tier="shm")
    return cap.write()


def test_each_reading_says_what_replay_did(path: Path) -> None:
    capture = open_capture(path)
    rows: list[dict[str, Any]] = capture.rows("select * from replay_sample order by ts")
    capture.close()
    assert [row["activity"] for row in rows] == ["apply", "apply", "read", "read", "apply", "apply", "idle", "held", "apply", "idle"]
    assert [row["wait"] for row in rows[:5]] == ["", "IO:DataFileRead", "", "IO:DataFileRead", "Lock:relation"]
    assert [row["record_type"] for row in rows] == ["INSERT", "INSERT", None, None, "LOCK", "LOCK", None, None, None, None]
    assert [row["relation"] for row in rows[:5]] == ["public.t", "public.t", None, None, None]
    assert [row["seconds"] for row in rows[:8]] == pytest.approx([0.1] * 8)
    assert rows[8]["seconds"] == pytest.approx(1.0), "after it came a gap of 8.2 s"
    assert rows[9]["seconds"] == 0
