"""Facts of the host, read once per capture: kernel, CPUs, memory, limits, mounts and block devices.

The full list of host_fact names is FACTS and the functions below it. A file that is absent or may not be read gives no row.
Inside a container the kernel's files show the host; the cgroup rows say what the server itself may use.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leadline.host import proc
from leadline.host.cpu_faults import mitigations
from leadline.host.storage import CHOICE, Fact, StoredPath, block_devices, mounts, parse_mountinfo, storage_facts, whole_device

FACTS: tuple[tuple[str, str], ...] = (  # name, file whose whole text is the value
    ("kernel.release", "/proc/sys/kernel/osrelease"),
    ("kernel.version", "/proc/sys/kernel/version"),
    ("kernel.sched_schedstats", "/proc/sys/kernel/sched_schedstats"),
    ("kernel.task_delayacct", "/proc/sys/kernel/task_delayacct"),
    ("kernel.numa_balancing", "/proc/sys/kernel/numa_balancing"),
    ("kernel.yama.ptrace_scope", "/proc/sys/kernel/yama/ptrace_scope"),
    ("kernel.perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid"),
    ("clock.source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("cpu.online", "/sys/devices/system/cpu/online"),
    ("cpu.smt", "/sys/devices/system/cpu/smt/control"),
    ("cpu.governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("cpu.frequency_khz", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"),
    ("cpu.max_frequency_khz", "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
    ("numa.online", "/sys/devices/system/node/online"),
    ("vm.zone_reclaim_mode", "/proc/sys/vm/zone_reclaim_mode"),
    ("vm.swappiness", "/proc/sys/vm/swappiness"),
    ("vm.overcommit_memory", "/proc/sys/vm/overcommit_memory"),
    ("vm.overcommit_ratio", "/proc/sys/vm/overcommit_ratio"),
    ("vm.overcommit_kbytes", "/proc/sys/vm/overcommit_kbytes"),
    ("vm.dirty_ratio", "/proc/sys/vm/dirty_ratio"),
    ("vm.dirty_background_ratio", "/proc/sys/vm/dirty_background_ratio"),
    ("vm.dirty_bytes", "/proc/sys/vm/dirty_bytes"),
    ("vm.dirty_background_bytes", "/proc/sys/vm/dirty_background_bytes"),
    ("vm.dirty_expire_centisecs", "/proc/sys/vm/dirty_expire_centisecs"),
    ("vm.dirty_writeback_centisecs", "/proc/sys/vm/dirty_writeback_centisecs"),
    ("vm.min_free_kbytes", "/proc/sys/vm/min_free_kbytes"),
    ("vm.watermark_scale_factor", "/proc/sys/vm/watermark_scale_factor"),
    ("thp.enabled", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("thp.defrag", "/sys/kernel/mm/transparent_hugepage/defrag"),
    ("thp.shmem_enabled", "/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
    ("net.tcp_congestion_control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ("hypervisor.type", "/sys/hypervisor/type"),
    ("dmi.product_name", "/sys/class/dmi/id/product_name"),
)
_MEMINFO = {  # name in /proc/meminfo -> (fact, multiplier)
    "MemTotal": ("memory.total_bytes", 1024),
    "MemAvailable": ("memory.available_bytes", 1024),
    "SwapTotal": ("swap.total_bytes", 1024),
    "SwapFree": ("swap.free_bytes", 1024),
    "CommitLimit": ("memory.commit_limit_bytes", 1024),
    "HugePages_Total": ("hugepages.total", 1),
    "HugePages_Free": ("hugepages.free", 1),
    "HugePages_Rsvd": ("hugepages.reserved", 1),
    "HugePages_Surp": ("hugepages.surplus", 1),
    "Hugepagesize": ("hugepages.size_bytes", 1024),
    "AnonHugePages": ("thp.anon_bytes", 1024),
    "ShmemHugePages": ("thp.shmem_bytes", 1024),
}


@dataclass
class HostFacts:
    """Rows of host_fact, mount and block_device, and what was not to be had."""

    facts: list[Fact] = field(default_factory=list)
    mounts: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    devices: list[tuple[str, str, bool, str, str, int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        return next((value for fact, value, _ in self.facts if fact == name), None)


def read_host(pid: int | None, stored: Iterable[StoredPath] = ()) -> HostFacts:
    """Facts of this host. pid: the server's process, for its limits; None when the server is elsewhere (then nothing is read).

    stored: what the server keeps where, for its mounts.
    """
    found = HostFacts()
    if pid is None:
        found.notes.append("host facts were not read: the server does not run on this host")
        return found
    found.facts += _files()
    found.facts += _computed()
    found.facts += _meminfo()
    found.facts += list(cgroup_facts(pid))
    found.facts += list(io_limits(pid))
    found.facts += list(_process_facts(pid))
    stored = list(stored)
    found.facts += list(storage_facts(pid, stored))
    found.mounts = mounts(pid, stored)
    if not found.mounts:
        found.notes.append("mounts were not read: no permission for /proc/PID/mountinfo of the postmaster")
    found.devices = block_devices()
    return found


def read_this_host() -> HostFacts:
    """Facts of this host, whatever runs on it; its mounts are those of storage that this process sees."""
    found = HostFacts([*_files(), *_computed(), *_meminfo()])
    found.mounts = [
        (mount.point, mount.device, mount.fstype, mount.options, "")
        for mount in parse_mountinfo(proc.read_text(proc.PROC / "self/mountinfo") or "")
        if mount.device.startswith("/dev/")
    ]
    found.devices = block_devices()
    return found


def cpu_count(pid: int | None) -> int:
    """CPUs the server may use: its affinity, cut to its cgroup's quota (rounded up)."""
    try:
        count = len(os.sched_getaffinity(pid or 0))
    except OSError:
        count = os.cpu_count() or 1
    if pid is not None:
        for name, value, _ in cgroup_facts(pid):
            quota, _, period = value.partition(" ")
            if name == "cgroup.cpu_max" and quota.isdigit() and period.isdigit() and int(period) > 0:
                count = min(count, max(1, -(-int(quota) // int(period))))
    return count


def _files() -> Iterator[Fact]:
    for name, path in FACTS:
        text = proc.read_text(path)
        if text is not None and text.strip():
            choice = CHOICE.search(text) if name.startswith("thp.") else None
            yield name, choice.group(1) if choice else " ".join(text.split()), path


def numa_nodes() -> list[Path]:
    """The directories of the NUMA nodes; none where the kernel was built without."""
    return sorted((proc.SYS / "devices/system/node").glob("node[0-9]*"))


def _computed() -> Iterator[Fact]:
    yield "host.name", platform.node(), "uname"
    yield "kernel.machine", platform.machine(), "uname"
    yield "cpu.count", str(os.cpu_count() or 1), "sysconf"
    cpuinfo = proc.read_text("/proc/cpuinfo") or ""
    for name, pattern in (("model", r"model name|Model"), ("microcode", "microcode")):
        if found := re.search(rf"^(?:{pattern})\s*:\s*(.+)$", cpuinfo, re.M):
            yield f"cpu.{name}", found.group(1).strip(), "/proc/cpuinfo"
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.M):
        yield "cpu.virtualised", "1", "/proc/cpuinfo"
    if nodes := numa_nodes():
        yield "numa.nodes", str(len(nodes)), "/sys/devices/system/node"
        for node in nodes:
            total = re.search(r"MemTotal:\s+(\d+) kB", proc.read_text(node / "meminfo") or "")
            if total:
                yield f"numa.{node.name}.memory_bytes", str(int(total.group(1)) * 1024), str(node / "meminfo")
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', proc.read_text("/etc/os-release") or "", re.M))
    if "PRETTY_NAME" in release:
        yield "os.name", release["PRETTY_NAME"], "/etc/os-release"
    yield from mitigations()
    yield from _moment()
    swaps = (proc.read_text("/proc/swaps") or "").splitlines()[1:]
    yield "swap.devices", str(len(swaps)), "/proc/swaps"


def _moment() -> Iterator[Fact]:
    """What is so now, and will not be for long."""
    if load := (proc.read_text("/proc/loadavg") or "").split():
        yield "load.average_1m", load[0], "/proc/loadavg"
    if up := (proc.read_text("/proc/uptime") or "").split():
        yield "host.uptime_s", up[0], "/proc/uptime"
    for zone in sorted((proc.SYS / "class/thermal").glob("thermal_zone*")):
        if (text := proc.read_text(zone / "temp")) is not None:
            yield f"temperature.{zone.name}", text.strip(), str(zone / "temp")


def _meminfo() -> Iterator[Fact]:
    for line in (proc.read_text("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name in _MEMINFO:
            fact, factor = _MEMINFO[name]
            yield fact, str(int(value.split()[0]) * factor), "/proc/meminfo"


def cgroup_facts(pid: int) -> Iterator[Fact]:
    """Limits of the server's control group, the nearest ancestor that sets one (version 2 first, else version 1)."""
    for line in (proc.read_text(proc.PROC / str(pid) / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield "cgroup.path", path, f"/proc/{pid}/cgroup"
            wanted = (
                ("cgroup.cpu_max", "cpu.max", "max"),
                ("cgroup.cpu_weight", "cpu.weight", "100"),
                ("cgroup.memory_max", "memory.max", "max"),
                ("cgroup.memory_high", "memory.high", "max"),
                ("cgroup.memory_swap_max", "memory.swap.max", "max"),
            )
            yield from _nearest(proc.SYS / "fs/cgroup", path, wanted)
        elif "memory" in controllers.split(","):
            limit = ("cgroup.memory_max", "memory.limit_in_bytes", "9223372036854771712")
            yield from _nearest(proc.SYS / "fs/cgroup/memory", path, (limit,))
        elif "cpu" in controllers.split(","):
            base = proc.SYS / "fs/cgroup" / controllers
            base = base if base.is_dir() else proc.SYS / "fs/cgroup/cpu"
            for _, quota, source in _nearest(base, path, (("", "cpu.cfs_quota_us", "-1"),)):
                period = (proc.read_text(Path(source).with_name("cpu.cfs_period_us")) or "").strip()
                if period:  # written as version 2 writes it
                    yield "cgroup.cpu_max", f"{'max' if quota == '-1' else quota} {period}", source


_IO_LIMITS = {"rbps": "read_bps", "wbps": "write_bps", "riops": "read_iops", "wiops": "write_iops"}  # as version 1 names them


def io_limits(pid: int) -> Iterator[Fact]:
    """Limits on what the server's control group and those above it may read and write, by device, as version 2 writes them."""
    found: dict[tuple[str, str], int] = {}
    sources = []
    for line in (proc.read_text(proc.PROC / str(pid) / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "blkio"):
            continue
        base = proc.SYS / "fs/cgroup" / controllers
        at = base / path.lstrip("/")
        for directory in [at, *at.parents][: len(at.relative_to(base).parts) + 1]:
            limits = [(name, directory / f"blkio.throttle.{file}_device") for name, file in _IO_LIMITS.items()]
            for name, file in limits if controllers else [("", directory / "io.max")]:
                for number, *values in (row.split() for row in (proc.read_text(file) or "").splitlines()):
                    sources.append(str(file))
                    for limit, _, value in ((f"{name}={text}" if name else text).partition("=") for text in values):
                        if value.isdigit():  # all of them hold, so the lowest does
                            key = (whole_device(number) or number, limit)
                            found[key] = min(found.get(key, int(value)), int(value))
    for device in dict.fromkeys(device for device, _ in found):
        limits_of = " ".join(f"{name}={found[device, name]}" for name in _IO_LIMITS if (device, name) in found)
        yield f"cgroup.io_max.{device}", limits_of, sources[0]


def _nearest(base: Path, path: str, wanted: tuple[tuple[str, str, str], ...]) -> Iterator[Fact]:
    for name, file, unlimited in wanted:
        at = base / path.lstrip("/")
        found: tuple[str, Path] | None = None
        while at == base or base in at.parents:
            text = proc.read_text(at / file)
            if text is not None:
                limited = text.split()[0] != unlimited
                if limited or found is None:
                    found = text.strip(), at / file
                if limited:
                    break
            if at == base:
                break
            at = at.parent
        if found is not None:
            yield name, found[0], str(found[1])


def _process_facts(pid: int) -> Iterator[Fact]:
    base = proc.PROC / str(pid)
    adjust = proc.read_text(base / "oom_score_adj")
    if adjust is not None:
        yield "postmaster.oom_score_adj", adjust.strip(), f"/proc/{pid}/oom_score_adj"
    for name, label in (("Max open files", "open_files"), ("Max processes", "processes"), ("Max core file size", "core_bytes")):
        for line in (proc.read_text(base / "limits") or "").splitlines():
            if line.startswith(name):
                yield f"postmaster.limit.{label}", line[len(name) :].split()[0], f"/proc/{pid}/limits"
