"""Backups of a private server as tar archives, by a real pg_basebackup, with a tablespace."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from conftest import no_oracle
from leadline.engines.postgres.server.binaries import host_dirs, wheel_dirs
from recovery import ChecksummedServer

SETTINGS = {"wal_level": "replica", "max_wal_senders": 4, "autovacuum": False, "fsync": False, "full_page_writes": True}


@dataclass(frozen=True)
class Source:
    """A running server. table, spaced: paths in its data directory of a table in the default tablespace, and of one in another."""

    server: ChecksummedServer
    table: str
    spaced: str

    def take(self, folder: Path, *options: str, tools: Path | None = None) -> Path:
        """tools: where pg_basebackup is, if not beside the server."""
        line = [str((tools or self.server.bin_dir) / "pg_basebackup"), "-d", self.server.dsn, "-c", "fast", "-D", str(folder), *options]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return folder


def tool_dir(major: int) -> Path:
    """Where a pg_basebackup is that takes backups of a server of this major: that of the host or of the wheel of 18."""
    found = [found for found in (*host_dirs(), *wheel_dirs()) if found.major >= major and (found.bin_dir / "pg_basebackup").exists()]
    if not found:
        no_oracle(f"no pg_basebackup of {major} or later")
    return found[0].bin_dir


@contextmanager
def source() -> Iterator[Source]:
    """Of 15, which has every compression that pg_basebackup knows."""
    found = [found for found in host_dirs() if found.major == 15]
    if not found:
        no_oracle("no PostgreSQL 15 of this host")
    with ChecksummedServer(found[0].bin_dir, settings=SETTINGS) as server:
        space = server.data_dir.parent / "space"
        space.mkdir()
        server._server_user().own(space)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("create table t as select i as n, repeat('x', 100) as v from generate_series(1, 5000) i")
            connection.execute(f"create tablespace elsewhere location '{space}'")
            connection.execute("create table s tablespace elsewhere as select i as n from generate_series(1, 2000) i")
            connection.execute("vacuum freeze t, s")
            paths = [connection.execute("select pg_relation_filepath(%s)", [name]).fetchone() for name in ("t", "s")]
        yield Source(server, *(path[0] for path in paths if path))
