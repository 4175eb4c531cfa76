"""FPI-STORM and PREFETCH-WASTE: a clean capture gives no row, a planted one exactly one, by hand computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture, one, rows

MB = 1 << 20
RECORDS = 1000  # a second
RECORD = 100  # bytes without an image
IMAGE = 8000


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    return SyntheticCapture(tmp_path, rate_hz=10)


def checkpoints(cap: SyntheticCapture, *starts: float) -> None:
    """Each writes for 5 s and syncs for 1 s."""
    checkpointer = cap.add_session(backend_type="checkpointer")
    cap.sample(checkpointer, None, "Activity:CheckpointerMain", 0, 60)
    for start in starts:
        cap.sample(checkpointer, None, "Timeout:CheckpointWriteDelay", start, start + 5)
        cap.sample(checkpointer, None, "IO:DataFileSync", start + 5, start + 6)


def load(cap: SyntheticCapture, *parts: tuple[float, float, int], record: int = RECORD) -> None:
    """Parts: from and to a second, and how many images each second has."""
    session = cap.add_session()
    cap.sample(session, "active", None, 0, 60)
    for from_s, to_s, images in parts:
        cap.delta(session, from_s, to_s, wal_records=RECORDS, wal_fpi=images, wal_bytes=RECORDS * record + images * IMAGE)


def replay(cap: SyntheticCapture) -> None:
    """A standby replays 1 MB a second, and works half of the time."""
    cap.add("replication_node", node=2, name="db2:5432", system_identifier="1")
    cap.add("wait_event", wait_event_info=10, wait_event_type="Activity", wait_event="RecoveryWalStream")
    for n in range(601):
        lsn, idle = round((100 + n / 10) * MB), n % 2
        memory = {"tier": "shm", "record_lsn": None if idle else 5, "startup_wait": 10 if idle else 0}
        cap.add("replication_position", ts=cap.ts(n / 10), node=2, in_recovery=True, replay_lsn=lsn, flush_lsn=lsn, **memory)


@pytest.mark.parametrize("watched", [False, True])
def test_images_after_a_checkpoint(cap: SyntheticCapture, watched: bool) -> None:
    """It began at 10 s. Of the first quarter (12.5 s), 12 readings have 500 images each."""
    checkpoints(cap, 10)
    load(cap, (0, 10, 0), (10, 22, 500), (22, 60, 0))
    cap.setting("wal_compression", "off")
    cap.setting("checkpoint_timeout", 300)
    cap.setting("max_wal_size", 1024)
    if watched:
        replay(cap)
    found = one(cap, "FPI-STORM")
    images = 12 * 500 * IMAGE
    assert (found.severity, found.confidence, found.subject, found.samples) == ("medium", "medium", "checkpoints", 6000)
    assert found.evidence[0]["image_bytes"] == images
    works = f", for which standby db2:5432 works {images / (2 * MB):.1f} s" if watched else ""
    assert found.statement == (
        "In the first 13 s after 1 checkpoint at least 98 % of the WAL was page images, 0.50 for each record, and 0.00 later; "
        f"in all at least 45.8 MB of 50.5 MB{works}; checkpoint_timeout is 300 s, max_wal_size 1024 MB, wal_compression off"
    )
    assert found.cost_s == (pytest.approx(images / (2 * MB), rel=0.01) if watched else None)
    assert "wal_compression = on" in found.action and "max_wal_size = '16GB'" not in found.action


def test_two_checkpoints_that_were_requested(cap: SyntheticCapture) -> None:
    checkpoints(cap, 10, 30, 50)
    load(cap, (0, 10, 0), (10, 15, 500), (15, 30, 10), (30, 35, 500), (35, 60, 10))
    cap.stat("pg_stat_checkpointer", "num_requested", 1, 3)
    cap.setting("wal_compression", "lz4")
    found = one(cap, "FPI-STORM")
    assert (found.confidence, found.evidence[0]["checkpoints"]) == ("high", 2)
    assert "In the first 5 s after 2 checkpoints" in found.statement and "; a checkpoint began every 20 s" in found.statement
    # Of the last quarter each record has 180 bytes on average, which are taken off everywhere.
    assert found.evidence[0]["image_bytes"] == 2 * 5 * (500 * IMAGE - RECORDS * 80)
    assert "max_wal_size = '16GB'" in found.action and "wal_compression = on" not in found.action


@pytest.mark.parametrize(
    ("starts", "parts"),
    [
        pytest.param([10], [(0, 60, 500)], id="images all the time"),
        pytest.param([10], [(0, 10, 0), (10, 22, 10), (22, 60, 0)], id="few images"),
        pytest.param([], [(0, 10, 0), (10, 22, 500), (22, 60, 0)], id="no checkpoint began"),
        pytest.param([54], [(0, 54, 0), (54, 56, 3000), (56, 60, 0)], id="it began at the end"),
        pytest.param([10], [(0, 10, 0), (10, 22, 500)], id="the load ended"),
    ],
)
def test_wal_without_a_storm(cap: SyntheticCapture, starts: list[float], parts: list[tuple[float, float, int]]) -> None:
    checkpoints(cap, *starts)
    load(cap, *parts)
    assert rows(cap, "FPI-STORM") == []


def test_larger_records_are_no_images(cap: SyntheticCapture) -> None:
    """The few images of the first quarter cannot have more than a page each."""
    checkpoints(cap, 10)
    load(cap, (10, 22, 10), record=40 * RECORD)
    load(cap, (22, 60, 0))
    assert rows(cap, "FPI-STORM") == []


def test_images_that_are_hardly_fewer_later(cap: SyntheticCapture) -> None:
    """The first quarter has more bytes because its records are larger: it has 0.5 images for each, and the last has 0.3."""
    checkpoints(cap, 10)
    load(cap, (10, 22, 500), record=30 * RECORD)
    load(cap, (22, 60, 300))
    assert rows(cap, "FPI-STORM") == []


def prefetching(cap: SyntheticCapture, calls: int, reads: int, to_s: float = 60) -> None:
    """calls: in the window; reads: of the startup process, each second. It ran for 3 s in the kernel."""
    cap.add("replication_node", node=1, name="db2:5432", system_identifier="1")
    startup = cap.add_session(backend_type="startup", pid=99)
    cap.sample(startup, None, None, 0, 60)
    cap.delta(startup, 0, to_s, shared_blks_read=reads, cpu_run_ns=5 * 10**8)
    for metric, before, after in (("prefetch", 500, 500 + calls), ("skip_fpw", 10, 4010), ("hit", 0, 7), ("io_depth", 1, 9)):
        cap.stat("pg_stat_recovery_prefetch", metric, before, after)
    cap.stat("proc_stat", "stime_s", 1.0, 4.0, "99")


def test_blocks_that_are_asked_for_and_not_read(cap: SyntheticCapture) -> None:
    prefetching(cap, 60_000, 100)
    found = one(cap, "PREFETCH-WASTE")
    assert (found.severity, found.subject, found.samples) == ("low", "prefetching of replay", 54_000)
    assert found.cost_s == pytest.approx(2.7)
    assert found.statement == (
        "Replay asked the kernel for 60000 blocks ahead and read 6000: at least 90 % of these calls were useless; "
        "they took at most 2.70 s of its CPU time in the kernel; 4000 blocks were passed over because their record has a page image"
    )
    assert "recovery_prefetch = off" in found.action


@pytest.mark.parametrize(
    ("calls", "reads", "to_s"),
    [
        pytest.param(60_000, 1000, 60, id="all are read"),
        pytest.param(60_000, 850, 60, id="few are not read"),
        pytest.param(60_000, 3000, 60, id="more are read than asked for"),
        pytest.param(9_000, 0, 60, id="few calls"),
        pytest.param(60_000, 0, 40, id="the reads are not known all the time"),
    ],
)
def test_prefetching_that_is_worth_it(cap: SyntheticCapture, calls: int, reads: int, to_s: float) -> None:
    prefetching(cap, calls, reads, to_s)
    assert rows(cap, "PREFETCH-WASTE") == []
