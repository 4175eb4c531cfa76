"""Measures the load client beside pgbench: CPU of the client for each transaction, throughput, and how punctual it is.

    python bench/load_client.py                           15 pairs of 10 s for each number of threads: about 11 minutes
    python bench/load_client.py --pairs 1 --seconds 2     does everything work?

Both run the same transaction (-S, prepared, 8 clients) in interleaved pairs on one private server over a unix socket, with one thread and
with one for each CPU. CPU is that of the client's process while it runs: of pgbench whole, of ours without the start of Python. A ratio
below 1 of the CPU, and above 1 of the throughput, is in our favour; the interval is that of the signed ranks. Then our client runs at a
fixed rate, as often as there were pairs: the schedule error is how late a transaction began although a client was free. At last find-limit
looks for a limit that is known: a server that ends exactly 200 transactions a second, five times. Output: JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.lab.interleave import compare, trials
from leadline.lab.signed_rank import median_interval
from leadline.load.limit import Promise, find_limit
from leadline.load.plan import Phase, Plan, scripts_of
from leadline.load.run import run
from leadline.net.login import server_of
from record import read_environment

SETTINGS = {"fsync": False, "shared_buffers": "256MB", "autovacuum": False}
SCALE, CLIENTS, RATE = 10, 8, 10_000
RATE_RUNS = 6  # at least: with fewer there is no interval
LIMIT, LIMITED_CLIENTS, PROMISE_S, LIMIT_RUNS = 200, 8, 0.05, 5
# Each transaction takes the next slot of {LIMIT} a second by the wall clock and ends with it, whatever else it costs.
LIMITED = f"""do $$ declare slot bigint; ends timestamptz; begin
perform pg_advisory_lock(1);
select greatest(last_value + 1, ceil(extract(epoch from clock_timestamp()) * {LIMIT})::bigint) into slot from slots;
perform setval('slots', slot);
perform pg_advisory_unlock(1);
ends := to_timestamp(slot / {LIMIT}.0);
perform pg_sleep(greatest(0, extract(epoch from ends - clock_timestamp()) - 0.001));
while clock_timestamp() < ends loop null; end loop;
end $$;"""


@dataclass(frozen=True)
class Figures:
    tps: float
    cpu_us: float


def pgbench(server: PrivateServer, binary: Path, threads: int, seconds: int) -> Figures:
    command = [binary, "-S", "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", str(threads), "-T", str(seconds), server.dsn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        said = child.stdout.read() if child.stdout else ""
        _, _, usage = os.wait4(child.pid, 0)
        child.returncode = 0
    done = int(re.findall(r"actually processed: (\d+)", said)[0])
    return Figures(float(re.findall(r"tps = ([\d.]+)", said)[0]), 1e6 * (usage.ru_utime + usage.ru_stime) / done)


def ours(server: PrivateServer, threads: int, seconds: int, rate: float | None = None) -> tuple[Figures, dict[str, Any]]:
    plan = Plan(scripts_of(["select"], []), [Phase(rate, seconds)], clients=CLIENTS, threads=threads, mode="prepared")
    began = time.process_time()
    found = run(server_of(server.dsn), plan, scale=SCALE)
    spent = time.process_time() - began
    phase = found["phases"][0]
    return Figures(phase["per_second"], 1e6 * spent / phase["done"]), phase


def at_rate(runs: list[tuple[Figures, dict[str, Any]]]) -> dict[str, Any]:
    """Of runs at one rate: each figure as its median, and where that lies (95 %)."""
    figures = {
        "tps": [of.tps for of, _ in runs],
        "cpu_us": [of.cpu_us for of, _ in runs],
        **{f"schedule_error_{name}": [phase["schedule_error"][name] for _, phase in runs] for name in ("p50_ns", "p99_ns", "max_ns")},
    }
    return {name: {"median": median(values), "interval": median_interval(values), "runs": values} for name, values in figures.items()}


def known_limit(server: PrivateServer, seconds: int) -> dict[str, Any]:
    """What find-limit finds where the server cannot do more than a known rate."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("create sequence if not exists slots")
    plan = Plan([("limited", 1, LIMITED)], [], clients=LIMITED_CLIENTS, threads=1, mode="simple")
    found = find_limit(server_of(server.dsn), plan, Promise(PROMISE_S), scale=1, for_s=max(5, seconds), warm_up_s=0)
    return {
        "known": LIMIT,
        "found": found["limit"],
        "error": found["limit"] / LIMIT - 1 if found["limit"] else None,
        "between": found["between"],
        "trials": len(found["trials"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pgbench")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, environment, binaries = random.Random(options.seed), read_environment(), find_binaries(options.pg_bin)
    result: dict[str, Any] = {}
    with PrivateServer(binaries.bin_dir, settings=SETTINGS) as server:
        binary = binaries.bin_dir / "pgbench"
        subprocess.run([binary, "-i", "-q", "-s", str(SCALE), server.dsn], check=True, capture_output=True)
        for threads in sorted({1, len(os.sched_getaffinity(0))}):
            done = []
            runs = trials(
                lambda threads=threads: pgbench(server, binary, threads, options.seconds),
                lambda threads=threads: ours(server, threads, options.seconds)[0],
                options.pairs,
                rng,
            )
            for trial in runs:
                done.append(trial)
                print(f"{threads} threads, {'ours' if trial.on else 'pgbench'}: {trial.result}", file=sys.stderr)
            if options.pairs > 1:
                figures = {"tps": compare(done, lambda f: f.tps), "cpu_us": compare(done, lambda f: f.cpu_us)}
                result[f"{threads} threads"] = {
                    name: {"pgbench": of.bare, "ours": of.variant, "ratio": vars(of.ratio)} for name, of in figures.items()
                }
        for rate in (RATE / 10, RATE):
            runs_at = [ours(server, len(os.sched_getaffinity(0)), options.seconds, rate) for _ in range(max(options.pairs, RATE_RUNS))]
            result[f"{rate:g}/s"] = at_rate(runs_at)
        result["limit"] = [known_limit(server, options.seconds) for _ in range(LIMIT_RUNS)]
    json.dump({"environment": environment, "options": vars(options), "result": result}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
