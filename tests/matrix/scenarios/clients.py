"""What clients do to themselves and to the server: round trips, slow reading, connections, more work than CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
from conftest import background
from host_changes import control_group
from live import read_in_parts

from matrix.ground import Ground, Stopwatch, Tally
from matrix.scenario import Expected, Truth, scenario


@scenario()
def chatty_transactions(g: Ground) -> Iterator[Truth]:
    """Transactions of twenty short statements, with a pause of the client after each. The server works for hardly any of their time."""
    g.table("account", 200)
    watch = Stopwatch()

    def talk(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction(), watch.on():
            for n in range(20):
                db.execute("select v from account where id = %s", [100 + n])
                stop.wait(0.01)

    g.repeat("orm", talk, 2)
    yield lambda: [Expected("CHATTY-APP", "application orm from local", watch.within(g.window))]


@scenario()
def slow_reader_of_a_large_result(g: Ground) -> Iterator[Truth]:
    """A client of COPY TO pauses after each 200 rows: the server waits for it."""
    g.sql("create table wide as select n, repeat('x', 200) as t from generate_series(1, 50000) n")
    watch = Stopwatch()

    def read_slowly(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        def pause() -> None:
            with watch.on():
                stop.wait(0.1)

        read_in_parts(db, stop, pause)

    (client,) = g.begin("export", read_slowly)
    g.wait_for("application_name = 'export' and wait_event = 'ClientWrite'")
    yield lambda: [
        Expected("SLOW-CLIENT", "application export from local", watch.within(g.window), (f"pid {client.pid}", "copy"), "medium")
    ]


@scenario()
def cursor_read_in_small_parts(g: Ground) -> Iterator[Truth]:
    """A cursor of which five rows are fetched at a time, with a pause of the client after each."""
    g.table("account", 20000)
    watch = Stopwatch()

    def fetch(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction(), watch.on():
            db.execute("declare few no scroll cursor for select * from account")
            while not stop.is_set() and db.execute("fetch forward 5 from few").fetchall():
                stop.wait(0.01)

    (client,) = g.begin("etl", fetch)
    g.wait_for("application_name = 'etl' and query like 'fetch%'")
    yield lambda: [Expected("FETCH-SIZE", "application etl from local", watch.within(g.window), (f"pid {client.pid}", "fetch forward"))]


@scenario(window_s=4.0)
def connections_that_live_a_moment(g: Ground) -> Iterator[Truth]:
    """Clients connect for each of their statements."""
    tally = Tally()

    def come_and_go(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with g.server.connect(application_name="php") as short:
            tally.count()
            short.execute("select 1")
            stop.wait(0.05)

    g.repeat("starter", come_and_go, 4)
    yield lambda: [Expected("CONN-STORM", "application php from local")]


@scenario(settings={"max_connections": 20})
def sessions_near_the_limit(g: Ground) -> Iterator[Truth]:
    """Fifteen of seventeen places for ordinary users are taken."""
    for _ in range(15):
        g.connect("web")
    yield lambda: [Expected("CONN-NEAR-LIMIT", "max_connections", None, ("of the 17 slots", "15 of application web"))]


@scenario(busy=True, window_s=5.0)
def more_work_than_cpus(g: Ground) -> Iterator[Truth]:
    """Six sessions for each CPU compute. The truth is what the scheduler counts for their processes."""
    cpus = len(os.sched_getaffinity(0))

    def compute(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select count(*) from generate_series(1, 40000)")

    pids = [client.pid for client in g.repeat("report", compute, 6 * cpus)]
    queue = g.run_queue(pids)
    yield lambda: [
        Expected("CPU-STARVED", "CPUs of the host", queue(), severity="high"),
        Expected("AAS-SATURATED", "server", severity="medium"),
        Expected("RUNQ-PRESSURE", "CPUs of the host", None, ("postgres",), "high"),
    ]


@scenario(busy=True, window_s=5.0, beside=("AAS-SATURATED",))
def strangers_take_the_cpus(g: Ground) -> Iterator[Truth]:
    """Three loops for each CPU that have nothing to do with the server, beside two sessions that compute."""
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: [0 for _ in range(100000)]"
    for _ in range(3 * len(os.sched_getaffinity(0))):
        g.stack.enter_context(background([sys.executable, "-c", loop], stdout=subprocess.DEVNULL))

    def compute(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select count(*) from generate_series(1, 20000)")

    queue = g.run_queue([client.pid for client in g.repeat("report", compute, 2)])
    yield lambda: [Expected("CPU-STARVED", "CPUs of the host", queue(), severity="high")]


@scenario(busy=True, window_s=5.0)
def processes_that_end_at_once(g: Ground) -> Iterator[Truth]:
    """Something beside the server starts a process every few milliseconds."""
    code = "import ctypes, os, time\nctypes.CDLL(None).prctl(15, b'cronloop')\n"
    code += "while True:\n    os.waitpid(os.posix_spawn('/bin/true', ['/bin/true'], {}), 0); time.sleep(0.002)"
    g.stack.enter_context(background([sys.executable, "-c", code], stdout=subprocess.DEVNULL))
    yield lambda: [Expected("PROCESS-CHURN", "short processes of cronloop", None, ("true",))]


@scenario(busy=True, window_s=7.0, thresholds={"quota_min_s": 3}, beside=("CPU-STARVED", "AAS-SATURATED"))
def server_at_its_cpu_quota(g: Ground) -> Iterator[Truth]:
    """The server's control group may use a fifth of a CPU, and its sessions compute."""
    group = g.stack.enter_context(control_group("cpu", "20000", "cpu.cfs_quota_us", "cpu.max"))
    processes = group / "cgroup.procs"
    # Before the group goes, its processes leave it.
    g.stack.callback(lambda: [(group.parent / "cgroup.procs").write_text(pid) for pid in processes.read_text().split()])
    processes.write_text(str(g.server.pid))

    def compute(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select count(*) from generate_series(1, 20000)")

    g.repeat("report", compute, 4)
    yield lambda: [
        Expected("CGROUP-CPU-THROTTLE", "CPU quota of the control group", None, ("0.20 CPUs",), "medium"),
        Expected("CGROUP-THROTTLED", f"CPU quota of control group /{group.name}", None, ("0.20 CPUs",), "high"),
    ]


@scenario()
def two_chatty_applications(g: Ground) -> Iterator[Truth]:
    """Two applications with pauses of different lengths: each has its own cost."""
    g.table("account", 200)
    watches = {"fast": Stopwatch(), "far": Stopwatch()}

    def talker(watch: Stopwatch, pause_s: float) -> Any:
        def talk(db: psycopg.Connection[Any], stop: threading.Event) -> None:
            with db.transaction(), watch.on():
                for n in range(10):
                    db.execute("update account set v = v + 1 where id = %s", [100 + n + (50 if pause_s > 0.02 else 0)])
                    stop.wait(pause_s)

        return talk

    g.repeat("fast", talker(watches["fast"], 0.01))
    g.repeat("far", talker(watches["far"], 0.05))
    yield lambda: [Expected("CHATTY-APP", f"application {name} from local", watch.within(g.window)) for name, watch in watches.items()]


@scenario()
def slow_reader_of_rows(g: Ground) -> Iterator[Truth]:
    """A client in single-row mode works on each part of a SELECT before it reads on, beside one that reads fast."""
    g.sql("create table wide as select n, repeat('x', 1000) as t from generate_series(1, 20000) n")
    watch = Stopwatch()

    def read_slowly(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.pgconn.send_query(b"select * from wide")
        db.pgconn.set_single_row_mode()
        rows = 0
        with watch.on():  # the server needs no time to speak of
            while (result := db.pgconn.get_result()) is not None:
                result.clear()
                rows += 1
                if rows % 1000 == 0 and not stop.is_set():
                    stop.wait(0.4)

    def read_fast(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select * from wide limit 100").fetchall()
        stop.wait(0.05)

    g.begin("etl", read_slowly)
    g.begin("web", read_fast)
    g.wait_for("application_name = 'etl' and wait_event = 'ClientWrite'")
    yield lambda: [Expected("SLOW-CLIENT", "application etl from local", watch.within(g.window), ("select * from wide",), "medium")]


@scenario(beside=("TOP-WAIT",))
def loader_that_reads_its_source_slowly(g: Ground) -> Iterator[Truth]:
    """COPY FROM STDIN whose client pauses after each hundred rows: the server waits for it inside the statement."""
    g.sql("create table events (id int, t text)")
    watch = Stopwatch()
    lines = "".join(f"{n}\t{'x' * 100}\n" for n in range(100)).encode()

    def load(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.cursor().copy("copy events from stdin") as copy, watch.on():  # the server needs no time to speak of
            while not stop.is_set():
                copy.write(lines)
                stop.wait(0.05)

    g.begin("etl", load)
    g.wait_for("application_name = 'etl' and wait_event = 'ClientRead' and state = 'active'")
    subject = "COPY into events by application etl from local"
    yield lambda: [Expected("SLOW-LOADER", subject, watch.within(g.window), severity="medium")]


@scenario(majors=(14, 15, 16, 17, 18), busy=True, beside=("AAS-SATURATED", "TOP-WAIT"))
def statement_without_its_index(g: Ground) -> Iterator[Truth]:
    """A client looks up a few rows of a table without an index on their column. The truth is its own clock."""
    g.sql("create table orders as select n, n % 20000 as customer, repeat('x', 100) as t from generate_series(1, 100000) n")
    g.sql("vacuum analyze orders")
    watch = Stopwatch()

    def look(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with watch.on():
            db.execute("select t from orders where customer = %s", [17]).fetchall()
        stop.wait(0.01)

    g.repeat("shop", look)
    yield lambda: [Expected("MISSING-INDEX", "table public.orders", watch.within(g.window))]
