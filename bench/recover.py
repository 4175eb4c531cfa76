"""Measures `leadline recover` and the start of a server after it, against the server's own recovery, from the same crash.

    python bench/recover.py                                   each load, 500 MB of log, 5 pairs
    python bench/recover.py --loads tpcb --megabytes 2000
    python bench/recover.py --megabytes 50 --pairs 1          does everything work?

A private server is loaded and killed. Each run is on a fresh copy of what it left, in an order drawn at random: the server is started
on it until it accepts connections, with or without `leadline recover` before. Time is the wall's, whole commands with their start-up; CPU
is that of all processes, user and system. The server syncs its files (fsync) as leadline does, and has shared buffers for all pages.
The ratio is the server's time by leadline's: above 1 leadline is faster. Both read log and files that are in the page cache.

Loads: tpcb is pgbench's; hot updates the rows of a small table over and over; images changes one row of each page once; inserts fills a
table with an index of random keys.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from leadline.postgres.server.private import PrivateServer
from record import read_environment, start_as_installed

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SETTINGS = {
    "shared_buffers": "2GB",
    "fsync": True,
    "synchronous_commit": False,
    "autovacuum": False,
    "max_wal_size": "64GB",
    "checkpoint_timeout": "1d",
    "max_connections": 40,
    "maintenance_io_concurrency": 100,
}


@dataclass(frozen=True)
class Cost:
    """Of one recovery, up to a server that accepts connections."""

    wall_s: float
    cpu_s: float
    start_s: float


class CrashedServer(PrivateServer):
    """A server on a cluster that is there; it is waited for without a session."""

    def _initdb(self) -> None:
        pass

    def _configure(self) -> None:
        pass

    def _wait_until_ready(self) -> None:
        while "ready to accept connections" not in self.log:
            if self._process is None or self._process.poll() is not None:
                raise self._failed("the server ended while starting")
            time.sleep(0.005)


def cpu_of(pid: int) -> float:
    """Seconds of a process, of its children that have ended, and of those that live."""
    ticks = os.sysconf("SC_CLK_TCK")

    def own(pid: str) -> float:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:15])) / ticks

    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own(str(pid)) + sum(map(own, children))


@contextmanager
def copied(data_dir: Path) -> Iterator[Path]:
    target = data_dir.parent / "copy"
    subprocess.run(["cp", "-a", str(data_dir), str(target)], check=True)
    os.sync()
    try:
        yield target
    finally:
        shutil.rmtree(target)


def start_server(bin_dir: Path, data_dir: Path) -> tuple[float, float]:
    """Seconds until it accepts connections, and CPU seconds."""
    server = CrashedServer(bin_dir, data_dir)
    server._prepare()
    try:
        began = time.monotonic()
        server.start()
        took = time.monotonic() - began
        return took, cpu_of(server.pid)
    finally:
        if server._process is not None:
            server._process.send_signal(signal.SIGQUIT)
            server._process.wait()
        server.close()


def by_server(bin_dir: Path, data_dir: Path) -> Cost:
    with copied(data_dir) as copy:
        wall, cpu = start_server(bin_dir, copy)
        return Cost(wall, cpu, wall)


def by_leadline(bin_dir: Path, data_dir: Path, options: list[str]) -> tuple[Cost, dict[str, Any]]:
    with copied(data_dir) as copy:
        began = time.monotonic()
        command = [sys.executable, "-m", "leadline", "recover", str(copy), "--json", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(said.decode())
        recovered = time.monotonic() - began
        start, cpu = start_server(bin_dir, copy)
        report = json.loads(said)
        return Cost(recovered + start, used.ru_utime + used.ru_stime + cpu, start), report


def written(connection: psycopg.Connection[Any], since: str) -> float:
    row = connection.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::float8 / 1e6", [since]).fetchone()
    return float(row[0]) if row else 0.0


def pgbench(server: PrivateServer, *options: object) -> None:
    from conftest import find_pgbench

    subprocess.run([find_pgbench(), *map(str, options), server.dsn], check=True, capture_output=True)


def tpcb(server: PrivateServer, connection: psycopg.Connection[Any], is_done: Callable[[], bool]) -> None:
    while not is_done():
        pgbench(server, "-n", "-c", 8, "-j", 2, "-T", 5)


def hot(_server: PrivateServer, connection: psycopg.Connection[Any], is_done: Callable[[], bool]) -> None:
    while not is_done():
        connection.execute("update hot set n = n + 1")
        connection.execute("vacuum hot")


def images(_server: PrivateServer, connection: psycopg.Connection[Any], is_done: Callable[[], bool]) -> None:
    block = 0
    while not is_done():
        tids = f"select array_agg(format('(%s,1)', n)::tid) from generate_series({block}, {block + 999}) n"
        connection.execute(f"update paged set n = n + 1 where ctid = any(({tids}))".encode())
        block += 1000


def inserts(_server: PrivateServer, connection: psycopg.Connection[Any], is_done: Callable[[], bool]) -> None:
    while not is_done():
        connection.execute("insert into filled select g, md5(g::text || random()), g from generate_series(1, 20000) g")


SETUP = {
    "tpcb": [],
    "hot": [
        "create table hot (id int primary key, n int) with (fillfactor = 50)",
        "insert into hot select g, 0 from generate_series(1, 50000) g",
    ],
    "images": [
        "create table paged (n int, v text) with (fillfactor = 10)",
        "alter table paged alter v set storage plain",
        "insert into paged select 0, repeat('p', 600) from generate_series(1, {megabytes} * 150) g",
    ],
    "inserts": ["create table filled (id int, v text, n int)", "create index on filled (v)"],
}
LOADS = {"tpcb": tpcb, "hot": hot, "images": images, "inserts": inserts}


def measure(name: str, bin_dir: Path, megabytes: int, pairs: int, options: list[str]) -> dict[str, Any]:
    server = PrivateServer(bin_dir, settings=SETTINGS)
    with server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for statement in SETUP[name]:
                connection.execute(statement.format(megabytes=megabytes).encode())
            if name == "tpcb":
                pgbench(server, "-i", "-q", "-s", 20)
            connection.execute("checkpoint")
            row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            LOADS[name](server, connection, lambda: written(connection, row[0]) >= megabytes)
        assert server._process is not None
        server._process.send_signal(signal.SIGQUIT)
        server._process.wait()
        runs: list[tuple[Cost, Cost]] = []
        report: dict[str, Any] = {}
        for number in range(pairs + 1):  # the first warms the caches
            if random.random() < 0.5:
                stock = by_server(bin_dir, server.data_dir)
                ours, report = by_leadline(bin_dir, server.data_dir, options)
            else:
                ours, report = by_leadline(bin_dir, server.data_dir, options)
                stock = by_server(bin_dir, server.data_dir)
            if number or pairs == 1:
                runs.append((stock, ours))
            server_text = f"server {stock.wall_s:.2f} s ({stock.cpu_s:.1f} CPU s)"
            ours_text = f"leadline {ours.wall_s:.2f} s ({ours.cpu_s:.1f} CPU s)"
            print(f"{name}: {server_text}, {ours_text}, ratio {stock.wall_s / ours.wall_s:.2f}", file=sys.stderr)
        kinds = report.pop("kinds")
        return {
            "load": name,
            "records": sum(kind["records"] for kind in kinds),
            "ratio_wall": statistics.median(stock.wall_s / ours.wall_s for stock, ours in runs),
            "ratio_cpu": statistics.median(stock.cpu_s / ours.cpu_s for stock, ours in runs),
            "server_start_s": statistics.median(ours.start_s for _, ours in runs),
            "report": report,
            "runs": [{"server": asdict(stock), "leadline": asdict(ours)} for stock, ours in runs],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default=",".join(LOADS), help="of " + ", ".join(LOADS))
    parser.add_argument("--megabytes", type=int, default=500, help="of log")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--major", type=int, default=18)
    parser.add_argument("--options", default="", help="of leadline recover, such as '--threads 1'")
    arguments = parser.parse_args()
    start_as_installed()
    from servers import server

    bin_dir = Path(server(arguments.major).bin_dir)
    loads = arguments.loads.split(",")
    results = [measure(name, bin_dir, arguments.megabytes, arguments.pairs, arguments.options.split()) for name in loads]
    json.dump({"environment": read_environment(), "arguments": vars(arguments), "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
