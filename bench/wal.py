"""Measures `leadline wal stats`, `wal export` and `wal show` against `pg_waldump --stats=record` and its text, on the same files in memory.

    python bench/wal.py                               makes 2 GB of log with pgbench on a private server, then 5 pairs of each
    python bench/wal.py --megabytes 300 --pairs 2     does everything work?
    python bench/wal.py --log pg_wal --start 0/1000000 --end 0/9000000

Each comparison runs pg_waldump and leadline in pairs, in an order drawn at random, whole processes with their start-up. Time is the
wall's, CPU that of user and system. The ratio is pg_waldump's time by leadline's: above 1 leadline is faster. One core means that
the process may use one CPU only. pg_waldump has one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from leadline.engines.postgres.server.binaries import host_dirs, wheel_dirs
from leadline.engines.postgres.server.private import PrivateServer
from leadline.lab import interleave
from record import read_environment, start_as_installed

SETTINGS = {
    "shared_buffers": "1GB",
    "fsync": False,
    "synchronous_commit": False,
    "autovacuum": False,
    "max_wal_size": "8GB",
    "wal_keep_size": "16GB",
    "checkpoint_timeout": "1h",
    "max_connections": 40,
}
CLIENTS = 8
BULK = "insert into bulk select g, md5(g::text), g % 1000 from generate_series(1, 100000) g; update bulk set n = n + 1 where n < 300"


@dataclass(frozen=True)
class Log:
    """A part of a log, and a pg_waldump that reads it."""

    folder: str
    start: str
    end: str
    pg_waldump: str


@dataclass(frozen=True)
class Cost:
    """One run of a process."""

    wall_s: float
    cpu_s: float


def run_once(command: list[str], cpus: set[int]) -> Cost:
    """Runs a process on these CPUs with its output thrown away. Raises CalledProcessError."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 and "error in WAL record" not in said.decode():  # pg_waldump's way to say that the log ends
        raise subprocess.CalledProcessError(process.returncode, command, stderr=said)
    return Cost(wall, used.ru_utime + used.ru_stime)


def compare(name: str, theirs: list[str], ours: list[str], cpus: set[int], pairs: int, rng: random.Random) -> dict[str, Any]:
    trials = []
    for trial in interleave.trials(lambda: run_once(theirs, cpus), lambda: run_once(ours, cpus), pairs, rng):
        trials.append(trial)
        who = "leadline" if trial.on else "pg_waldump"
        print(f"{name}: {who} {trial.result.wall_s:.2f} s, CPU {trial.result.cpu_s:.2f} s", file=sys.stderr)
    result: dict[str, Any] = {"name": name, "cpus": len(cpus), "pairs": pairs}
    for what in ("wall_s", "cpu_s"):
        costs = interleave.compare(trials, lambda cost, what=what: getattr(cost, what))
        speeds = interleave.compare(trials, lambda cost, what=what: 1 / getattr(cost, what))
        result[what] = {"pg_waldump": costs.bare, "leadline": costs.variant, "times_as_fast": asdict(speeds.ratio)}
    return result


def find_waldump(major: int | None) -> tuple[int, Path]:
    """A folder of binaries with a server, pg_waldump and pgbench; the newest unless a major is asked for."""
    found = [d for d in [*host_dirs(), *wheel_dirs()] if (d.bin_dir / "pg_waldump").is_file() and (d.bin_dir / "pgbench").is_file()]
    found = [d for d in found if major in (None, d.major)]
    if not found:
        sys.exit(f"error: there is no server with pg_waldump and pgbench here{f' of major {major}' if major else ''}")
    best = max(found, key=lambda d: d.major)
    return best.major, best.bin_dir


@contextmanager
def made_log(major: int | None, megabytes: int) -> Iterator[Log]:
    """Log of a private server: transactions of pgbench, and rows in bulk, until there is enough."""
    _, bin_dir = find_waldump(major)
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as copy:
        with PrivateServer(bin_dir, settings=SETTINGS) as server, psycopg.connect(server.dsn, autocommit=True) as connection:
            pgbench = [str(bin_dir / "pgbench"), "-n", server.dsn]
            subprocess.run([*pgbench[:1], "-i", "-q", "-s", "20", server.dsn], check=True, capture_output=True)
            connection.execute("create table bulk (id int, v text, n int); create index on bulk (v)")
            connection.execute("checkpoint")
            start = connection.execute("select pg_current_wal_insert_lsn()::text").fetchall()[0][0]
            while True:
                subprocess.run([*pgbench, "-c", str(CLIENTS), "-M", "prepared", "-T", "10"], check=True, capture_output=True)
                connection.execute(BULK)
                end, size = connection.execute(
                    f"select pg_current_wal_insert_lsn()::text, (pg_current_wal_insert_lsn() - '{start}')::bigint"
                ).fetchall()[0]
                print(f"{int(size) >> 20} MB of WAL", file=sys.stderr)
                if size >= megabytes << 20:
                    break
            connection.execute("select pg_switch_wal()")
            segments = shutil.copytree(server.data_dir / "pg_wal", Path(copy) / "pg_wal")
        yield Log(str(segments), start, end, str(bin_dir / "pg_waldump"))


def measure(log: Log, pairs: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    for segment in Path(log.folder).iterdir():
        if segment.is_file():
            segment.read_bytes()  # into the page cache
    leadline = shutil.which("leadline") or str(Path(sys.executable).with_name("leadline"))
    part = ["--from", log.start, "--to", log.end]
    waldump = [log.pg_waldump, "-p", log.folder, "-s", log.start, "-e", log.end]
    cpus = sorted(os.sched_getaffinity(0))
    one, two = set(cpus[-1:]), set(cpus[-2:])
    results = []
    for name, used in (("stats, one core", one), ("stats, two cores", two)):
        ours = [leadline, "wal", "stats", log.folder, *part, "--threads", str(len(used))]
        results.append(compare(name, [*waldump, "--stats=record"], ours, used, pairs, rng))
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as out:
        ours = [leadline, "wal", "export", log.folder, *part, "--threads", str(len(two)), "-o", f"{out}/log", "--force"]
        results.append(compare("export, two cores", waldump, ours, two, pairs, rng))
    show = [leadline, "wal", "show", log.folder, *part]
    for name, theirs, ours in (
        ("show, one core", [], []),
        ("show --json, one core", [], ["--json"]),
        ("show --rmgr Heap, one core", ["-r", "Heap"], ["--rmgr", "Heap"]),
        ("show --rmgr Transaction --json, one core", ["-r", "Transaction"], ["--rmgr", "Transaction", "--json"]),
        ("show --limit 100000, one core", ["-n", "100000"], ["--limit", "100000"]),
    ):
        results.append(compare(name, [*waldump, *theirs], [*show, *ours], one, pairs, rng))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2048, help="log to make")
    parser.add_argument("--major", type=int, help="of the server to make it with; the newest that has pg_waldump and pgbench")
    parser.add_argument("--log", help="measure on this pg_wal, with --start, --end and --pg-waldump, instead of making one")
    parser.add_argument("--start")
    parser.add_argument("--end")
    parser.add_argument("--pg-waldump", help="by default that of --major")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_as_installed()
    environment = read_environment()
    if options.log:
        if not (options.start and options.end):
            parser.error("--log needs --start and --end")
        tool = options.pg_waldump or str(find_waldump(options.major)[1] / "pg_waldump")
        results = measure(Log(options.log, options.start, options.end, tool), options.pairs, options.seed)
    else:
        with made_log(options.major, options.megabytes) as log:
            results = measure(log, options.pairs, options.seed)
    json.dump({"environment": environment, "options": vars(options), "results": results}, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
