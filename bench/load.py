"""The load: one pgbench that runs on while the variants are switched, counted by its own progress lines.

The server's own counters would not do: a backend reports its commits at most once a second, which blurs a trial of a few
seconds. pgbench counts exactly, once a second, and stamps each line.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import psycopg
from leadline.engines.postgres.server.private import PrivateServer
from leadline.errors import LeadlineError
from processes import Child

PROGRESS = re.compile(r"progress: (\d+\.\d+) s, (\d+\.\d+) tps")
SCRIPTS = {"select": ["-S"], "tpcb": []}
PROTOCOLS = ("prepared", "simple")
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
END_OF_TIME_S = 86_400
SILENCE_S = 30.0


@dataclass(frozen=True)
class Workload:
    """script: select (pgbench -S) or tpcb (the default TPC-B-like one). protocol: how statements are sent."""

    script: str
    protocol: str

    @property
    def name(self) -> str:
        return f"{self.script}/{self.protocol}"


@dataclass(frozen=True)
class Progress:
    """One progress line: the stretch between two of them (Unix time, s) and its transactions."""

    from_s: float
    to_s: float
    tps: float

    @property
    def transactions(self) -> float:
        return self.tps * (self.to_s - self.from_s)


class Load:
    """pgbench against one server, from start() to end(). It can be paused, and then asks nothing of the server."""

    def __init__(self, server: PrivateServer, workload: Workload, clients: int) -> None:
        self.server, self.workload, self.clients = server, workload, clients
        self.paused = False
        program, *options = self.options(workload, clients)
        self._child = Child("pgbench", [str(server.bin_dir / program), *options, server.dsn])
        assert self._child.process.stderr is not None
        self._progress_fd = self._child.process.stderr.fileno()
        self._text = b""
        self._lines: deque[str] = deque()
        self._last_s: float | None = None

    @staticmethod
    def options(workload: Workload, clients: int) -> list[str]:
        """The command line without the server."""
        what = ["pgbench", *SCRIPTS[workload.script], "-M", workload.protocol, "-c", str(clients), "-j", "2"]
        return [*what, "-n", "-T", str(END_OF_TIME_S), "-P", "1", "--progress-timestamp"]

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def pause(self) -> None:
        self._child.pause()
        self.paused = True

    def resume(self) -> None:
        self._child.resume()
        self.paused = False

    def drain(self) -> None:
        """Passes over the lines that have come already."""
        while self._readable(0.0):
            self._read()
        while self._lines:
            self._parse(self._lines.popleft())

    def next_progress(self) -> Progress:
        """Waits for the next whole stretch. Raises LeadlineError('gone') when pgbench has ended or is silent."""
        while True:
            while self._lines:
                progress = self._parse(self._lines.popleft())
                if progress is not None:
                    return progress
            if not self._readable(SILENCE_S):
                raise LeadlineError("gone", f"pgbench reported nothing for {SILENCE_S:g} s")
            self._read()

    def end(self) -> None:
        self._child.end()

    def _readable(self, timeout_s: float) -> bool:
        return bool(select.select([self._progress_fd], [], [], timeout_s)[0])

    def _read(self) -> None:
        part = os.read(self._progress_fd, 65536)
        if not part:
            self._child.process.wait(5)
            raise LeadlineError("gone", "pgbench ended by itself", detail=" | ".join(list(self._lines)[-3:]))
        *whole, self._text = (self._text + part).split(b"\n")
        self._lines += [line.decode(errors="replace") for line in whole]

    def _parse(self, line: str) -> Progress | None:
        """None for the first line, whose beginning is not known, and for what is no progress line."""
        found = PROGRESS.match(line)
        if found is None:
            return None
        to_s, tps = float(found[1]), float(found[2])
        from_s, self._last_s = self._last_s, to_s
        return None if from_s is None else Progress(from_s, to_s, tps)


def fill(server: PrivateServer, scale: int) -> None:
    """Makes pgbench's tables, with what keeps them in memory."""
    log = server.base_dir / "pgbench-init.log"
    child = Child("pgbench -i", [str(server.bin_dir / "pgbench"), "-i", "-q", "-s", str(scale), server.dsn], output=log)
    try:
        code = child.process.wait()
    finally:
        child.end()
    if code != 0:
        raise LeadlineError("invalid", f"pgbench -i ended with code {code}", detail=child.last_words())
    execute(server, "create extension pg_prewarm")


def refresh(server: PrivateServer) -> None:
    """The same start for every comparison: no client left, no dead rows, nothing to write, everything in shared_buffers."""
    _wait_until_left(server)
    tables = ", ".join(TABLES)
    execute(server, "truncate pgbench_history", f"vacuum {tables}", "checkpoint")
    execute(server, "select pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')")


def _wait_until_left(server: PrivateServer) -> None:
    """A backend notices only after a moment that its pgbench has gone."""
    deadline = time.monotonic() + SILENCE_S
    while (left := fetch(server, "select count(*) from pg_stat_activity where application_name = 'pgbench'")[0][0]) != 0:
        if time.monotonic() > deadline:
            raise LeadlineError("invalid", f"{left} clients of pgbench are still connected")
        time.sleep(0.02)


def execute(server: PrivateServer, *statements: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def fetch(server: PrivateServer, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()
