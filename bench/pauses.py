"""Measures how much longer a statement takes after the client has paused: what the model of `leadline net budget` calls cold.

    python bench/pauses.py                    some 20 s
    python bench/pauses.py --rounds 3         does everything work?

A client asks for one row by its key, and changes one, by turns, on the loopback and without a proxy. Each round has each pause once, in
an order drawn at random, for a dozen statements. A round trip over a longer way is such a pause for both ends.

Output: JSON, and a table on stderr.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from math import sqrt
from statistics import mean
from typing import Any

import psycopg
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.net.budget_model import COLD_AT_MS
from record import read_environment

PAUSES_MS = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
STATEMENTS = ("update t set n = n + 1 where id = %s", "select n from t where id = %s")
ROWS = 100_000
KEPT = 0.95  # of the statements, the fastest: the others met something else
EACH, UNCOUNTED = 12, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--pg-bin", help="folder with postgres and initdb")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, environment, binaries = random.Random(options.seed), read_environment(), find_binaries(options.pg_bin)
    took: dict[float, list[float]] = {pause: [] for pause in PAUSES_MS}
    settings = {"fsync": False, "autovacuum": False}
    with PrivateServer(binaries.bin_dir, settings=settings, loopback=True) as server, psycopg.connect(
        server.loopback_dsn, autocommit=True
    ) as db:
        db.execute(f"create table t as select id, 0 as n from generate_series(1, {ROWS}) id")
        db.execute("create unique index on t (id)")
        for _ in range(options.rounds):
            for pause in rng.sample(PAUSES_MS, len(PAUSES_MS)):
                for number in range(EACH):
                    time.sleep(pause / 1000)
                    began = time.perf_counter()
                    db.execute(STATEMENTS[number % 2], [rng.randint(1, ROWS)])
                    if number >= UNCOUNTED:
                        took[pause].append(1000 * (time.perf_counter() - began))
    usual = {pause: mean(sorted(each)[: max(1, int(KEPT * len(each)))]) for pause, each in took.items()}
    rows: list[dict[str, Any]] = []
    for pause, ms in usual.items():
        more = ms - usual[0.0]
        rows.append({"pause_ms": pause, "statement_ms": ms, "more_ms": more, "statements": len(took[pause])})
        law = f", {more / sqrt(pause / COLD_AT_MS):.3f} ms times the square root of the pause by {COLD_AT_MS} ms" if pause else ""
        print(f"{pause:5g} ms: {ms:.3f} ms, {more:.3f} ms more{law}", file=sys.stderr)
    json.dump({"environment": environment, "options": vars(options), "result": rows}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
