"""Compares the CPU that a capture takes with that of another build, on one server under one load.

    python bench/builds.py OTHER/.venv/bin/python                       12 rounds of 10 s, about 7 minutes
    python bench/builds.py OTHER/.venv/bin/python --rounds 1 --seconds 3   does everything work?

OTHER is a checkout of an older commit after its `make build`. pgbench (-S, then TPC-B-like) keeps the server busy. In each round all
builds take a capture at 100 Hz at the same time, so that they see the same load; they are started in an order drawn at random. CPU is
read from the scheduler's accounting over a window in the middle.
`sessions` is this build with `--probes sessions`, which is all that a capture had before the host and the sockets joined it. Output: JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from laboratory import SETTINGS
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.lab.signed_rank import signed_rank_ratio
from load import SCRIPTS, Load, Workload, fill
from record import read_environment, start_as_installed
from variants import Leadline

DEFAULT_MAJOR = 15  # of Debian 12, with pg_prewarm


def cpu_percent(tools: list[Leadline], server: PrivateServer, work: Path, seconds: float) -> list[float]:
    """CPU of captures that run at the same time, in percent of one core, from their first passes on. They stay in `work`."""
    try:
        for tool in tools:
            tool.start(server, work)
        began, before = time.monotonic(), [tool.cpu()["total"] for tool in tools]
        time.sleep(seconds)
        used, took = [tool.cpu()["total"] - start for tool, start in zip(tools, before)], time.monotonic() - began
        for tool in tools:
            tool.check()
        for tool in tools:
            tool.stop()
    finally:
        for tool in tools:
            tool.abandon()
    return [ns / took / 1e7 for ns in used]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="Python of the other build's virtual environment")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each window")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pgbench")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_as_installed()
    rng, environment = random.Random(options.seed), read_environment()
    result = {}
    with ExitStack() as stack:
        # Captures are deleted at the end: ext4 passes over inodes that were freed lately, so a deletion makes the next files dearer.
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(PrivateServer(find_binaries(options.pg_bin, DEFAULT_MAJOR).bin_dir, settings=SETTINGS))
        fill(server, options.scale)
        builds = {"other": Leadline(100, str(options.other.absolute())), "this": Leadline(100)}
        builds["sessions"] = Leadline(100, options=("--probes", "sessions"))
        for script in SCRIPTS:
            found: dict[str, list[float]] = {name: [] for name in builds}
            with Load(server, Workload(script, "prepared"), options.clients) as load:
                for _ in range(options.rounds):
                    load.drain()  # pgbench stops when nobody reads its progress
                    order = rng.sample(list(builds), len(builds))
                    for name, percent in zip(order, cpu_percent([builds[name] for name in order], server, work, options.seconds)):
                        found[name].append(percent)
            ratios = {name: signed_rank_ratio(list(zip(found["other"], found[name]))) for name in ("this", "sessions")}
            result[script] = {
                "cpu_percent": {name: median(values) for name, values in found.items()},
                "by_other": {name: vars(ratio) for name, ratio in ratios.items()},
                "rounds": found,
            }
    shown = vars(options) | {"other": str(options.other)}
    json.dump({"options": shown, "environment": environment, "result": result}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
