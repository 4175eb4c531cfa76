"""The memory that each process of a server has for itself. /proc/PID/status costs some microseconds, and everybody may read it."""

from __future__ import annotations

import time

from leadline.host import proc

LIMIT = 5000  # processes


def of_sessions(postmaster: int) -> list[tuple[int, str, str, str, str, float]]:
    """Rows of table server_stat, by the pid that the server knows: the children of the postmaster that still run.

    private_bytes is a lower bound: anonymous memory, resident and swapped out, beyond that of the postmaster, from which a session
    inherits pages that it may still share; and the page tables.
    """
    ts = time.monotonic_ns()
    inherited = _anonymous(proc.status_fields(postmaster)) or 0
    children = proc.read_text(proc.PROC / str(postmaster) / "task" / str(postmaster) / "children") or ""
    rows = []
    for pid in children.split()[:LIMIT]:
        status = proc.status_fields(int(pid))
        anonymous, names = _anonymous(status), status.get("NSpid", pid).split()
        if anonymous is not None and names:
            private = max(0, anonymous - inherited) + _bytes(status, "VmPTE")
            rows.append((ts, "after", "proc_status", names[-1], "private_bytes", float(private)))
    return rows


def _anonymous(status: dict[str, str]) -> int | None:
    """None of a process that has ended."""
    return _bytes(status, "RssAnon") + _bytes(status, "VmSwap") if "RssAnon" in status else None


def _bytes(status: dict[str, str], name: str) -> int:
    number, _, unit = status.get(name, "").partition(" ")
    return int(number) * 1024 if number.isdigit() and unit == "kB" else 0
