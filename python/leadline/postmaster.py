"""A PostgreSQL server on this host as /proc shows it: which process is its postmaster, where its data directory is.

Nothing here talks to the server. A process of another user may hide its links; what cannot be read is None.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
SERVER_COMMS = ("postgres", "postmaster")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def read_text(path: Path | str) -> str | None:
    """The text of a small file; None when it is absent or may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return None


def status_fields(pid: int) -> dict[str, str]:
    """Lines of /proc/PID/status by name; empty when there is no such process."""
    text = read_text(PROC / str(pid) / "status") or ""
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def is_server(pid: int) -> bool:
    """The process runs the PostgreSQL server program (a postmaster or one of its children)."""
    comm = read_text(PROC / str(pid) / "comm")
    return comm is not None and comm.strip() in SERVER_COMMS


def parent_of(pid: int) -> int:
    return int(status_fields(pid).get("PPid", "0") or 0)


def postmaster_of(pid: int) -> int | None:
    """The postmaster above a server process, or itself; None when it is no server process."""
    if not is_server(pid):
        return None
    parent = parent_of(pid)
    while parent and is_server(parent):
        pid, parent = parent, parent_of(parent)
    return pid


def local_postmasters() -> list[int]:
    """Every postmaster this user can see, by pid."""
    return [pid for pid in all_pids() if is_server(pid) and not is_server(parent_of(pid))]


def all_pids() -> list[int]:
    return sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def pid_in_namespace(pid: int) -> int:
    """The pid the process has in its own pid namespace: what a server in a container calls itself."""
    inner = status_fields(pid).get("NSpid", "").split()
    return int(inner[-1]) if inner else pid


def children_by_inner_pid(pid: int) -> dict[int, int]:
    """The children of a postmaster: the pid the server knows -> the pid on this host. They differ in containers."""
    listed = read_text(PROC / str(pid) / "task" / str(pid) / "children")
    pids = all_pids() if listed is None else [int(child) for child in listed.split()]
    return {pid_in_namespace(child): child for child in pids if listed is not None or parent_of(child) == pid}


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: with the pid it names one process for good."""
    stat = read_text(PROC / str(pid) / "stat")
    if stat is None:
        return None
    return int(stat.rpartition(")")[2].split()[19])  # field 22; the name in field 2 may hold blanks


def start_unix_s(pid: int) -> float | None:
    """When the process started, in seconds since 1970 by the present wall clock."""
    ticks = start_ticks(pid)
    boot = next((line.split()[1] for line in (read_text(PROC / "stat") or "").splitlines() if line.startswith("btime ")), None)
    return None if ticks is None or boot is None else int(boot) + ticks / _CLOCK_TICKS


def uid_of(pid: int) -> int | None:
    uid = status_fields(pid).get("Uid", "").split()
    return int(uid[0]) if uid else None


def data_dir_of(pid: int) -> str | None:
    """The data directory as the server names it: a postmaster's working directory. None when the link may not be read."""
    try:
        return str((PROC / str(pid) / "cwd").readlink())
    except OSError:
        return None


def data_path(pid: int) -> Path:
    """A path under which this process can reach the server's data directory, through containers too."""
    return PROC / str(pid) / "cwd"


def root_path(pid: int, path: str) -> Path:
    """A path of the server's own file tree, as seen from here."""
    return PROC / str(pid) / "root" / path.lstrip("/")


class PidFile(NamedTuple):
    """postmaster.pid: the server's own note of who it is. port 0 and socket_dir '' until it listens."""

    pid: int
    data_dir: str
    port: int
    socket_dir: str


def read_pid_file(data_dir: Path) -> PidFile | None:
    """The parsed postmaster.pid of a data directory; None when there is none, it may not be read or is damaged."""
    text = read_text(data_dir / "postmaster.pid")
    if text is None:
        return None
    lines = [line.strip() for line in text.splitlines()] + [""] * 6
    if not lines[0].lstrip("-").isdigit():
        return None
    return PidFile(abs(int(lines[0])), lines[1], int(lines[3]) if lines[3].isdigit() else 0, lines[4])


def find_by_data_dir(data_dir: Path) -> int | None:
    """The postmaster whose working directory this is (compared by inode, so containers and bind mounts count too)."""
    pid_file = read_pid_file(data_dir)
    candidates = ([pid_file.pid] if pid_file else []) + local_postmasters()
    for pid in candidates:
        try:
            if postmaster_of(pid) == pid and data_path(pid).samefile(data_dir):
                return pid
        except OSError:
            continue
    return None


def find_by_backend(backend_pid: int, backend_start_s: float) -> int | None:
    """The postmaster of the backend that serves a connection; None when that backend is not on this host.

    backend_pid: as the server reports it, in its own pid namespace. backend_start_s: as the server reports it, unix seconds.
    Both must fit: the same pid on another host is common, with the same start it is not.
    """
    for pid in [backend_pid, *all_pids()]:
        if not is_server(pid) or pid_in_namespace(pid) != backend_pid:
            continue
        started = start_unix_s(pid)
        if started is not None and abs(started - backend_start_s) < 2.0:
            return postmaster_of(pid)
    return None
