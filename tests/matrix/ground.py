"""What a scenario stands on: a server of its own, sessions on it, and clocks of what its clients themselves see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from conftest import Server, wait_until
from leadline.capture.reader import Capture
from leadline.engines.postgres.server.private import PrivateServer
from live import Client, storm


@dataclass
class Window:
    """The time that a capture covers: ns on CLOCK_MONOTONIC."""

    ts_from: int
    ts_to: int

    @property
    def seconds(self) -> float:
        return (self.ts_to - self.ts_from) / 1e9


@dataclass
class Stopwatch:
    """Spans of time by the clock of clients, which is that of captures. Several threads may run it at once."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    running: dict[object, int] = field(default_factory=dict)

    @contextmanager
    def on(self) -> Iterator[None]:
        key = object()
        self.running[key] = time.monotonic_ns()
        try:
            yield
        finally:
            self.spans.append((self.running.pop(key), time.monotonic_ns()))

    def within(self, window: Window) -> float:
        """Seconds of all spans that lie in the window."""
        spans = [*self.spans, *((begun, window.ts_to) for begun in list(self.running.values()))]
        return sum(max(0, min(end, window.ts_to) - max(begin, window.ts_from)) for begin, end in spans) / 1e9


@dataclass
class Tally:
    """Events by the clock of clients."""

    times: list[int] = field(default_factory=list)

    def count(self) -> None:
        self.times.append(time.monotonic_ns())

    def within(self, window: Window) -> int:
        return sum(window.ts_from <= ts <= window.ts_to for ts in self.times)


Step = Callable[[psycopg.Connection[Any], threading.Event], None]


class Ground:
    """A server for one scenario. Everything made through it ends with it, also what waits."""

    def __init__(self, server: Server, folder: Path, stack: ExitStack) -> None:
        self.server, self.folder, self.stack = server, folder, stack
        self.target: PrivateServer = server.private  # what is captured
        self.options: dict[str, Any] = {}  # of take(), beside the usual ones
        self.begun = threading.Event()
        self.ended = threading.Event()
        self._window: Window | None = None
        self._statements: dict[str, int] = {}
        self._opened: list[psycopg.Connection[Any]] = []
        self._threads: list[threading.Thread] = []
        self._clients: list[Client] = []
        stack.callback(self._end)

    @property
    def major(self) -> int:
        return self.server.major

    @property
    def window(self) -> Window:
        assert self._window is not None, "the capture has not ended"
        return self._window

    def captured(self, capture: Capture) -> None:
        clock = capture.manifest.clock
        assert clock is not None and clock.ts_to is not None
        self._window = Window(clock.ts_from, clock.ts_to)
        self._statements = {row["query"]: row["statement_id"] for row in capture.rows("select query, statement_id from statement")}

    def statement(self, part: str) -> str:
        """The subject of a finding on the statement of the capture that contains this text."""
        (number,) = {number for query, number in self._statements.items() if query and part in query}
        return f"statement {number}"

    def sql(self, query: str, parameters: Any = None) -> list[Any]:
        return self.server.sql(query, parameters)

    def connect(self, name: str, **arguments: Any) -> psycopg.Connection[Any]:
        connection = self.server.connect(application_name=name, **arguments)
        self._opened.append(connection)
        return connection

    def table(self, name: str, rows: int = 1) -> str:
        """A table of two integers, the key counted from 1. Gives its name with the schema."""
        self.sql(f"create table {name} (id int primary key, v int)")
        self.sql(f"insert into {name} select n, 0 from generate_series(1, {rows}) n")
        return f"public.{name}"

    def start(self, connection: psycopg.Connection[Any], statement: str, watch: Stopwatch | None = None) -> Stopwatch:
        """Runs a statement in a thread. The watch runs from when it is sent to when it ends, or is ended."""
        watch = watch or Stopwatch()

        def run() -> None:
            try:
                with watch.on():
                    connection.execute(statement)
            except psycopg.Error:
                return  # ended with its session

        self._thread(run)
        return watch

    def blocked(self, name: str, statement: str, watch: Stopwatch | None = None, **arguments: Any) -> tuple[int, Stopwatch]:
        """A session whose statement waits for a lock by now: its pid, and the watch of its waiting."""
        connection = self.connect(name, **arguments)
        pid = connection.info.backend_pid
        watch = self.start(connection, statement, watch)
        self.wait_for(f"pid = {pid} and wait_event_type = 'Lock'")
        return pid, watch

    def wait_for(self, condition: str, number: int = 1) -> None:
        """Until so many sessions of pg_stat_activity are so."""
        query = f"select count(*) from pg_stat_activity where {condition}"
        with self.server.connect(application_name="test") as db:
            wait_until(lambda: db.execute(query).fetchone()[0] >= number, what=f"{number} sessions with {condition}")  # type: ignore[index]

    def begin(self, name: str, step: Step, clients: int = 1, server: Server | None = None) -> list[Client]:
        """Clients that repeat a step. server: another than that of the scenario."""
        made = [Client(server or self.server, name, step) for _ in range(clients)]
        self._clients += made
        for client in made:
            client.start()
        return made

    def repeat(self, name: str, step: Step, clients: int = 1, server: Server | None = None) -> list[Client]:
        """Clients that repeat a step, when each has done it once."""
        made = self.begin(name, step, clients, server)
        wait_until(lambda: all(client.done or client.error for client in made), what=f"the first step of every client of {name}")
        return made

    def storm(self, statement: str, clients: int) -> None:
        """pgbench with a statement."""
        folder = self.folder / f"storm{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        self.stack.enter_context(storm(self.server, folder, statement, clients))

    def later(self, after_s: float, action: Callable[[], Any]) -> None:
        """Does something so long after the capture has begun."""

        def run() -> None:
            if self.begun.wait(60) and not self.ended.wait(after_s):
                action()

        self._thread(run)

    def run_queue(self, pids: list[int]) -> Callable[[], float]:
        """Seconds in the window in which these processes or threads were ready to run but had no CPU, by the scheduler's own count."""
        return self.growth(lambda: sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in pids) / 1e9)

    def asleep(self, pids: list[int]) -> Callable[[], float]:
        """Seconds in the window in which these processes neither ran nor were ready to, by the scheduler's own count."""

        def busy() -> float:
            return sum(sum(map(int, Path(f"/proc/{pid}/schedstat").read_text().split()[:2])) for pid in pids) / 1e9

        grown = self.growth(busy)
        return lambda: len(pids) * self.window.seconds - grown()

    def pids(self, name: str) -> list[int]:
        """The sessions of this application."""
        return [pid for (pid,) in self.sql("select pid from pg_stat_activity where application_name = %s", [name])]

    def counter(self, query: str) -> Callable[[], float]:
        """How much a number of the server grows in the window."""
        return self.growth(lambda: float(self.sql(query)[0][0]))

    def growth(self, now: Callable[[], float]) -> Callable[[], float]:
        """How much a number grows in the window, as it does evenly: it is read when the window begins and when it is asked for."""
        first: list[tuple[int, float]] = []
        self.later(0, lambda: first.append((time.monotonic_ns(), now())))

        def total() -> float:
            [(ts, before)] = first
            seconds = (time.monotonic_ns() - ts) / 1e9
            return (now() - before) * self.window.seconds / seconds

        return total

    def _thread(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self, clients: list[Client]) -> None:
        """Ends these now: what they wait for is about to end."""
        for client in clients:
            client.stop.set()
            self.sql("select pg_terminate_backend(%s)", [client.pid])
        for client in clients:
            client.join(10)

    def _end(self) -> None:
        self.begun.set()
        self.ended.set()
        for client in self._clients:
            client.stop.set()
        pids = "pid <> pg_backend_pid() and backend_type = 'client backend'"
        self.sql(f"select pg_terminate_backend(pid) from pg_stat_activity where {pids}")
        for thread in [*self._threads, *self._clients]:
            thread.join(10)
        for connection in [*self._opened, *(client.db for client in self._clients)]:
            connection.close()
        errors = [client.error for client in self._clients if client.error]
        assert errors == [], errors
