"""The same server after a restart: another process, perhaps at another port, on the same data directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from psycopg.conninfo import make_conninfo

from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog.connection import parse_dsn
from leadline.engines.postgres.target import Target
from leadline.errors import LeadlineError
from leadline.host import proc


class SameServer:
    """Finds the server of a target again. Of one on another host only the connection string says which it is."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._folder = None if target.pid is None else _folder_of(target.pid)
        self._port = self._port_of(target.pid)

    def now(self) -> Target:
        """The server as it runs now. Raises LeadlineError('gone') while it does not."""
        if self.target.pid is None:
            return self.target
        pid = next((pid for pid in self._candidates(self.target.pid) if self._is_it(pid)), None)
        if pid is None:
            raise LeadlineError("gone", "no server runs on the data directory", detail=self.target.data_dir or "")
        return replace(self.target, pid=pid, start_ticks=proc.start_ticks(pid), dsn=self._dsn(pid, self.target.dsn))

    def _candidates(self, before: int) -> Iterator[int]:
        noted = postmaster.read_pid_file(Path(self.target.data_dir)) if self.target.data_dir else None
        likely = [before] if noted is None else [before, noted.pid]
        yield from likely
        yield from postmaster.local_postmasters()  # looks at every process of the host

    def _is_it(self, pid: int) -> bool:
        return self._folder is not None and postmaster.postmaster_of(pid) == pid and _folder_of(pid) == self._folder

    def _dsn(self, pid: int, dsn: str | None) -> str | None:
        """The connection string with the server's present port, if it named the former one (and not that of a pooler)."""
        port = self._port_of(pid)
        if dsn is None or port is None or port == self._port:
            return dsn
        given = parse_dsn(dsn)
        named = str(given.get("port") or os.environ.get("PGPORT") or "5432")
        return make_conninfo(dsn, port=str(port)) if named == str(self._port) else dsn

    @staticmethod
    def _port_of(pid: int | None) -> int | None:
        found = None if pid is None else postmaster.read_pid_file(postmaster.data_path(pid))
        return found.port or None if found else None


def _folder_of(pid: int) -> tuple[int, int] | None:
    """The data directory, by what stays the same under every name and in every container."""
    try:
        found = postmaster.data_path(pid).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
