"""What to measure: from a connection string, a pid or a data directory to one server.

A server on this host has a postmaster pid and can be read from outside; any other is reachable over SQL only.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from leadline.capture import manifest
from leadline.engines.live import named_with
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog.connection import Connection, connect, parse_dsn, safe_dsn
from leadline.errors import LeadlineError
from leadline.figures import one_line
from leadline.host import proc
from leadline.host.facts import cpu_count


@dataclass(frozen=True)
class PostgresServer:
    """One server.

    kind: pid, dsn or data_dir, as the user named it. pid: its postmaster on this host; None for a remote server.
    dsn: how to connect, with its secrets, never to be shown; None when the user gave none. notes: what the user should know.
    """

    kind: str
    pid: int | None = None
    data_dir: str | None = None
    dsn: str | None = field(default=None, repr=False)
    server_version_num: int | None = None
    server_version: str | None = None
    start_ticks: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def safe_dsn(self) -> str | None:
        return None if self.dsn is None else safe_dsn(self.dsn)

    def describe(self) -> str:
        """One line for people."""
        if self.pid is not None:
            return f"postmaster {self.pid}" + (f", {self.data_dir}" if self.data_dir else "")
        return self.safe_dsn or "the server that the PG* environment names"

    def evidence(self) -> manifest.Target:
        """What the manifest says of this server before a probe has asked it more."""
        detail = {"named_by": self.kind, "dsn": self.safe_dsn, "data_dir": self.data_dir, "max_connections": None}
        cpus = cpu_count(self.pid) if self.pid is not None else None
        return manifest.Target("postgres", self.describe(), self.pid, cpus, self.server_version, self.server_version_num, detail)

    @property
    def engine(self) -> str:
        return "postgres"

    def named_by(self) -> dict[str, Any]:
        return {"kind": self.kind, "pid": self.pid, "data_dir": self.data_dir, "dsn": self.safe_dsn}

    def stored_paths(self) -> Iterator[tuple[str, str]]:
        """What the server stores where."""
        return iter(()) if self.pid is None else postmaster.stored_paths(self.pid)

    def port(self) -> int:
        """Of a server on this host. Raises LeadlineError when it is not known, or when the server does not listen on TCP."""
        if self.pid is None:
            raise LeadlineError("usage", "the server does not run on this host", hint="take the capture on the server's host")
        found = postmaster.read_pid_file(postmaster.data_path(self.pid))
        if found is None:
            hint = "run as the owner of the files (often postgres), or as root"
            raise LeadlineError("rights", "cannot tell the server's port: its postmaster.pid cannot be read", hint=hint)
        if not found.listens_on_tcp:
            raise LeadlineError("usage", "the server does not listen on TCP", "Unix sockets have no packets and no windows")
        return found.port

    def is_running(self) -> bool:
        """The same postmaster still runs; always true for a remote server, whose connection tells."""
        return self.pid is None or proc.lives(self.pid, self.start_ticks)


_SERVER_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGPORT")  # of libpq: any of them names a server


def resolve(dsn: str | None = None, pid: int | None = None, data_dir: str | Path | None = None) -> PostgresServer:
    """Finds the server that was named in one or more ways. Raises LeadlineError.

    With nothing named, libpq's environment counts (PGHOST, PGSERVICE, ...). A connection string beside a pid or a data directory is
    for names and counters only; both must be the same server.
    """
    if pid is not None and data_dir is not None:
        raise LeadlineError("usage", "a pid and a data directory were both given", hint="name the server in one way only")
    if pid is not None:
        local = _resolve_pid(pid)
    elif data_dir is not None:
        local = _resolve_data_dir(Path(data_dir))
    elif dsn is not None or any(name in os.environ for name in _SERVER_VARIABLES):
        return _resolve_dsn(dsn or "")
    else:
        raise LeadlineError("usage", "no server was named", hint=_servers_here())
    if dsn is None:
        return local
    over_sql = _resolve_dsn(dsn)
    if over_sql.pid != local.pid:
        raise LeadlineError(
            "usage",
            "the connection string leads to another server than the process",
            detail=f"{over_sql.safe_dsn} is {over_sql.describe()}, the process is {local.describe()}",
            hint="remove one of them",
        )
    return PostgresServer(
        local.kind, local.pid, local.data_dir, dsn, over_sql.server_version_num, over_sql.server_version, local.start_ticks,
        local.notes + over_sql.notes,
    )  # fmt: skip


def resolve_text(text: str) -> PostgresServer:
    """The server a person named with one word: a pid, a data directory, else a connection string."""
    return resolve(*named_with(text))


def socket_dsn(target: PostgresServer) -> str | None:
    """A connection string for the server's own unix socket, from its postmaster.pid; None when that is not readable.

    The user is PGUSER, else the user the server runs as when we are root, else libpq's default. Tries nothing.
    """
    if target.pid is None:
        return None
    found = postmaster.read_pid_file(postmaster.data_path(target.pid))
    if found is None and target.data_dir is not None:
        found = postmaster.read_pid_file(Path(target.data_dir))
    if found is None or not found.port:
        return None
    host = str(proc.root_path(target.pid, found.socket_dir)) if found.socket_dir else "127.0.0.1"
    if found.socket_dir and Path(found.socket_dir).is_dir():
        host = found.socket_dir
    parameters = {"host": host, "port": str(found.port), "dbname": os.environ.get("PGDATABASE", "postgres")}
    if os.geteuid() == 0 and "PGUSER" not in os.environ:
        parameters["user"] = "postgres"
    return make_conninfo("", **parameters)


def _resolve_pid(pid: int) -> PostgresServer:
    found = postmaster.postmaster_of(pid)
    if found is None:
        if not (proc.PROC / str(pid)).exists():
            raise LeadlineError("not_found", f"no process with pid {pid}", hint=_servers_here(), where=f"pid {pid}")
        name = (proc.read_text(proc.PROC / str(pid) / "comm") or "?").strip()
        raise LeadlineError(
            "not_found",
            f"process {pid} is not a PostgreSQL server",
            detail=f"it runs {name}; the postmaster and its children run postgres",
            hint=_servers_here(),
            where=f"pid {pid}",
        )
    notes = () if found == pid else (f"process {pid} is a child of the server; its postmaster is {found}",)
    return PostgresServer("pid", found, postmaster.data_dir_of(found), None, None, None, proc.start_ticks(found), notes)


def _resolve_data_dir(data_dir: Path) -> PostgresServer:
    where = str(data_dir)
    if not data_dir.is_dir():
        raise LeadlineError("not_found", "no such data directory", hint=_servers_here(), where=where)
    try:
        is_data_dir = (data_dir / "PG_VERSION").exists()
    except PermissionError:
        raise LeadlineError(
            "rights",
            "cannot read the data directory",
            detail=f"it belongs to uid {data_dir.stat().st_uid}, this process runs as uid {os.geteuid()}",
            hint=f"run leadline as its owner: sudo -u '#{data_dir.stat().st_uid}' leadline ...",
            where=where,
        ) from None
    if not is_data_dir:
        raise LeadlineError("not_found", "this is not a data directory: it has no PG_VERSION", hint=_servers_here(), where=where)
    pid = postmaster.find_by_data_dir(data_dir)
    if pid is None:
        stale = postmaster.read_pid_file(data_dir)
        detail = "it has no postmaster.pid" if stale is None else f"its postmaster.pid names process {stale.pid}, which is not its server"
        raise LeadlineError("not_found", "no server runs on this data directory", detail=detail, hint=_servers_here(), where=where)
    return PostgresServer("data_dir", pid, str(data_dir.resolve()), None, None, None, proc.start_ticks(pid))


def _resolve_dsn(dsn: str) -> PostgresServer:
    parse_dsn(dsn)
    try:
        conn = connect(dsn)
    except LeadlineError as error:
        # Even a server without a free slot tells over its unix socket which process listens there.
        pid = _listener_of_socket(dsn) if "connection slot" in error.message else None
        if pid is None:
            raise
        note = f"no SQL connection: {error.message} ({error.detail})"
        return PostgresServer("dsn", pid, postmaster.data_dir_of(pid), dsn, None, None, proc.start_ticks(pid), (note,))
    with conn:
        return _target_of(conn, dsn)


_WHO_SQL = """
select current_setting('server_version_num')::int, current_setting('server_version'), pg_backend_pid(),
       (select extract(epoch from backend_start)::float8 from pg_stat_activity where pid = pg_backend_pid()),
       (select setting from pg_settings where name = 'data_directory')
"""


def _target_of(conn: Connection, dsn: str) -> PostgresServer:
    try:
        row = conn.execute(_WHO_SQL).fetchone()
    except psycopg.Error as e:
        raise LeadlineError("connection", "cannot identify the server", detail=one_line(str(e)), where=safe_dsn(dsn)) from e
    assert row is not None
    version_num, version, backend_pid, backend_start, data_dir = row
    pid = _postmaster_at(_peer_pid(conn.fileno()))
    if pid is None and backend_start is not None:
        pid = postmaster.find_by_backend(backend_pid, backend_start)
    notes: tuple[str, ...] = ()
    if pid is None:
        notes = ("the server does not run on this host, or its processes cannot be seen from here",)
    else:
        data_dir = data_dir or postmaster.data_dir_of(pid)
    return PostgresServer("dsn", pid, data_dir, dsn, version_num, version, None if pid is None else proc.start_ticks(pid), notes)


def _peer_pid(fd: int) -> int:
    """Who listens at the other end of a unix socket (SO_PEERCRED); 0 for TCP or a process in an outer namespace."""
    with socket.socket(fileno=os.dup(fd)) as s:
        if s.family != socket.AF_UNIX:
            return 0
        pid: int = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid


def _postmaster_at(pid: int) -> int | None:
    return postmaster.postmaster_of(pid) if pid > 0 else None


def _listener_of_socket(dsn: str) -> int | None:
    given = parse_dsn(dsn)
    host = given.get("host") or os.environ.get("PGHOST") or ""
    port = given.get("port") or os.environ.get("PGPORT") or "5432"
    directories = [host] if host.startswith("/") else ["/var/run/postgresql", "/tmp"] if not host else []
    for directory in directories:
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(f"{directory}/.s.PGSQL.{port}")
            except OSError:
                continue
            pid = _postmaster_at(_peer_pid(s.fileno()))
            if pid is not None:
                return pid
    return None


def _servers_here() -> str:
    """A hint that lists the servers of this host."""
    found = [
        f"--pid {pid}" + (f" ({postmaster.data_dir_of(pid)})" if postmaster.data_dir_of(pid) else "")
        for pid in postmaster.local_postmasters()
    ]
    if not found:
        return "no PostgreSQL server is to be seen on this host; for another host give a connection string"
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return "servers on this host: " + ", ".join(found[:4]) + more
