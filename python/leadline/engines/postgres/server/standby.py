"""A standby of a private server: a copy of its cluster that streams from it, and is gone with the `with` block as well."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from leadline.engines.postgres.server.private import PrivateServer
from leadline.errors import LeadlineError

STREAMS_WITHIN_S = 60.0
STARTED = "select pid from pg_stat_activity where backend_type = 'startup'"
STREAMS = """
select 1 from pg_stat_replication where state = 'streaming' and backend_start > %s
and (sync_state <> 'async' or current_setting('synchronous_standby_names') = '')
"""


class Standby(PrivateServer):
    """Made while the primary is stopped for a moment. The primary's WAL must not lie in a directory of its own.

    settings: on top of those of the primary. data_dir: where it is made, as of any private server.
    """

    def __init__(self, primary: PrivateServer, settings: Mapping[str, object] | None = None, data_dir: str | Path | None = None) -> None:
        super().__init__(primary.bin_dir, data_dir, {"primary_conninfo": primary.dsn} | dict(settings or {}))
        self.primary = primary

    def _initdb(self) -> None:
        self.primary.stop()
        try:
            subprocess.run(["cp", "-a", f"{self.primary.data_dir}/.", str(self.data_dir)], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as e:
            said = e.stderr.decode(errors="replace").strip() if isinstance(e, subprocess.CalledProcessError) else str(e)
            raise LeadlineError("storage", "the primary cannot be copied to make a standby", detail=said[-300:]) from e
        finally:
            self.primary.start()
        signal_file = self.data_dir / "standby.signal"
        signal_file.touch()
        self.user.own(signal_file)

    @property
    def startup_pid(self) -> int:
        """Of the process that replays WAL. Raises LeadlineError."""
        row = ask(self, STARTED)
        if row is None:
            raise LeadlineError("gone", "the standby has no startup process")
        return int(row[0])

    def follow(self, conninfo: str, within_s: float = STREAMS_WITHIN_S) -> None:
        """Streams from there from now on, over a connection of its own. Raises LeadlineError if it does not come about."""
        since = ask(self.primary, "select clock_timestamp()")
        text = conninfo.replace("'", "''")
        for statement in (f"alter system set primary_conninfo = '{text}'", "select pg_reload_conf()"):
            ask(self, statement)
        self._until_streaming(since, within_s)

    def until_streaming(self, within_s: float = STREAMS_WITHIN_S) -> None:
        """Also as a synchronous standby, where the primary waits for one. Raises LeadlineError."""
        self._until_streaming(("-infinity",), within_s)

    def _until_streaming(self, since: Any, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        with psycopg.connect(self.primary.dsn, autocommit=True, connect_timeout=10) as connection:
            while connection.execute(STREAMS, since).fetchone() is None:
                if time.monotonic() > deadline:
                    raise self._failed(f"the standby does not stream within {within_s:g} s")
                time.sleep(0.02)


def ask(server: PrivateServer, statement: str) -> Any:
    """The first row, if there is one. Raises LeadlineError."""
    try:
        with psycopg.connect(server.dsn, autocommit=True, connect_timeout=10) as connection:
            found = connection.execute(statement.encode())
            return found.fetchone() if found.description else None
    except psycopg.Error as e:
        raise LeadlineError("query", "a private server does not answer", detail=" ".join(str(e).split())) from e
