"""Host facts: what is read is what the kernel says, and what is absent is no row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from leadline.engines.postgres import postmaster
from leadline.host import facts as host
from leadline.host import files as small
from leadline.host import proc
from leadline.tables import all_tables

MOUNTINFO = r"""
22 28 0:20 / /proc rw,nosuid shared:13 - proc proc rw
28 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,discard
40 28 259:2 / /var/lib/pg\040data rw,noatime shared:2 master:3 - xfs /dev/nvme1n1 rw,attr2,noquota
41 40 259:3 / /var/lib/pg\040data/pg_wal rw,noatime - ext4 /dev/nvme2n1 rw,data=ordered
42 28 259:4 / /var/lib/pg rw - ext4 /dev/wrong rw
broken line
"""


def test_facts_are_what_the_kernel_says(servers) -> None:
    found = host.read_host(servers(16).pid, postmaster.stored_paths(servers(16).pid))
    names = [name for name, _, _ in found.facts]
    assert len(names) == len(set(names))
    assert found.get("kernel.release") == os.uname().release
    assert found.get("cpu.count") == str(os.cpu_count())
    assert int(found.get("memory.total_bytes") or 0) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found.get("vm.swappiness") == Path("/proc/sys/vm/swappiness").read_text().strip()
    assert found.get("thp.enabled") in ("always", "madvise", "never")
    assert found.get("postmaster.oom_score_adj") is not None
    assert found.notes == []
    for table, rows in (("host_fact", found.facts), ("mount", found.mounts), ("block_device", found.devices)):
        assert all(len(row) == len(all_tables()[table].columns) for row in rows)


def test_the_mount_of_the_data_directory_is_named(servers) -> None:
    server = servers(16)
    held = {what: row for row in host.mounts(server.pid, postmaster.stored_paths(server.pid)) for what in row[4].split(",")}
    device = Path(server.private.data_dir).stat().st_dev
    assert Path(held["data"][0]).stat().st_dev == device
    assert {"data", "wal", "temp"} <= held.keys()


def test_mounts_go_to_the_longest_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "read_text", lambda path: MOUNTINFO)
    paths = [("data", "/var/lib/pg data"), ("wal", "/var/lib/pg data/pg_wal"), ("tablespace 16400", "/mnt/x")]
    rows = {row[4]: row for row in host.mounts(1, paths)}
    assert rows["data"][:4] == ("/var/lib/pg data", "/dev/nvme1n1", "xfs", "rw,noatime,attr2,noquota")
    assert rows["wal"][1] == "/dev/nvme2n1"
    assert rows["tablespace 16400"][1] == "/dev/nvme0n1p1"


def fake_cgroup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, membership: str, files: dict[str, str]) -> dict[str, str]:
    monkeypatch.setattr(proc, "SYS", tmp_path)
    monkeypatch.setattr(small, "SYS", str(tmp_path))
    real = proc.read_text
    monkeypatch.setattr(proc, "read_text", lambda path: membership if str(path).endswith("/cgroup") else real(path))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return {name: value for name, value, _ in host.cgroup_facts(1)}


def test_limits_of_control_groups_version_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {
        "fs/cgroup/a/b/cpu.max": "max 100000\n",
        "fs/cgroup/a/cpu.max": "150000 100000\n",
        "fs/cgroup/a/b/memory.max": "1073741824\n",
        "fs/cgroup/a/memory.max": "2147483648\n",
    }
    facts = fake_cgroup(monkeypatch, tmp_path, "0::/a/b\n", files)
    assert facts["cgroup.cpu_max"] == "150000 100000"
    assert facts["cgroup.memory_max"] == "1073741824"
    assert host.cpu_count(None) == len(os.sched_getaffinity(0))
    assert host.cpu_count(1) == min(2, len(os.sched_getaffinity(1)))


def test_limits_of_control_groups_version_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {
        "fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "50000\n",
        "fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
        "fs/cgroup/memory/x/memory.limit_in_bytes": "536870912\n",
    }
    facts = fake_cgroup(monkeypatch, tmp_path, "4:cpu,cpuacct:/x\n3:memory:/x\n", files)
    assert facts == {"cgroup.cpu_max": "50000 100000", "cgroup.memory_max": "536870912"}
    assert host.cpu_count(1) == 1


@pytest.mark.parametrize(("parent", "cpu_max"), [("-1", "max 100000"), ("50000", "50000 100000")])
def test_a_group_of_version_1_without_a_quota_has_that_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parent: str, cpu_max: str
) -> None:
    files = {f"fs/cgroup/cpu/x{group}/cpu.cfs_quota_us": f"{quota}\n" for group, quota in (("", parent), ("/y", "-1"))}
    files |= {f"fs/cgroup/cpu/x{group}/cpu.cfs_period_us": "100000\n" for group in ("", "/y")}
    assert fake_cgroup(monkeypatch, tmp_path, "4:cpu:/x/y\n", files) == {"cgroup.cpu_max": cpu_max}


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_reads_and_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int) -> None:
    """Those of the groups above count too, and the lowest holds. Of a partition, it is the whole device that is limited."""
    files = {"fs/cgroup/a/io.max": "8:1 rbps=max wbps=1048576 riops=max wiops=50\n9:9 rbps=5 wbps=max\n"}
    files["fs/cgroup/a/b/io.max"] = "8:0 wiops=90\n"
    throttle = "fs/cgroup/blkio/{}blkio.throttle.{}_device"
    if version == 1:
        files = {throttle.format("a/", "write_iops"): "8:1 50\n", throttle.format("a/b/", "write_iops"): "8:0 90\n"}
        files |= {throttle.format("", "write_bps"): "8:1 1048576\n", throttle.format("a/b/", "read_bps"): "9:9 5\n"}
    fake_cgroup(monkeypatch, tmp_path, "0::/a/b\n" if version == 2 else "7:blkio:/a/b\n", files)
    (tmp_path / "block/sda/sda1").mkdir(parents=True)
    (tmp_path / "block/sda/sda1/partition").write_text("1")
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "dev/block/8:0").symlink_to(tmp_path / "block/sda")
    (tmp_path / "dev/block/8:1").symlink_to(tmp_path / "block/sda/sda1")
    found = {name: value for name, value, _ in host.io_limits(1)}
    assert found == {"cgroup.io_max.sda": "wbps=1048576 wiops=50", "cgroup.io_max.9:9": "rbps=5"}


def test_a_remote_server_has_no_host_facts() -> None:
    found = host.read_host(None)
    assert (found.facts, found.mounts, found.devices) == ([], [], [])
    assert "not run on this host" in found.notes[0]


def test_a_vanished_server_is_no_error() -> None:
    found = host.read_host(2**22 + 1)
    assert found.get("kernel.release") and found.mounts == [] and found.notes
