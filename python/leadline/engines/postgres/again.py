"""The same server after a restart: another process, perhaps at another port, on the same data directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from psycopg.conninfo import make_conninfo

from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog.connection import parse_dsn
from leadline.engines.postgres.target import PostgresServer
from leadline.errors import LeadlineError
from leadline.host import proc


class Replaced(LeadlineError):
    """Another server, with other data, runs where the server ran."""


class SameServer:
    """Finds the server of a target again. Of one on another host only the connection string says which it is."""

    def __init__(self, target: PostgresServer) -> None:
        self.target = target
        self._directory = None if target.pid is None else _directory_of(target.pid)
        self._noted = _noted_by(target.pid)
        self._in_our_network = target.pid is not None and proc.in_our_network(target.pid)

    def now(self) -> PostgresServer:
        """The server as it runs now. Raises LeadlineError('gone') while it does not, and Replaced while another one has its place."""
        if self.target.pid is None:
            return self.target
        pid = next((pid for pid in self._candidates(self.target.pid) if self._is_it(pid)), None)
        if pid is None:
            self._look_for_another()
            raise LeadlineError("gone", "no server runs on the data directory", detail=self.target.data_dir or "")
        return replace(self.target, pid=pid, start_ticks=proc.start_ticks(pid), dsn=self._dsn(pid, self.target.dsn))

    def _candidates(self, before: int) -> Iterator[int]:
        noted = postmaster.read_pid_file(Path(self.target.data_dir)) if self.target.data_dir else None
        likely = [before] if noted is None else [before, noted.pid]
        yield from likely
        yield from postmaster.local_postmasters()  # looks at every process of the host

    def _is_it(self, pid: int) -> bool:
        return self._directory is not None and postmaster.postmaster_of(pid) == pid and _directory_of(pid) == self._directory

    def _look_for_another(self) -> None:
        """Raises Replaced: clients reach another server at the address, as after an upgrade into a data directory of its own."""
        before = self._noted
        if before is None or not before.port or not self._in_our_network:
            return
        for pid in postmaster.local_postmasters():
            now = _noted_by(pid)
            if now is None or now.port != before.port or not proc.in_our_network(pid):
                continue
            if now.socket_dir == before.socket_dir != "" or (now.listens_on_tcp and before.listens_on_tcp):
                version = (proc.read_text(postmaster.data_path(pid) / "PG_VERSION") or "").strip() or "of unknown version"
                raise Replaced("gone", f"PostgreSQL {version} runs in its place", detail=f"postmaster {pid}, {now.data_dir}")

    def _dsn(self, pid: int, dsn: str | None) -> str | None:
        """The connection string with the server's present port, if it named the former one (and not that of a pooler)."""
        now = _noted_by(pid)
        before = self._noted.port if self._noted else 0
        if dsn is None or now is None or now.port in (0, before):
            return dsn
        given = parse_dsn(dsn)
        named = str(given.get("port") or os.environ.get("PGPORT") or "5432")
        return make_conninfo(dsn, port=str(now.port)) if named == str(before) else dsn


def _noted_by(pid: int | None) -> postmaster.PidFile | None:
    return None if pid is None else postmaster.read_pid_file(postmaster.data_path(pid))


def _directory_of(pid: int) -> tuple[int, int] | None:
    """The data directory, by what stays the same under every name and in every container."""
    try:
        found = postmaster.data_path(pid).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
