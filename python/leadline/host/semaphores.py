"""The sets of System V semaphores of this host, as /proc/sysvipc/sem lists them for our own IPC namespace."""

from __future__ import annotations

from collections.abc import Collection

from leadline.host import proc

Row = tuple[int, int, int, int, int]  # columns of table semaphore_set


def semaphore_sets(pids: Collection[int], ts: int) -> list[Row]:
    """Every set; none where these processes are in other IPC namespaces, in which the same id is another set."""
    own = _namespace("self")
    if not any(_namespace(pid) == own for pid in pids):
        return []
    rows = []
    for line in (proc.read_text(proc.PROC / "sysvipc" / "sem") or "").splitlines()[1:]:
        key, semid, _, count, uid, *_ = map(int, line.split())
        rows.append((ts, semid, key & 0xFFFFFFFF, count, uid))
    return rows


def _namespace(pid: int | str) -> str | None:
    try:
        return str((proc.PROC / str(pid) / "ns" / "ipc").readlink())
    except OSError:
        return None
