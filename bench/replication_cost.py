"""Measures what the probe of replication adds to the CPU of a capture, on the side of the primary and on that of the standby.

    python bench/replication_cost.py --pg-bin DIR                      20 pairs of 8 s for each side: 7 minutes
    python bench/replication_cost.py --pg-bin DIR --pairs 2            does everything work?

Two captures of one server run at the same time, one with the probe and one without, started in an order drawn at random; a load makes WAL
meanwhile. CPU is that of all threads of each, by the scheduler, over a window in the middle. The difference is in percent of one core;
its interval is that of the median. Output: JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from leadline.lab.signed_rank import median_interval
from leadline.study.load_beside import LoadBeside
from processes import Child, tree_cpu_ns
from record import read_environment, start_as_installed
from replication import LINE, execute, pair
from variants import until_it_looks

WITHOUT = (
    "from leadline.engines.postgres.probes.replication import ReplicationProbe as probe; "
    "probe.replicates = property(lambda self: False); "
)
RUN = "import sys; from leadline.cli import run; sys.exit(run(sys.argv[1:]))"
LOAD_PER_S = 20.0


class Taken:
    """A capture that runs until the block ends."""

    def __init__(self, dsn: str, folder: Path, *, with_probe: bool) -> None:
        self.capture = folder / f"{'with' if with_probe else 'without'}-{time.monotonic_ns()}.leadline"
        words = ["take", dsn, "--for", "1h", "--probes", "sessions", "-o", str(self.capture)]
        code = RUN if with_probe else WITHOUT + RUN
        self.child = Child("leadline take", [sys.executable, "-c", code, *words], output=self.capture.with_suffix(".log"), cwd=folder)

    def cpu_ns(self) -> int:
        return tree_cpu_ns(self.child.pid)


def one_pair(dsn: str, folder: Path, seconds: float, rng: random.Random) -> tuple[float, float]:
    """Percent of one core: with the probe, and without."""
    order = [True, False]
    rng.shuffle(order)
    taken = {which: Taken(dsn, folder, with_probe=which) for which in order}
    try:
        for one in taken.values():
            until_it_looks(one.child, one.capture)
        began, before = time.monotonic(), {which: one.cpu_ns() for which, one in taken.items()}
        time.sleep(seconds)
        after, took = {which: one.cpu_ns() for which, one in taken.items()}, time.monotonic() - began
    finally:
        for one in taken.values():
            one.child.end(signal.SIGINT)
    share = {which: (after[which] - before[which]) / took / 1e7 for which in taken}
    return share[True], share[False]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pg-bin", required=True)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each window")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    start_as_installed()
    rng, result = random.Random(given.seed), {}
    environment = read_environment()
    with pair(given.pg_bin) as of, tempfile.TemporaryDirectory(prefix="leadline-") as folder:
        execute(of.primary.dsn, "create table line (n int, body text)")
        for side, dsn in (("primary", of.primary.dsn), ("standby", of.standby.dsn)):
            with LoadBeside(of.primary.dsn, LINE, LOAD_PER_S, given.pairs * (given.seconds + 8) + 30):
                pairs = [one_pair(dsn, Path(folder), given.seconds, rng) for _ in range(given.pairs)]
            more = [with_probe - without for with_probe, without in pairs]
            result[side] = {"with": median(a for a, _ in pairs), "without": median(b for _, b in pairs), "more": median(more),
                            "interval": median_interval(more), "pairs": pairs}  # fmt: skip
            print(side, {name: value for name, value in result[side].items() if name != "pairs"}, file=sys.stderr)
    found: dict[str, Any] = {"environment": environment, "options": vars(given), "result": result}
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
