"""Plants incidents of 20 s into a quiet load, and asks what `leadline record` has told of each: which cause, after how long.

    python bench/incidents.py > incidents.json            ten kinds, about 45 minutes
    python bench/incidents.py --quiet 3600 --between 280  the same after an hour without any
    python bench/incidents.py --quiet 60 --between 30 --kinds lock_chain       does everything work?

The recorder runs with its defaults, in a directory that was empty: for the first quarter of an hour it learns what is usual. A kind
counts as told if an event names one of the causes that were fixed before, and as told in time if that was within 90 s of its beginning. An
event that begins in no incident and not within 90 s of its end is false. Output: JSON, and a table on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.recorder.status import status
from record import read_environment, start_as_installed

CLIENTS = 6
TOLD_S = 90.0
SEEN_WITHIN_S = 10.0  # what an incident begins with
SETTINGS: dict[str, object] = {
    "max_connections": 100, "shared_buffers": "64MB", "max_wal_size": "1GB", "work_mem": "64kB", "log_min_messages": "fatal",
}  # fmt: skip
OF_THE_HOST = {
    "RUNQ-PRESSURE", "CPU-STARVED", "CPU-STEAL", "INTERRUPT-LOAD", "PROCESS-CHURN", "AAS-SATURATED", "DEVICE-SATURATED", "CGROUP-THROTTLED",
}  # fmt: skip
BIG_ROWS = 1_500_000
Step = Callable[[psycopg.Connection[Any], threading.Event], None]


class Clients:
    """Sessions that repeat a step, each in a thread, until they are stopped."""

    def __init__(self, server: PrivateServer) -> None:
        self.server, self._stop = server, threading.Event()
        self._threads: list[threading.Thread] = []
        self._open: list[psycopg.Connection[Any]] = []

    def start(self, name: str, step: Step, number: int = 1, *, connect: bool = True) -> None:
        for n in range(number):
            db = psycopg.connect(self.server.dsn, autocommit=True, application_name=name if number == 1 else f"{name} {n}")
            if connect:
                self._open.append(db)
            thread = threading.Thread(target=self._run, args=(db, step), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self, db: psycopg.Connection[Any], step: Step) -> None:
        with suppress(psycopg.Error):  # it was cancelled at the end
            while not self._stop.is_set():
                step(db, self._stop)

    def until(self, condition: str) -> None:
        """Waits for a session of pg_stat_activity that is so."""
        deadline = time.monotonic() + SEEN_WITHIN_S
        with psycopg.connect(self.server.dsn, autocommit=True) as admin:
            while not admin.execute(f"select from pg_stat_activity where {condition}".encode()).rowcount:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no session where {condition}")

    def stop(self) -> None:
        self._stop.set()
        with psycopg.connect(self.server.dsn, autocommit=True) as admin:
            for db in self._open:
                admin.execute("select pg_terminate_backend(%s)", [db.info.backend_pid])
        for thread in self._threads:
            thread.join(10)
        for db in self._open:
            db.close()


def quiet(db: psycopg.Connection[Any], stop: threading.Event) -> None:
    """A short transaction, then a pause."""
    db.execute("update account set v = v + 1 where id = 1 + (random() * 9999)::int")
    db.execute("select count(*) from account where id between 100 and 600")
    stop.wait(0.05)


def lock_chain(clients: Clients) -> None:
    """A transaction leaves a row locked; eight sessions want it."""

    def hold(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("begin")
        db.execute("update one set v = v + 1 where id = 1")
        stop.wait()
        db.execute("rollback")

    clients.start("forgotten", hold)
    clients.until("application_name = 'forgotten' and state = 'idle in transaction'")
    clients.start("victim", lambda db, stop: _ran(db, "update one set v = v + 1 where id = 1"), 8)


def hot_row(clients: Clients) -> None:
    """Twelve sessions update one row in a row, and keep it for 10 ms each time."""

    def update(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            db.execute("update one set v = v + 1 where id = 2")
            db.execute("select pg_sleep(0.01)")

    clients.start("counter", update, 12)


def connection_storm(clients: Clients) -> None:
    """Sessions that connect, ask one thing and go, one after the other."""

    def come_and_go(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with psycopg.connect(clients.server.dsn, application_name="storm") as short:
            short.execute("select 1")

    clients.start("storms", come_and_go, 6)


def slow_client(clients: Clients) -> None:
    """Five sessions ask for a large result and read it slowly."""

    def read(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.cursor() as cursor, cursor.copy("copy (select * from big) to stdout") as copy:
            for n, _ in enumerate(copy):
                if n % 200 == 0 and stop.wait(0.1):
                    return

    clients.start("reader", read, 5)


def cpu_starved(clients: Clients) -> None:
    """Eight processes of others take both CPUs, while eight sessions compute."""
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        clients_ended(clients, process)
    clients.start("reports", lambda db, stop: _ran(db, "select sum(sqrt(n)) from generate_series(1, 200000) n"), 8)


def table_lock(clients: Clients) -> None:
    """A long transaction reads a table, ALTER TABLE waits for it, and all others wait for that."""

    def read(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("begin")
        db.execute("select count(*) from few")
        stop.wait()
        db.execute("rollback")

    clients.start("analyst", read)
    clients.until("application_name = 'analyst' and state = 'idle in transaction'")
    clients.start("migration", lambda db, stop: _ran(db, "alter table few add column c int"))
    clients.until("application_name = 'migration' and wait_event_type = 'Lock'")
    clients.start("web", lambda db, stop: _ran(db, "select count(*) from few"), 8)


def spilled_sorts(clients: Clients) -> None:
    """Six sessions sort what work_mem does not hold."""
    clients.start("sorter", lambda db, stop: _ran(db, "select count(*) from (select * from big order by t, id desc offset 10) x"), 6)


def slow_loader(clients: Clients) -> None:
    """Four sessions load a table, and have little to send."""

    def load(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.cursor() as cursor, cursor.copy("copy loaded from stdin") as copy:
            while not stop.wait(0.05):
                copy.write_row((1, "x"))

    clients.start("loader", load, 4)


def advisory(clients: Clients) -> None:
    """A job keeps an advisory lock that six workers want."""

    def keep(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        db.execute("select pg_advisory_lock(7)")
        stop.wait()

    clients.start("job", keep)
    clients.until("application_name = 'job' and state = 'idle' and query like '%pg_advisory_lock%'")
    clients.start("worker", lambda db, stop: _ran(db, "select pg_advisory_lock(7)"), 6)


def chatty(clients: Clients) -> None:
    """Six sessions send many small statements in long transactions, and think a little after each."""

    def talk(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        with db.transaction():
            for _ in range(200):
                db.execute("select v from account where id = 1 + (random() * 9999)::int")
                if stop.wait(0.005):
                    return

    clients.start("orm", talk, 6)


CAUSES = {
    lock_chain: {"BLOCK-CHAIN"},
    connection_storm: {"CONN-STORM"},
    cpu_starved: {"CPU-STARVED", "RUNQ-PRESSURE", "AAS-SATURATED"},
    slow_client: {"SLOW-CLIENT"},
    hot_row: {"ROW-HOTSPOT", "LOCK-CONVOY"},
    table_lock: {"DDL-QUEUE"},
    spilled_sorts: {"TEMP-SPILL", "READ-IO"},
    slow_loader: {"SLOW-LOADER"},
    advisory: {"BLOCK-CHAIN"},
    chatty: {"CHATTY-APP"},
}
KINDS = {plant.__name__: plant for plant in CAUSES}


def _ran(db: psycopg.Connection[Any], sql: str) -> None:
    db.execute(sql)


_others: dict[int, list[subprocess.Popen[bytes]]] = {}


def clients_ended(clients: Clients, process: subprocess.Popen[bytes]) -> None:
    _others.setdefault(id(clients), []).append(process)


@dataclass
class Planted:
    """One incident, and what was told of it. began, ended: ns since 1970. told_s: from its beginning; None if it was not told."""

    kind: str
    causes: list[str]
    began: int
    ended: int = 0
    told_s: float | None = None
    told: str = ""
    unusual_s: float | None = None
    unusual: str = ""
    capture: str = ""
    beside: list[str] = field(default_factory=list)


@contextmanager
def planted(server: PrivateServer, kind: str) -> Iterator[Planted]:
    clients = Clients(server)
    found = Planted(kind, sorted(CAUSES[KINDS[kind]]), time.time_ns())
    try:
        KINDS[kind](clients)
        yield found
    finally:
        for process in _others.pop(id(clients), []):
            process.kill()
            process.wait()
        clients.stop()
        found.ended = time.time_ns()


def at_ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1e9)


def judge(incidents: list[Planted], events: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Fills in what was told of each; gives the false events, and those about the host, where others may be at work."""
    false, of_the_host = [], []
    for event in events:
        if event["change"] == "over":
            continue
        at = at_ns(event["at"]) + 10**9  # whole seconds
        name = f"{event['id']} {event['subject']}"
        # What is unusual may be the cost of a rule: it names the cause as well.
        rule = event["id"] if event["id"] != "UNUSUAL" else event["subject"].removeprefix("cost of ")
        near = [i for i in incidents if i.began <= at <= i.ended + TOLD_S * 1e9]
        of = next((i for i in near if rule in i.causes), near[-1] if near else None)
        if of is None:
            (of_the_host if rule in OF_THE_HOST else false).append(f"{event['at']} {event['change']} {name}: {event['statement']}")
            continue
        after_s = round((at - of.began) / 1e9, 1)
        if rule in of.causes and of.told_s is None:
            of.told_s, of.told = after_s, name
        elif event["id"] == "UNUSUAL" and of.unusual_s is None:
            of.unusual_s, of.unusual, of.capture = after_s, f"{event['subject']}: {event['statement']}", event.get("capture", "")
        else:
            of.beside.append(f"{after_s} s: {event['change']} {name}")
    return false, of_the_host


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(options: argparse.Namespace, server: PrivateServer, to: Path) -> dict[str, Any]:
    with psycopg.connect(server.dsn, autocommit=True) as db:
        for name, rows in (("account", 10_000), ("one", 2), ("few", 100), ("big", options.rows)):
            db.execute(f"create table {name} as select n as id, 0 as v, md5(n::text) as t from generate_series(1, {rows}) n")
            db.execute(f"create unique index on {name} (id)")
        db.execute("create table loaded (n int, t text)")
        db.execute("vacuum analyze")
    words = ["record", server.dsn, "--to", str(to), "--keep-free", "100MB"]
    with ExitStack() as stack:
        load = Clients(server)
        stack.callback(load.stop)
        load.start("shop", quiet, CLIENTS)
        recorder = subprocess.Popen([sys.executable, "-m", "leadline", *words], stderr=subprocess.DEVNULL)
        stack.callback(lambda: (recorder.send_signal(signal.SIGTERM), recorder.wait(60)))
        time.sleep(options.quiet)
        quiet_cpu_s = cpu_s(recorder.pid)
        looks = (status(to)["unusual"] or {}).get("cpu_s", 0.0)
        incidents = []
        for kind in options.kinds.split(","):
            with planted(server, kind) as incident:
                incidents.append(incident)
                time.sleep(options.seconds)
            print(f"{kind} ended", file=sys.stderr, flush=True)
            time.sleep(options.between)
        found = status(to)
    events = [json.loads(line) for line in (to / "events.jsonl").read_text().splitlines()] if (to / "events.jsonl").exists() else []
    false, of_the_host = judge(incidents, events)
    last = status(to)
    return {
        "quiet_s": options.quiet, "between_s": options.between, "incidents": [asdict(i) for i in incidents],
        "false": false, "of_the_host": of_the_host,
        "recorder_cpu_percent_when_quiet": round(100 * quiet_cpu_s / options.quiet, 2),
        "baseline_cpu_s_a_minute_when_quiet": round(60 * looks / options.quiet, 3), "baseline_cpu_s": last["unusual"]["cpu_s"],
        "findings": {k: v for k, v in found["findings"].items() if k not in ("events", "open")}, "detail": last["detail"],
        "events": events,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quiet", type=float, default=1000, help="seconds before the first incident")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--between", type=float, default=130, help="seconds after each")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", type=int, default=BIG_ROWS)
    parser.add_argument("--pg-bin", type=Path)
    parser.add_argument("--keep", type=Path, help="the directory of the recorder; it stays")
    options = parser.parse_args()
    start_as_installed()
    environment = read_environment()
    binaries = find_binaries(options.pg_bin)
    with tempfile.TemporaryDirectory() as work, PrivateServer(binaries.bin_dir, settings=SETTINGS) as server:
        result = run(options, server, options.keep or Path(work) / "rec")
    print(json.dumps({"environment": environment} | result, indent=1, ensure_ascii=False))
    for incident in result["incidents"]:
        told = f"{incident['told_s']} s {incident['told']} | {incident['unusual_s']} s {incident['unusual']}"
        print(f"{incident['kind']:<17} {told}", file=sys.stderr)
    print(f"false: {result['false']}, of the host: {result['of_the_host']}", file=sys.stderr)


if __name__ == "__main__":
    main()
