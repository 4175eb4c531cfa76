"""What a run finds around it: facts of the host, the files it was given, what it has made. What cannot be read is left out."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from typing import Any, NamedTuple

from leadline.book.redact import redact_text
from leadline.host.cpu_faults import mitigations
from leadline.host.storage import storage_facts

# Names as in the table host_fact of a capture.
FACTS = (
    ("kernel.release", "/proc/sys/kernel/osrelease"),
    ("kernel.version", "/proc/sys/kernel/version"),
    ("clock.source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("cpu.online", "/sys/devices/system/cpu/online"),
    ("cpu.governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("thp.enabled", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("vm.swappiness", "/proc/sys/vm/swappiness"),
    ("vm.overcommit_memory", "/proc/sys/vm/overcommit_memory"),
    ("vm.dirty_ratio", "/proc/sys/vm/dirty_ratio"),
    ("vm.dirty_background_ratio", "/proc/sys/vm/dirty_background_ratio"),
    ("cgroup.cpu_max", "/sys/fs/cgroup/cpu.max"),
    ("cgroup.memory_max", "/sys/fs/cgroup/memory.max"),
    ("dmi.product_name", "/sys/class/dmi/id/product_name"),
)
KEPT_TEXT = 64 << 10  # bytes of a file that are kept
READ_AT_MOST = 4 << 20  # bytes of a file that a run was given that are read for a hash
HASHED_AT_MOST = 4 << 30  # bytes of what a run made
MOST_FILES = 10_000


def read_text(path: str, most: int = 1 << 16) -> str:
    """A small file, or its first bytes; empty if it cannot be read. (leadline.host.proc does the same with pathlib.)"""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, most).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def process() -> dict[str, Any]:
    """What names this process for good, on this host since it was started."""
    ticks = read_text("/proc/self/stat").rpartition(")")[2].split()
    boot = read_text("/proc/sys/kernel/random/boot_id").strip()
    return {"pid": os.getpid(), "pid_start": int(ticks[19]) if ticks else None, "boot": boot}


def facts() -> dict[str, str]:
    out = {name: value.strip() for name, path in FACTS if (value := read_text(path))}
    out["cpu.usable"] = str(len(os.sched_getaffinity(0)))
    out["memory.total_bytes"] = str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    release = read_text("/etc/os-release").partition("PRETTY_NAME=")[2]
    out["os.name"] = release.partition("\n")[0].strip('"')
    out["python.version"] = sys.version.partition(" ")[0]
    out["limit.open_files"] = str(os.sysconf("SC_OPEN_MAX"))
    if model := re.search(r"^(?:model name|Model)\s*:\s*(.+)$", read_text("/proc/cpuinfo", 4096), re.MULTILINE):
        out["cpu.model"] = model[1].strip()
    out |= {name: value for name, value, _ in mitigations()}
    with contextlib.suppress(OSError):  # the directory may be gone
        out |= {name: value for name, value, _ in storage_facts("self", [("work", os.getcwd())], ("work",))}
    return out


def file_event(path: str) -> dict[str, Any] | None:
    """What is known of a file that a run was given: path, size, time, hash, and its text where it is small. None: it is no file."""
    try:
        at = os.stat(path)
        if not stat.S_ISREG(at.st_mode):
            return None
        out: dict[str, Any] = {"path": os.path.abspath(path), "size": at.st_size, "modified": at.st_mtime_ns // 1000}
        if at.st_size > READ_AT_MOST:
            return out
        with open(path, "rb") as file:
            body = file.read(READ_AT_MOST)
    except OSError:
        return None
    out["hash"] = _sha256(body)
    if len(body) <= KEPT_TEXT and b"\0" not in body:
        out["text"] = redact_text(body.decode("utf-8", "replace"))
    return out


class Evidence(NamedTuple):
    """What a run made: hash is the SHA-256 of a file, or of the listing of a directory, which has the hash and name of each file in it.

    hash: None if there is too much to read; then the size alone tells whether it was changed.
    """

    size: int
    hash: str | None
    listing: str | None = None


def evidence(path: str, *, read: bool = True) -> Evidence | None:
    """Of a file, or of all files in a directory; None if nothing is there. Reads all of it: about a second for each gigabyte."""
    most = HASHED_AT_MOST if read else -1
    try:
        if not os.path.isdir(path):
            size = os.stat(path).st_size
            return Evidence(size, file_hash(path) if size <= most else None)
        files = sorted(_files(path))
        size = sum(os.stat(file).st_size for file in files)
        if size > most or len(files) > MOST_FILES:
            return Evidence(size, None)
        listing = "".join(f"{file_hash(file)} {os.path.relpath(file, path)}\n" for file in files)
    except OSError:
        return None
    return Evidence(size, _sha256(listing.encode("utf-8", "surrogateescape")), listing)


def file_hash(path: str | os.PathLike[str]) -> str:
    """Raises OSError. A pipe or device has none: it is not opened."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return _sha256(b"")
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(directory: str) -> list[str]:
    paths = [os.path.join(where, name) for where, _, names in os.walk(directory) for name in names]
    return [path for path in paths if os.path.isfile(path)]


def _sha256(body: bytes) -> str:
    import hashlib  # loads OpenSSL, which takes longer than to record a run that has no files

    return hashlib.sha256(body).hexdigest()
