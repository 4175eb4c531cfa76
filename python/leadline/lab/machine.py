"""What an experiment ran on: the machine, its load, the build of leadline, and the CPU time that a hypervisor took away."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read_environment(repository: Path | None = None, measured: Sequence[str] = ()) -> dict[str, Any]:
    """The machine and the build; read it before anything is started.

    repository: of the source that is measured; its commit is noted, and which of the paths `measured` differ from it.
    """
    from leadline.version import version

    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "load_average_before": list(os.getloadavg()),
        "cpu": model[1] if model else platform.processor(),
        "cpus": os.cpu_count(),
        "memory_bytes": int(memory[1]) * 1024 if memory else None,
        "hypervisor": "hypervisor" in cpuinfo,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "commit": git(repository, "rev-parse", "HEAD"),
        "uncommitted": [line[3:] for line in (git(repository, "status", "--porcelain", "--", *measured) or "").splitlines()],
        "leadline": version(),
        "core_sha256": core_digest(),
        "python": platform.python_version(),
        "user_is_root": os.geteuid() == 0,
    }


def git(repository: Path | None, *arguments: str) -> str | None:
    """What git says of the repository; None without one, without git, or when git fails."""
    if repository is None or shutil.which("git") is None:
        return None
    answer = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False)
    return answer.stdout.rstrip("\n") if answer.returncode == 0 else None


def core_digest() -> str:
    """Which build of the extension is installed."""
    from leadline import _core

    return hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()


def machine_cpu() -> tuple[int, int]:
    """(all time, time stolen by the hypervisor) of all CPUs since boot, in clock ticks."""
    with open("/proc/stat", encoding="utf-8") as stat:
        user_to_steal = [int(n) for n in stat.readline().split()[1:9]]
    return sum(user_to_steal), user_to_steal[7]


def steal_share(since: tuple[int, int], now: tuple[int, int] | None = None) -> float:
    """Share of all CPU time between two readings of machine_cpu that the hypervisor gave to others. now: read here if not given."""
    (total, stolen), (total_before, stolen_before) = now or machine_cpu(), since
    return (stolen - stolen_before) / max(1, total - total_before)
