"""Files of /proc and /sys: small reads, and what they say of one process. What cannot be read is None or empty."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path

from leadline.host.files import read_text as read_text

PROC = Path("/proc")
SYS = Path("/sys")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@functools.cache
def boot_id() -> str:
    """Which start of the host this is; empty where the kernel does not say."""
    return (read_text(PROC / "sys/kernel/random/boot_id") or "").strip()


def status_fields(pid: int) -> dict[str, str]:
    """Lines of /proc/PID/status by name; empty when there is no such process."""
    text = read_text(PROC / str(pid) / "status") or ""
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def parent_of(pid: int) -> int:
    return int(status_fields(pid).get("PPid", "0") or 0)


def all_pids() -> list[int]:
    return sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def pid_in_namespace(pid: int) -> int:
    """The pid the process has in its own pid namespace: what a server in a container calls itself."""
    inner = status_fields(pid).get("NSpid", "").split()
    return int(inner[-1]) if inner else pid


def is_namespaced(pid: int) -> bool:
    """Whether the process has another pid in its own pid namespace than here."""
    return len(status_fields(pid).get("NSpid", "").split()) > 1


def private_bytes(pid: int) -> int | None:
    """Resident memory of the process that is neither shared nor of a file. From statm: the kernel fills in its other files for longer."""
    pages = (read_text(f"/proc/{pid}/statm") or "").split()
    return (int(pages[1]) - int(pages[2])) * _PAGE_BYTES if len(pages) > 2 else None


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: with the pid it names one process for good."""
    stat = read_text(PROC / str(pid) / "stat")
    if stat is None:
        return None
    return int(stat.rpartition(")")[2].split()[19])  # field 22; the name in field 2 may hold blanks


def lives(pid: int, start: int | None) -> bool:
    """Whether the process that began then (`start_ticks`) still runs; one that only waits for its parent to look does not."""
    stat = (read_text(PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
    return len(stat) > 19 and stat[0] not in ("Z", "X") and start in (None, int(stat[19]))


def cpu_s(pid: int) -> float | None:
    """For how long the process has run on a CPU."""
    fields = (read_text(PROC / str(pid) / "schedstat") or "").split()
    return int(fields[0]) / 1e9 if fields else None


def kernel_s(pid: int) -> float | None:
    """For how long the process has run in the kernel, to a clock tick."""
    stat = (read_text(PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
    return int(stat[12]) / _CLOCK_TICKS if len(stat) > 12 else None  # field 15


def start_unix_s(pid: int) -> float | None:
    """When the process started, in seconds since 1970 by the present wall clock."""
    ticks = start_ticks(pid)
    boot = next((line.split()[1] for line in (read_text(PROC / "stat") or "").splitlines() if line.startswith("btime ")), None)
    return None if ticks is None or boot is None else int(boot) + ticks / _CLOCK_TICKS


def in_our_network(pid: int) -> bool:
    """Whether the process is in our network namespace; true where that cannot be seen."""
    try:
        return (PROC / str(pid) / "ns/net").readlink() == (PROC / "self/ns/net").readlink()
    except OSError:
        return True


def uid_of(pid: int) -> int | None:
    uid = status_fields(pid).get("Uid", "").split()
    return int(uid[0]) if uid else None


def root_path(pid: int, path: str) -> Path:
    """A path of the server's own file tree, as seen from here."""
    return PROC / str(pid) / "root" / path.lstrip("/")


def descendants(pids: Iterable[int]) -> set[int]:
    """These processes, and those that have descended from them and still run."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        children.setdefault(parent_of(pid), []).append(pid)
    found, waiting = set(), list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found
