"""Findings about the host and about settings: each planted defect gives exactly its row, a sound host gives none."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture
from leadline.findings import Finding, evaluate

RULES = ["ZONE-RECLAIM", "RECLAIM-STALL", "THP", "SWAP", "HUGEPAGES-OFF", "DURABILITY-OFF"]
FACTS = {
    "vm.zone_reclaim_mode": 0,
    "numa.nodes": 2,
    "thp.enabled": "always",
    "thp.defrag": "madvise",
    "hugepages.total": 0,
    "vm.swappiness": 60,
}
SETTINGS = {"shared_buffers": (16384, "8kB"), "huge_pages": ("try", ""), "fsync": ("on", ""), "full_page_writes": ("on", "")}
COUNTERS = (
    "allocstall_normal",
    "allocstall_movable",
    "pgscan_direct",
    "pgsteal_direct",
    "pgscan_kswapd",
    "compact_stall",
    "zone_reclaim_success",
)
COUNTERS += ("pswpin", "pswpout", "oom_kill")


def host(tmp_path: Path, facts: dict[str, object] | None = None, **settings: object) -> SyntheticCapture:
    """A sound host and server with what is given changed. A fact of None is left out, as a kernel without it does.

    settings: values, or (value, unit).
    """
    cap = SyntheticCapture(tmp_path, seconds=60)
    cap.background()
    for name, value in (FACTS | (facts or {})).items():
        if value is not None:
            cap.fact(name, value)
    for name, (value, unit) in SETTINGS.items():
        given = settings.pop(name, value)
        amount, of = given if isinstance(given, tuple) else (given, unit)
        cap.setting(name, amount, unit=of)
    for name, value in settings.items():
        cap.setting(name, value)
    return cap


def counters(cap: SyntheticCapture, **per_s: float) -> SyntheticCapture:
    for name in COUNTERS:
        cap.counter(f"vmstat.{name}", 1_000_000, per_s.get(name, 0))
    return cap


def rows(cap: SyntheticCapture, *only: str) -> list[Finding]:
    with cap.open() as capture:
        result = evaluate(capture, only=only or RULES)
    assert result.not_evaluated == []
    return result.findings


def one(cap: SyntheticCapture) -> Finding:
    """The only finding of all the host's rules."""
    (found,) = rows(cap)
    assert found.cost_s is None and found.share_of_db_time is None
    return found


def test_a_sound_host_has_no_finding(tmp_path: Path) -> None:
    """Normal background: slow trickles to swap, a stray stall, kswapd at work, THP as kernels set it by default."""
    cap = counters(host(tmp_path), pswpout=5, pgscan_kswapd=20_000, allocstall_normal=0.2)
    assert rows(cap) == []


# -- ZONE-RECLAIM -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "reclaims", "severity"), [(1, 0, "low"), (2, 0, "medium"), (2, 40, "high")])
def test_zone_reclaim_is_on(tmp_path: Path, nodes: int, reclaims: float, severity: str) -> None:
    cap = counters(host(tmp_path, {"vm.zone_reclaim_mode": 1, "numa.nodes": nodes}), zone_reclaim_success=reclaims)
    found = one(cap)
    assert (found.id, found.severity, found.subject) == ("ZONE-RECLAIM", severity, "vm.zone_reclaim_mode")
    assert found.statement.startswith(f"vm.zone_reclaim_mode is 1 on a host with {nodes} memory node")
    assert ("2400 times" in found.statement) == (reclaims > 0)
    assert {"name": "vm.zone_reclaim_mode", "value": "1"} in found.evidence


# -- RECLAIM-STALL ------------------------------------------------------------------------------------------------------------


def test_direct_reclaim_during_a_checkpoint(tmp_path: Path) -> None:
    cap = host(tmp_path)
    checkpointer = cap.add_session(backend_type="checkpointer")
    cap.sample(checkpointer, None, "Activity:CheckpointerMain", 0, 60)
    cap.sample(checkpointer, None, "Timeout:CheckpointWriteDelay", 20, 40)
    cap.sample(checkpointer, None, "IO:DataFileWrite", 20, 40, every=3)
    cap.counter("vmstat.allocstall_normal", 10, 200, from_s=20, to_s=40)
    cap.counter("vmstat.allocstall_movable", 10, 100, from_s=0, to_s=10)
    cap.counter("vmstat.pgscan_direct", 10**9, 64_000, from_s=20, to_s=40)
    cap.counter("vmstat.pgsteal_direct", 10**9, 32_000, from_s=20, to_s=40)
    cap.counter("vmstat.pswpin", 0)
    cap.counter("vmstat.pswpout", 0)
    cap.counter("pressure.memory_some_ns", 10**9, 400_000_000, from_s=20, to_s=40)
    found = one(cap)
    assert (found.id, found.severity, found.confidence, found.samples) == ("RECLAIM-STALL", "medium", "high", 61)
    assert "entered direct reclaim 5000 times (83 a second), 1280000 pages scanned and 640000 freed" in found.statement
    assert "some process stood still for memory during 8.0 s of 60 s" in found.statement
    share = int(found.statement.split("; ")[-1].split(" %")[0])
    assert share == pytest.approx(80, abs=4) and found.statement.endswith("% of it in the 20 s of checkpoints")
    assert found.evidence[0]["stalls"] == 200 and found.evidence[0]["in_checkpoint"] is True


def test_a_single_burst_of_stalls_is_no_state(tmp_path: Path) -> None:
    cap = host(tmp_path)
    cap.counter("vmstat.allocstall_normal", 10, 400, from_s=20, to_s=21)
    assert rows(cap, "RECLAIM-STALL") == []


# -- THP, SWAP ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stalls", "severity"), [(0, "low"), (3, "medium"), (150, "high")])
def test_thp_that_stalls(tmp_path: Path, stalls: float, severity: str) -> None:
    found = one(counters(host(tmp_path, {"thp.defrag": "always"}), compact_stall=stalls))
    assert (found.id, found.severity, found.subject) == ("THP", severity, "transparent huge pages")
    assert ("stopped 180 times" in found.statement) == (stalls == 3)


@pytest.mark.parametrize(
    ("enabled", "defrag", "count"),
    [
        ("always", "madvise", 0),
        ("always", "defer+madvise", 0),
        ("madvise", "always", 0),
        ("never", "always", 0),
        ("always [madvise] never", "[always] defer madvise never", 0),
        ("[always] madvise never", "always defer defer+madvise [madvise] never", 0),
        ("[always] madvise never", "[always] defer defer+madvise madvise never", 1),
    ],
)
def test_thp_without_stalls_by_setting(tmp_path: Path, enabled: str, defrag: str, count: int) -> None:
    assert len(rows(counters(host(tmp_path, {"thp.enabled": enabled, "thp.defrag": defrag})), "THP")) == count


@pytest.mark.parametrize(("pages_in", "severity"), [(50, "medium"), (5000, "high")])
def test_a_host_that_reads_from_swap(tmp_path: Path, pages_in: float, severity: str) -> None:
    cap = counters(host(tmp_path), pswpin=pages_in, pswpout=10)
    cap.delta(cap.add_session(), 0, 60, majflt=2)
    found = one(cap)
    assert (found.id, found.severity, found.confidence) == ("SWAP", severity, "high")
    assert found.statement.startswith(
        f"{pages_in * 60} pages ({pages_in} a second) were read back from swap and 600 (10 a second) pushed out"
    )
    assert found.statement.endswith("the sessions had 120 page faults with I/O; vm.swappiness is 60")


def test_a_host_that_only_pushes_out_is_low(tmp_path: Path) -> None:
    found = one(counters(host(tmp_path), pswpout=500))
    assert (found.id, found.severity, found.confidence) == ("SWAP", "low", "medium")


# -- HUGEPAGES-OFF, DURABILITY-OFF --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reserved", "count"),
    [
        ({"shared_buffers": 8 * 131072}, 0, 1),
        ({"shared_buffers": "16GB"}, 0, 1),
        ({"shared_buffers": 8 * 131072 - 1}, 0, 0),
        ({"shared_buffers": (8 * 131072, "")}, 0, 1),
        ({"shared_buffers": (4 * 131072, ""), "block_size": 16384}, 0, 1),
        ({"shared_buffers": (4 * 131072 - 1, ""), "block_size": 16384}, 0, 0),
        ({"shared_buffers": 8 * 131072}, 5000, 0),
        ({"shared_buffers": 8 * 131072, "huge_pages": "off"}, 5000, 1),
        ({"shared_buffers": 8 * 131072, "huge_pages": "on"}, 5000, 0),
        ({"shared_buffers": 8 * 131072, "huge_pages_status": "off"}, 5000, 1),
        ({"shared_buffers": 8 * 131072, "huge_pages_status": "on"}, 0, 0),
    ],
)
def test_huge_pages_by_setting(tmp_path: Path, settings: dict[str, object], reserved: int, count: int) -> None:
    cap = counters(host(tmp_path, {"hugepages.total": reserved}, **settings))
    cap.counter("meminfo.PageTables_bytes", 5 * 2**30)
    found = rows(cap, "HUGEPAGES-OFF")
    assert len(found) == count
    for finding in found:
        assert (finding.subject, finding.severity) == ("huge_pages", "medium")
        assert "the host used 5120 MB for page tables with 2 client sessions" in finding.statement


def test_settings_that_can_lose_the_database_give_a_row_each(tmp_path: Path) -> None:
    cap = counters(host(tmp_path, fsync="off", full_page_writes="off", synchronous_commit="off"))
    assert [(f.subject, f.severity) for f in rows(cap)] == [("setting fsync", "critical"), ("setting full_page_writes", "high")]


def test_full_page_writes_off_on_a_file_system_that_tears_no_page(tmp_path: Path) -> None:
    cap = counters(host(tmp_path, full_page_writes="off"))
    cap.add("mount", mount_point="/data", device="tank", fstype="zfs", options="rw", holds="data,wal,temp")
    found = one(cap)
    assert (found.id, found.severity) == ("DURABILITY-OFF", "low")
    assert "ZFS" in found.statement


def test_what_a_host_does_not_tell_is_not_judged(tmp_path: Path) -> None:
    cap = host(tmp_path, dict.fromkeys(FACTS))
    with cap.open() as capture:
        reasons = dict(evaluate(capture, only=RULES).not_evaluated)
    assert set(reasons) == {"ZONE-RECLAIM", "THP", "RECLAIM-STALL", "SWAP"}
    assert reasons["THP"] == "this kernel has no transparent huge pages"


def test_a_server_on_another_host_has_no_host_findings(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=10, tier="sql")
    cap.probe("host", "off", why="the server does not run on this host")
    with cap.open() as capture:
        reasons = dict(evaluate(capture, only=["ZONE-RECLAIM", "SWAP"]).not_evaluated)
    assert reasons["ZONE-RECLAIM"] == "host_fact: the server does not run on this host"
    assert reasons["SWAP"] == "host_stat: the server does not run on this host"


# -- CGROUP-CPU-THROTTLE ----------------------------------------------------------------------------------------------------------


def quota(tmp_path: Path, cpu_max: str, run_ms: int, seconds: int = 30) -> SyntheticCapture:
    cap = host(tmp_path, {"cgroup.cpu_max": cpu_max})
    for _ in range(2):
        cap.delta(cap.add_session(), 0, 60, cpu_run_ns=100_000_000, cpu_queue_ns=0)
    worker = cap.add_session()
    cap.delta(worker, 10, 10 + seconds, cpu_run_ns=run_ms * 1_000_000, cpu_queue_ns=500_000_000)
    return cap


def test_a_server_at_the_quota_of_its_control_group(tmp_path: Path) -> None:
    (found,) = rows(quota(tmp_path, "150000 100000", 1250), "CGROUP-CPU-THROTTLE")
    assert (found.severity, found.subject, found.samples) == ("medium", "CPU quota of the control group", 30)
    assert found.statement.startswith(
        "The server used up its quota of 1.50 CPUs (cpu.max 150000 100000) in 30 of 60 seconds, 1.45 CPUs at most"
    )
    assert found.evidence[0]["cpus_used"] == 1.45


@pytest.mark.parametrize(
    ("cpu_max", "run_ms", "seconds"), [("max 100000", 1250, 30), ("150000 100000", 900, 30), ("150000 100000", 1250, 4)]
)
def test_a_server_below_its_quota_is_fine(tmp_path: Path, cpu_max: str, run_ms: int, seconds: int) -> None:
    assert rows(quota(tmp_path, cpu_max, run_ms, seconds), "CGROUP-CPU-THROTTLE") == []
