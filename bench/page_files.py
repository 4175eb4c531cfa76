"""Measures page check and page scan beside cat, pg_checksums and heap_page_items, on files in the page cache.

    python bench/page_files.py                        a table of 12 million rows (1 GB), ten rounds
    python bench/page_files.py --rows 200000 --rounds 2        does everything work? (its figures mean nothing)
    python bench/page_files.py --pg-bin DIR           a server with pageinspect, for heap_page_items

The server must keep checksums (18 does by itself), or pg_checksums has nothing to do and says so.
Each round runs each of them once, in an order drawn anew; the figures are medians over rounds and medians of the ratios within a
round. Times of commands are those of the whole command, the start of Python included. It changes nothing outside of the
temporary folder and prints its result; a record of runs is kept of bench/overhead.py only.
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
from typing import Any

import psycopg
from leadline.errors import LeadlineError
from leadline.server import PrivateServer, find_binaries

SETTINGS = {"fsync": False, "autovacuum": False, "shared_buffers": "256MB", "max_wal_size": "4GB"}
INSPECTED_BLOCKS = 16384
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
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pg_checksums")
    arguments = parser.parse_args()
    binaries = find_binaries(arguments.pg_bin)
    print(f"PostgreSQL {binaries.version} ({binaries.source}), {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with PrivateServer(binaries.bin_dir, settings=SETTINGS) as server, tempfile.TemporaryDirectory() as scratch:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for statement in TABLE.format(rows=arguments.rows).split(";\n"):
                connection.execute(statement)
            [relation, size] = connection.execute("select pg_relation_filepath('t'), pg_relation_size('t')").fetchone() or ("", 0)
            inspect(connection)
        server.stop()
        path = Path(server.data_dir) / relation
        print(f"one table of {size / 1e6:,.0f} MB")
        measure(Path(server.data_dir), path, Path(scratch), arguments.rounds, server.bin_dir)
    return 0


def inspect(connection: psycopg.Connection[Any]) -> None:
    """heap_page_items over the first pages, where the server has pageinspect."""
    try:
        connection.execute("create extension pageinspect")
    except psycopg.errors.Error:
        print("heap_page_items: this server has no pageinspect")
        return
    blocks = "generate_series(0, least(%s, pg_relation_size('t') / 8192) - 1) b"
    query = f"select count(*) from {blocks}, heap_page_items(get_raw_page('t', b::int))"
    figures = []
    for _ in range(3):
        started = time.perf_counter()
        [tuples] = connection.execute(query, [INSPECTED_BLOCKS]).fetchone() or (0,)
        figures.append(tuples / (time.perf_counter() - started))
    print(f"heap_page_items: {statistics.median(figures) / 1e6:.2f} M line pointers/s, one backend")


def measure(root: Path, path: Path, scratch: Path, rounds: int, bin_dir: Path) -> None:
    """Rounds of everything, interleaved; prints medians and ratios."""
    files = [str(path), *(str(segment) for segment in sorted(path.parent.glob(f"{path.name}.*")))]
    leadline = [sys.executable, "-m", "leadline", "page"]
    numbers = iter(range(10_000))
    work: dict[str, Callable[[], list[str]]] = {
        "cat": lambda: ["sh", "-c", f"cat {root}/base/*/* {root}/global/* > /dev/null"],
        "pg_checksums": lambda: [str(bin_dir / "pg_checksums"), "--check", "-D", str(root)],
        "page check": lambda: [*leadline, "check", str(root)],
        "page scan": lambda: [*leadline, "scan", *files, "-o", str(scratch / f"{next(numbers)}.leadline")],
    }
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
            f", {statistics.median(a / b for a, b in zip(values, seconds[other])):.2f} x {other}"
            for other in ("cat", "pg_checksums")
            if other != name
        )
        print(f"{name:<13} {statistics.median(values):.3f} s ({min(values):.3f} to {max(values):.3f}){beside}")


if __name__ == "__main__":
    sys.exit(main())
