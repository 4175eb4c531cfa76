"""Measures `leadline page check` of a B-tree beside amcheck of the server, in pairs, with all files in memory.

    python bench/relation_check.py > relation_check.json           an index of 1 GB, 7 pairs of each
    python bench/relation_check.py --rows 1000000 --pairs 2        does everything work?

The index is of a bigint, in another order than the rows. leadline reads the files of the running server, after a checkpoint, and is a
whole process with its start; amcheck is a statement on a new connection, whose own time alone counts, with the CPU of its backend. The
ratio is amcheck's figure by leadline's: above 1 leadline takes less. leadline compares all rows of the table with the index in both
directions, as heapallindexed does in one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from leadline.engines.postgres.server import PrivateServer
from processes import cpu_ns
from record import read_environment, start_as_installed
from rows import LEADLINE, Cost, compare, process

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from servers import server

SETTINGS: dict[str, object] = {
    "fsync": False, "autovacuum": False, "shared_buffers": "1GB", "max_wal_size": "20GB", "maintenance_work_mem": "1GB",
    "max_parallel_maintenance_workers": 0, "checkpoint_timeout": "1h",
}  # fmt: skip
ASKED = {
    "bt_index_check": "bt_index_check('k')",
    "bt_index_check, heapallindexed": "bt_index_check('k', true)",
    "bt_index_parent_check": "bt_index_parent_check('k')",
    "bt_index_parent_check, heapallindexed, rootdescend": "bt_index_parent_check('k', true, true)",
}


def amcheck(dsn: str, call: str) -> Cost:
    with psycopg.connect(dsn, autocommit=True) as connection:
        pid = connection.info.backend_pid
        before, began = cpu_ns(pid), time.monotonic()
        connection.execute(f"select {call}".encode())
        wall, used = time.monotonic() - began, cpu_ns(pid) - before
        status = Path(f"/proc/{pid}/status").read_text()
    return Cost(wall, used / 1e9, int(status.split("VmHWM:")[1].split()[0]) / 1024, None)


def measure(running: PrivateServer, pairs: int, slow_pairs: int, rng: random.Random) -> list[dict[str, Any]]:
    with psycopg.connect(running.dsn, autocommit=True) as connection:
        [path] = connection.execute("select pg_relation_filepath('k')").fetchone() or ("",)
    words = ["page", "check", str(Path(running.data_dir) / path), "--level", "structure", "--json"]

    def leadline() -> Cost:
        return process([sys.executable, "-c", LEADLINE, *words])

    results = []
    for name, call in ASKED.items():
        number = slow_pairs if "heapallindexed" in name else pairs
        results.append(compare(name, lambda call=call: amcheck(running.dsn, call), leadline, number, rng))  # type: ignore[misc]
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=48_000_000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--slow-pairs", type=int, default=7, help="of those with heapallindexed, which take a minute or more")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    start_as_installed()
    environment = read_environment()
    with PrivateServer(server(18).bin_dir, settings=SETTINGS) as running:
        with psycopg.connect(running.dsn, autocommit=True) as connection:
            connection.execute("create extension amcheck")
            numbers = f"select (n * 7919) % 100000007 as n from generate_series(1::bigint, {arguments.rows}) n"
            connection.execute(f"create table t as {numbers}".encode())
            connection.execute("create index k on t (n)")
            connection.execute("vacuum t")
            connection.execute("checkpoint")
            sizes = connection.execute("select pg_relation_size('k'), pg_relation_size('t')").fetchone()
        results = measure(running, arguments.pairs, arguments.slow_pairs, random.Random(arguments.seed))
    of = {"index_bytes": sizes[0], "table_bytes": sizes[1]} if sizes else {}
    print(json.dumps({"environment": environment, "rows": arguments.rows, **of, "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
