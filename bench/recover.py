"""Measures `leadline recover` and the start of a server after it, against the server's own recovery, from the same crash.

    python bench/recover.py > recover.json                    all loads, 3 pairs, about 90 minutes, of which longer 75
    python bench/recover.py --clusters DIR --only-make        makes the crashed clusters and keeps them in DIR (16 GB)
    python bench/recover.py --clusters DIR                    measures with those that are there, makes the others
    python bench/recover.py --scale 0.05 --pairs 1            does everything work?

A private server is loaded and killed. Each run is on a fresh copy of what it left, in an order drawn at random: the server is started
on it until it accepts connections, with or without `leadline recover` before. Time is the wall's, whole commands with their start-up; CPU
is that of all processes, user and system. The server syncs its files (fsync) as leadline does, prefetches (`recovery_prefetch`), does not
recycle segments of the log, and has shared buffers for all pages. The ratio is the server's time by leadline's: above 1 leadline is faster.

Loads: tpcb is the transaction of pgbench, in a procedure; hot updates the rows of a small table over and over; images changes one row of
each page once; inserts fills a table with an index of random keys; larger and longer update random rows of a table that does not fit the
memory of the control group in which both recover, with nothing in the page cache (as root). The log of larger is as long as the database,
that of longer three and a half times as long as the database is at first, as in the measurement of the server's recovery with 120 GB of
pgbench and 416 GB of log by Tomas Vondra (pgsql-hackers, 2020-06-05). Log and files of the others are in the page cache.
threads compares one thread of leadline with two on tpcb.

The limit is the log read once and the changed pages written once, at the speed that the disk (or for the log the page cache) has here.
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
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from leadline.engines.postgres.server.cluster import ClusterServer
from leadline.engines.postgres.server.private import PrivateServer
from leadline.lab.signed_rank import median_interval
from record import read_environment, start_as_installed

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / place) for place in ("support", "")]

SETTINGS = {
    "shared_buffers": "2GB",
    "fsync": True,
    "synchronous_commit": False,
    "autovacuum": False,
    "max_wal_size": "64GB",
    "wal_recycle": False,
    "checkpoint_timeout": "1d",
    "max_connections": 40,
    "maintenance_io_concurrency": 100,
}
GROUP_MEMORY_BYTES = 512 << 20
"""Of the control group of `larger`."""
PROBE_BYTES = 1 << 30

TRANSACTION = """
create procedure transactions(number int) language plpgsql as $$
declare
    branches int := (select count(*) from pgbench_branches);
    a int; b int; t int; d int;
begin
    for n in 1..number loop
        a := 1 + floor(random() * branches * 100000);
        b := 1 + floor(random() * branches);
        t := 1 + floor(random() * branches * 10);
        d := floor(random() * 10000 - 5000);
        update pgbench_accounts set abalance = abalance + d where aid = a;
        update pgbench_tellers set tbalance = tbalance + d where tid = t;
        update pgbench_branches set bbalance = bbalance + d where bid = b;
        insert into pgbench_history values (t, b, a, d, now());
        commit;
    end loop;
end $$
"""


@dataclass(frozen=True)
class Cost:
    """Of one recovery, up to a server that accepts connections."""

    wall_s: float
    cpu_s: float
    start_s: float


Done = Callable[[], bool]


def pgbench(server: PrivateServer, *options: object) -> None:
    from conftest import find_pgbench

    subprocess.run([find_pgbench(), *map(str, options), server.dsn], check=True, capture_output=True)


def make_accounts(server: PrivateServer, scale: int) -> None:
    pgbench(server, "-i", "-q", "-s", scale)


def make_tpcb(server: PrivateServer, connection: psycopg.Connection[Any], _megabytes: int) -> None:
    make_accounts(server, 20)
    connection.execute(TRANSACTION)


def make_hot(_server: PrivateServer, connection: psycopg.Connection[Any], _megabytes: int) -> None:
    connection.execute("create table hot (id int primary key, n int) with (fillfactor = 50)")
    connection.execute("insert into hot select g, 0 from generate_series(1, 50000) g")


def make_images(_server: PrivateServer, connection: psycopg.Connection[Any], megabytes: int) -> None:
    connection.execute("create table paged (n int, v text) with (fillfactor = 10)")
    connection.execute("alter table paged alter v set storage plain")
    # An image has 3.6 kB, without the free room of its page: so many pages that the log is long enough before each has its own.
    connection.execute(f"insert into paged select 0, repeat('p', 3500) from generate_series(1, {megabytes * 320}) g".encode())


def make_inserts(_server: PrivateServer, connection: psycopg.Connection[Any], _megabytes: int) -> None:
    connection.execute("create table filled (id int, v text, n int)")
    connection.execute("create index on filled (v)")


def make_larger(server: PrivateServer, _connection: psycopg.Connection[Any], megabytes: int, of_scale: int = 17) -> None:
    """of_scale: megabytes of log for each 100,000 accounts, which have 17 MB of pages."""
    make_accounts(server, max(1, megabytes // of_scale))


def run_tpcb(server: PrivateServer, _connection: psycopg.Connection[Any], is_done: Done) -> None:
    def session() -> None:
        with psycopg.connect(server.dsn, autocommit=True) as own:
            while not is_done():
                own.execute("call transactions(5000)")

    sessions = [threading.Thread(target=session) for _ in range(3)]
    for thread in sessions:
        thread.start()
    for thread in sessions:
        thread.join()


def run_hot(_server: PrivateServer, connection: psycopg.Connection[Any], is_done: Done) -> None:
    while not is_done():
        connection.execute("update hot set n = n + 1")
        connection.execute("vacuum hot")


def run_images(_server: PrivateServer, connection: psycopg.Connection[Any], is_done: Done) -> None:
    block = 0
    while not is_done():
        tids = f"select format('(%s,1)', n)::tid from generate_series({block}, {block + 999}) n"
        connection.execute(f"update paged set n = n + 1 where ctid = any(array({tids}))".encode())
        block += 1000


def run_inserts(_server: PrivateServer, connection: psycopg.Connection[Any], is_done: Done) -> None:
    while not is_done():
        connection.execute("insert into filled select g, md5(g::text || random()), g from generate_series(1, 20000) g")


def run_larger(_server: PrivateServer, connection: psycopg.Connection[Any], is_done: Done) -> None:
    row = connection.execute("select max(aid) from pgbench_accounts").fetchone()
    most = row[0] if row else 1
    while not is_done():
        some = f"select 1 + floor(random() * {most})::int from generate_series(1, 2000)"
        connection.execute(f"update pgbench_accounts set abalance = abalance + 1 where aid = any(array({some}))".encode())


@dataclass(frozen=True)
class Load:
    megabytes: int
    """Of log, at scale 1."""
    make: Callable[[PrivateServer, psycopg.Connection[Any], int], None]
    run: Callable[[PrivateServer, psycopg.Connection[Any], Done], None]
    is_limited: bool = False
    """In a control group with little memory, with nothing in the page cache."""
    recovered_with: dict[str, object] = field(default_factory=dict)
    """Settings of the server that recovers."""


LARGER = Load(1700, make_larger, run_larger, is_limited=True, recovered_with={"shared_buffers": "128MB"})
LOADS = {
    "tpcb": Load(2000, make_tpcb, run_tpcb),
    "hot": Load(800, make_hot, run_hot),
    "images": Load(1000, make_images, run_images),
    "inserts": Load(500, make_inserts, run_inserts),
    "larger": LARGER,
    "longer": replace(LARGER, megabytes=6000, make=partial(make_larger, of_scale=60)),
}


def make_cluster(name: str, bin_dir: Path, target: Path, scale: float) -> None:
    """A cluster as a crash leaves it."""
    load = LOADS[name]
    megabytes = max(20, round(load.megabytes * scale))
    with PrivateServer(bin_dir, settings=SETTINGS) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            load.make(server, connection, megabytes)
            connection.execute("checkpoint")
            row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None

            def is_done() -> bool:
                with psycopg.connect(server.dsn, autocommit=True) as own:
                    passed = own.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::float8", row).fetchone()
                return passed is not None and passed[0] >= megabytes * 1e6

            load.run(server, connection, is_done)
        assert server._process is not None
        server._process.send_signal(signal.SIGQUIT)
        server._process.wait()
        with open(server.data_dir / "postgresql.conf", "a", encoding="utf-8") as conf:
            for setting, value in load.recovered_with.items():
                conf.write(f"{setting} = '{value}'\n")
        # Under another name until it is whole.
        copy_files(server.data_dir, target.with_suffix(".part"))
        target.with_suffix(".part").rename(target)


def copy_files(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True)


def forget(folder: Path) -> None:
    """Takes its files out of the page cache, which has them on disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def copied(data_dir: Path, *, cold: bool) -> Iterator[Path]:
    target = data_dir.parent / "copy"
    copy_files(data_dir, target)
    os.sync()
    if cold:
        forget(target)
        forget(data_dir)
    try:
        yield target
    finally:
        shutil.rmtree(target)


@contextmanager
def limited_memory() -> Iterator[None]:
    """This process and what it starts, in a control group of its own."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    first = {controllers: group for _, controllers, group in lines}
    if "memory" in first:
        parent, name = Path("/sys/fs/cgroup/memory") / first["memory"].lstrip("/"), "memory.limit_in_bytes"
    else:
        parent, name = Path("/sys/fs/cgroup") / first.get("", "/").lstrip("/"), "memory.max"
    group = parent / f"leadline-bench-{os.getpid()}"
    try:
        group.mkdir(exist_ok=True)
        (group / name).write_text(str(GROUP_MEMORY_BYTES))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as e:
        raise SystemExit(f"larger needs a control group with limited memory: run it as root ({e})") from e
    try:
        yield
    finally:
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        deadline = time.monotonic() + 10
        while group.exists() and time.monotonic() < deadline:
            try:
                group.rmdir()
            except OSError:  # its last process is about to end
                time.sleep(0.01)


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


def start_server(bin_dir: Path, data_dir: Path) -> tuple[float, float]:
    """Seconds until it accepts connections, and CPU seconds."""
    server = ClusterServer(bin_dir, data_dir, start_timeout_s=3600)
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


def by_server(bin_dir: Path, data_dir: Path, *, is_limited: bool) -> Cost:
    with copied(data_dir, cold=is_limited) as copy, limited_memory() if is_limited else nullcontext():
        wall, cpu = start_server(bin_dir, copy)
        return Cost(wall, cpu, wall)


def by_leadline(bin_dir: Path, data_dir: Path, options: list[str], *, is_limited: bool) -> tuple[Cost, dict[str, Any]]:
    with copied(data_dir, cold=is_limited) as copy, limited_memory() if is_limited else nullcontext():
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
        report["command_s"], report["peak_rss_bytes"] = recovered, used.ru_maxrss * 1024
        return Cost(recovered + start, used.ru_utime + used.ru_stime + cpu, start), report


def probe(folder: Path) -> dict[str, float]:
    """Bytes a second: of the disk, and of the page cache."""
    path, block = folder / "probe", os.urandom(1 << 20)
    speeds = {}
    with open(path, "wb", buffering=0) as file:
        began = time.monotonic()
        for _ in range(PROBE_BYTES >> 20):
            file.write(block)
        os.fsync(file.fileno())
        speeds["write"] = PROBE_BYTES / (time.monotonic() - began)
    for kind in ("cached", "read"):
        with open(path, "rb", buffering=0) as file:
            if kind == "read":
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.monotonic()
            while file.read(1 << 20):
                pass
            speeds[kind] = PROBE_BYTES / (time.monotonic() - began)
    path.unlink()
    return speeds


def spread(values: list[float]) -> dict[str, float]:
    """The median with its 95 % interval, which is from the least value to the most where there are too few for it, and those two."""
    low, high = median_interval(values)
    return {"median": statistics.median(values), "low": low, "high": high, "least": min(values), "most": max(values)}


def shown(of: dict[str, float]) -> str:
    return f"{of['median']:.2f} [{of['low']:.2f} to {of['high']:.2f}]"


def pairs_of(
    pairs: int, first: Callable[[], Cost], second: Callable[[], Cost], say: Callable[[Cost, Cost], str]
) -> list[tuple[Cost, Cost]]:
    """In an order drawn at random."""
    runs = []
    for _ in range(pairs):
        if random.random() < 0.5:
            one = first()
            other = second()
        else:
            other = second()
            one = first()
        runs.append((one, other))
        print(say(one, other), file=sys.stderr, flush=True)
    return runs


def measure(name: str, bin_dir: Path, data_dir: Path, pairs: int, options: list[str], speeds: dict[str, float]) -> dict[str, Any]:
    is_limited = LOADS[name].is_limited
    reports: list[dict[str, Any]] = []

    def ours() -> Cost:
        cost, report = by_leadline(bin_dir, data_dir, options, is_limited=is_limited)
        reports.append(report)
        return cost

    def say(stock: Cost, own: Cost) -> str:
        phases = ", ".join(f"{phase} {took:.2f}" for phase, took in reports[-1]["seconds"].items())
        server_text = f"server {stock.wall_s:.2f} s ({stock.cpu_s:.1f} CPU s)"
        ours_text = f"leadline {own.wall_s:.2f} s ({own.cpu_s:.1f} CPU s; {phases}; server's start {own.start_s:.2f})"
        return f"{name}: {server_text}, {ours_text}, ratio {stock.wall_s / own.wall_s:.2f}"

    runs = pairs_of(pairs, lambda: by_server(bin_dir, data_dir, is_limited=is_limited), ours, say)
    report = reports[-1]
    records = sum(kind["records"] for kind in report.pop("kinds"))
    limit = report["wal_bytes"] / speeds["read" if is_limited else "cached"] + report["pages_written"] * 8192 / speeds["write"]
    result: dict[str, Any] = {
        "load": name,
        "records": records,
        "changes_per_page": report["changes"] / max(1, report["pages"]),
        "ratio_wall": spread([stock.wall_s / own.wall_s for stock, own in runs]),
        "ratio_cpu": spread([stock.cpu_s / own.cpu_s for stock, own in runs]),
        "server_start_s": spread([own.start_s for _, own in runs]),
        "limit_s": limit,
        "by_limit": spread([own.wall_s / limit for _, own in runs]),
        "phases_s": {phase: statistics.median(one["seconds"][phase] for one in reports) for phase in report["seconds"]},
        "report": report,
        "runs": [{"server": asdict(stock), "leadline": asdict(own)} for stock, own in runs],
    }
    print(f"{name}: {records:,} records, {report['wal_bytes'] / 1e6:,.0f} MB, {report['pages_written']:,} pages, "
          f"{result['changes_per_page']:.0f} changes a page; ratio {shown(result['ratio_wall'])}, of CPU {shown(result['ratio_cpu'])}; "
          f"start {shown(result['server_start_s'])} s; limit {limit:.2f} s, {shown(result['by_limit'])} times that",
          file=sys.stderr, flush=True)  # fmt: skip
    return result


def measure_threads(bin_dir: Path, data_dir: Path, pairs: int, options: list[str]) -> dict[str, Any]:
    """One thread against two: the whole command, and the phases that use threads."""
    phases: dict[int, list[float]] = {1: [], 2: []}

    def of(threads: int) -> Cost:
        cost, report = by_leadline(bin_dir, data_dir, [*options, "--threads", str(threads)], is_limited=False)
        phases[threads].append(report["seconds"]["read"] + report["seconds"]["pages"])
        return Cost(report["command_s"], cost.cpu_s, cost.start_s)

    def say(one: Cost, two: Cost) -> str:
        inner = f"read and pages {phases[1][-1]:.2f} and {phases[2][-1]:.2f} s"
        return f"threads: {one.wall_s:.2f} s with 1, {two.wall_s:.2f} s with 2; {inner}"

    runs = pairs_of(pairs, lambda: of(1), lambda: of(2), say)
    result: dict[str, Any] = {
        "load": "threads",
        "speedup_command": spread([one.wall_s / two.wall_s for one, two in runs]),
        "speedup_read_and_pages": spread([one / two for one, two in zip(phases[1], phases[2], strict=True)]),
        "runs": [{"1": asdict(one), "2": asdict(two)} for one, two in runs],
    }
    print(f"threads: 2 by 1: command {shown(result['speedup_command'])}, read and pages {shown(result['speedup_read_and_pages'])}",
          file=sys.stderr, flush=True)  # fmt: skip
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default=",".join([*LOADS, "threads"]), help="of " + ", ".join([*LOADS, "threads"]))
    parser.add_argument("--scale", type=float, default=1.0, help="of all logs")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--major", type=int, default=18)
    parser.add_argument("--options", default="", help="of leadline recover, such as '--threads 1'")
    parser.add_argument("--clusters", type=Path, help="where crashed clusters are kept; those that are there are used")
    parser.add_argument("--only-make", action="store_true", help="makes clusters and measures nothing")
    arguments = parser.parse_args()
    start_as_installed()
    from servers import server

    bin_dir = Path(server(arguments.major).bin_dir)
    loads = arguments.loads.split(",")
    folder = arguments.clusters or Path(tempfile.mkdtemp(prefix="leadline-recover-", dir="/var/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    results = []
    try:
        speeds = {} if arguments.only_make else probe(folder)
        for name in loads:
            of_load = "tpcb" if name == "threads" else name
            data_dir = folder / of_load
            if not data_dir.exists():
                made = time.monotonic()
                make_cluster(of_load, bin_dir, data_dir, arguments.scale)
                print(f"{of_load}: a crashed cluster, made in {time.monotonic() - made:.0f} s", file=sys.stderr, flush=True)
            if arguments.only_make:
                continue
            if name == "threads":
                results.append(measure_threads(bin_dir, data_dir, arguments.pairs, arguments.options.split()))
            else:
                results.append(measure(name, bin_dir, data_dir, arguments.pairs, arguments.options.split(), speeds))
            if arguments.clusters is None and "threads" not in loads[loads.index(name) + 1 :]:
                shutil.rmtree(data_dir)
    finally:
        if arguments.clusters is None:
            shutil.rmtree(folder)
    of_run = {"environment": read_environment(), "arguments": {k: str(v) for k, v in vars(arguments).items()}, "bytes_per_s": speeds}
    json.dump({**of_run, "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
