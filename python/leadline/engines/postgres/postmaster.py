"""A PostgreSQL server on this host as /proc shows it: which process is its postmaster, where its data directory is.

Nothing here talks to the server. A process of another user may hide its links; what cannot be read is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from leadline.host.proc import PROC, all_pids, is_namespaced, parent_of, pid_in_namespace, read_text, start_unix_s

SERVER_COMMS = ("postgres", "postmaster")


def is_server(pid: int) -> bool:
    """The process runs the PostgreSQL server program (a postmaster or one of its children)."""
    comm = read_text(PROC / str(pid) / "comm")
    return comm is not None and comm.strip() in SERVER_COMMS


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


def children_by_inner_pid(pid: int) -> dict[int, int]:
    """The children of a postmaster: the pid the server knows -> the pid on this host. They differ in containers."""
    listed = read_text(PROC / str(pid) / "task" / str(pid) / "children")
    if listed is None:
        return {pid_in_namespace(child): child for child in all_pids() if parent_of(child) == pid}
    pids = [int(child) for child in listed.split()]
    return {pid_in_namespace(child): child for child in pids} if is_namespaced(pid) else dict(zip(pids, pids))


def data_dir_of(pid: int) -> str | None:
    """The data directory as the server names it: a postmaster's working directory. None when the link may not be read."""
    try:
        return str((PROC / str(pid) / "cwd").readlink())
    except OSError:
        return None


def data_path(pid: int) -> Path:
    """A path under which this process can reach the server's data directory, through containers too."""
    return PROC / str(pid) / "cwd"


class PidFile(NamedTuple):
    """postmaster.pid: the server's own note of who it is. port 0 and socket_dir '' until it listens; address '' without TCP."""

    pid: int
    data_dir: str
    port: int
    socket_dir: str
    address: str = ""

    @property
    def listens_on_tcp(self) -> bool:
        return bool(self.address and self.port)


def read_pid_file(data_dir: Path) -> PidFile | None:
    """The parsed postmaster.pid of a data directory; None when there is none, it may not be read or is damaged."""
    text = read_text(data_dir / "postmaster.pid")
    if text is None:
        return None
    lines = [line.strip() for line in text.splitlines()] + [""] * 6
    if not lines[0].lstrip("-").isdigit():
        return None
    return PidFile(abs(int(lines[0])), lines[1], int(lines[3]) if lines[3].isdigit() else 0, lines[4], lines[5])


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


def stored_paths(pid: int) -> Iterator[tuple[str, str]]:
    """What the server stores where, links followed within its own file tree."""
    data_dir = data_dir_of(pid)
    if data_dir is None:
        return
    yield "data", data_dir
    data = data_path(pid)
    yield "wal", _link(data / "pg_wal") or f"{data_dir}/pg_wal"
    try:
        spaces = sorted((data / "pg_tblspc").iterdir())
    except OSError:
        spaces = []
    for space in spaces:
        target = _link(space)
        if target:
            yield f"tablespace {space.name}", target
    yield "temp", f"{data_dir}/base/pgsql_tmp"


def _link(path: Path) -> str | None:
    try:
        target = str(path.readlink())
    except OSError:
        return None
    return target if target.startswith("/") else None
