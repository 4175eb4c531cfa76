"""What the live tests of the findings share: a load on a test server, a capture of it, and what the rules make of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from conftest import Server, wait_until
from leadline.capture.making import Making
from leadline.capture.manifest import ProbeState, Target
from leadline.capture.reader import open_capture
from leadline.findings import Evaluation, Finding, all_findings, evaluate
from leadline.probes.take import take

SERVER_RULES = [d.id for d in all_findings() if 20 <= int(d.file[:4]) < 40]  # locks, pages, caches, WAL and I/O
WINDOW_S = 3.0
Step = Callable[[psycopg.Connection[Any], threading.Event], None]


def captured(
    server: Server, folder: Path, for_s: float, only: list[str] | None, thresholds: Mapping[str, float] | None = None, **options: Any
) -> Evaluation:
    """The rules of `only` (None: all) over a capture of the server. options: of take(). The capture stays in folder / live.leadline."""
    path = take(dsn=server.dsn, for_s=for_s, out=folder / "live.leadline", **options)
    capture = open_capture(path)
    try:
        assert capture.manifest.status == "complete"
        assert capture.manifest.probe("sessions").tier == options.get("tier", "shm")
        return evaluate(capture, only=only, thresholds=thresholds)
    finally:
        capture.close()


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    """Of the capture that `captured` left in a folder."""
    capture = open_capture(folder / "live.leadline")
    try:
        return capture.rows(sql)
    finally:
        capture.close()


def seconds_of(folder: Path, *events: str) -> tuple[float, float]:
    """Database time in these wait events, in lower case without underscores, and all of it, in the capture that `captured` left."""
    listed = ", ".join(f"'{event}'" for event in events)
    these = f"coalesce(sum(weight_s) filter (replace(lower(wait_event), '_', '') in ({listed})), 0)"
    [row] = rows(folder, f"select {these} as these, sum(weight_s) as all_s from db_time")
    return row["these"], row["all_s"]


def by_rule(result: Evaluation) -> dict[str, Finding]:
    assert result.not_evaluated == []
    assert len({f.id for f in result.findings}) == len(result.findings), [(f.id, f.subject) for f in result.findings]
    return {f.id: f for f in result.findings}


class Client(threading.Thread):
    """Repeats a step on a connection of its own until stopped. `done` counts the steps; `pid` is its backend."""

    def __init__(self, server: Server, name: str, step: Step, autocommit: bool = True) -> None:
        super().__init__(daemon=True)
        self.step, self.error, self.done = step, "", 0
        self.stop = threading.Event()
        self.db = server.connect(application_name=name, autocommit=autocommit)
        self.pid = self.db.info.backend_pid

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.step(self.db, self.stop)
                self.done += 1
        except psycopg.Error as e:
            self.error = "" if self.stop.is_set() else str(e)


@contextmanager
def clients(server: Server, *wanted: tuple[str, Step]) -> Iterator[list[Client]]:
    """Clients at work; at the end their statements are cancelled, and a client that failed by itself fails the test."""
    running = [Client(server, name, step) for name, step in wanted]
    try:
        for client in running:
            client.start()
        yield running
    finally:
        for client in running:
            client.stop.set()
        for client in running:
            if client.is_alive():
                server.sql("select pg_terminate_backend(%s)", [client.pid])
            client.join(10)
            client.db.close()
    assert [client.error for client in running if client.error] == []


@contextmanager
def sessions(server: Server) -> Iterator[Callable[[str], psycopg.Connection[Any]]]:
    """Connections by application name; at the end their statements are cancelled and they are closed."""
    made: list[psycopg.Connection[Any]] = []
    with ExitStack() as stack:

        def connect(name: str) -> psycopg.Connection[Any]:
            connection = server.connect(application_name=name)
            made.append(connection)
            stack.callback(connection.close)
            return connection

        try:
            yield connect
        finally:
            for connection in made:
                server.sql("select pg_terminate_backend(%s)", [connection.info.backend_pid])


@contextmanager
def waiting(connection: psycopg.Connection[Any], statement: str) -> Iterator[None]:
    """A statement that waits in a thread of its own; it ends when its session is terminated."""

    def run() -> None:
        try:
            connection.execute(statement)
        except psycopg.Error:
            return  # terminated while it waited

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        connection.cancel()
        thread.join(10)


@contextmanager
def storm(server: Server, folder: Path, statement: str, clients: int) -> Iterator[None]:
    """Clients that all run one statement over and over."""
    script = folder / "storm.sql"
    script.write_text(statement + ";\n")
    with server.pgbench("-c", clients, "-j", 1, "-T", 60, "-M", "prepared", "-f", script):
        query = "select count(*) >= %s from pg_stat_activity where application_name = 'pgbench' and state = 'active'"
        wait_until(lambda: server.sql(query, [clients // 2])[0][0], what="the load")
        yield


def wait_for_event(server: Server, event: str) -> None:
    """Until the server itself says that a session waits in this event. 17 changed the case of some names."""
    query = "select 1 from pg_stat_activity where lower(wait_event) = lower(%s)"
    wait_until(lambda: server.sql(query, [event]), timeout_s=20, what=f"a wait in {event}")


def planted(server: Server, folder: Path) -> Finding:
    """The only finding of all the rules of SERVER_RULES; anything else fails the test."""
    findings = by_rule(captured(server, folder, WINDOW_S, SERVER_RULES))
    assert len(findings) == 1, [f"{f.id} {f.subject}: {f.statement}" for f in findings.values()]
    return next(iter(findings.values()))


def wire_connections(folder: Path) -> list[dict[str, Any]]:
    """Those that a WireProbe wrote into a folder, which becomes a capture."""
    return wire_rows(folder, "wire_connection")


def wire_rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table that a WireProbe wrote into a folder, which becomes a capture."""
    making = Making(folder, Target("network", "lo"), {})
    making.manifest.probes["wire"] = ProbeState()
    making.end(None)
    capture = open_capture(folder)
    try:
        return capture.rows(f"from {table}")
    finally:
        capture.close()


def partitioned_events(server: Server, days: int) -> None:
    """A table with a partition for each day, and pg_stat_statements: a generic plan of it takes a while to make."""
    server.sql("create extension pg_stat_statements; create table event (id int, day int, words text) partition by range (day)")
    for day in range(days):
        server.sql(f"create table event_{day} partition of event for values from ({day}) to ({day + 1})")


def looks_at_events(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    """A prepared statement with a generic plan."""
    if db.execute("select current_setting('plan_cache_mode')").fetchall() != [("force_generic_plan",)]:
        db.execute("set plan_cache_mode = force_generic_plan")
    db.execute("select count(*) from event a join event b using (id) where a.words = 'x' and a.day = %s and b.day = 3", [7], prepare=True)
    stop.wait(0.002)


def changes_events(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    """Makes those who look plan again."""
    db.execute("alter table event alter words set default 'y'", prepare=False)
    stop.wait(0.2)


def read_in_parts(db: psycopg.Connection[Any], stop: threading.Event, pause: Callable[[], object]) -> None:
    """Takes the rows of a large table, and pauses after each 200 of them."""
    copy = db.pgconn
    assert copy.exec_(b"copy (select * from wide) to stdout").status == psycopg.pq.ExecStatus.COPY_OUT
    rows = 0
    while not stop.is_set() and copy.get_copy_data(0)[0] >= 0:
        rows += 1
        if rows % 200 == 0:
            pause()
