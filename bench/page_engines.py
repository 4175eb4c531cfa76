"""Measures page scan on Ray beside threads: CPU seconds of all processes, from the first to the last of them, and the time of the command.

    python bench/page_engines.py                      1, 10 and 100 files of 64 MB, five rounds
    python bench/page_engines.py --rounds 1 --files 1 2        does everything work? (its figures mean nothing)
    python bench/page_engines.py --json out.json      the figures, too

Needs Ray (pip install leadline[ray]), root, and the cpuacct controller of cgroup v1. The files are links to one table of a private
server, so all are in the page cache: what is left is what the engines cost. Each round runs each engine once for each number of files, in
an order drawn anew: `threads`; `ray`, which starts Ray on this host and ends it; `cluster`, which uses a Ray that runs. CPU is that of
all processes, also those of a cluster, until those of the command have ended. The receipts of all runs must be the same. The size from
which a second machine pays is computed, not measured: a command of a cluster has a fixed part and one for each file (the line through the
medians of the smallest and the largest number of files), and two machines share the latter.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from leadline.engines.postgres.server import PrivateServer, find_binaries
from record import start_as_installed

CONTROLLER = Path("/sys/fs/cgroup/cpuacct")
ENGINES = ("threads", "ray", "cluster")
FILE = 64 << 20
TABLE = """
create table t as
select i as id, (random() * 1e6)::int as k, repeat('x', (random() * 80)::int) as pad from generate_series(1, 1100000) i
"""


@dataclass
class Cost:
    wall_s: float
    cpu_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    start_as_installed()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # the latter: loopback addresses
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    import ray

    print(f"Ray {ray.__version__}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    group = Group()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        try:
            folders = {count: links(Path(scratch), count) for count in arguments.files}
            found = measure(folders, Path(scratch), arguments.rounds, group)
        finally:
            group.remove()
    medians = report(found)
    if arguments.json:
        arguments.json.write_text(json.dumps({"seconds": found, "medians": medians}, indent=1) + "\n")
    return 0


def links(scratch: Path, count: int) -> Path:
    """A folder of so many relation files, which are all the same bytes."""
    table = scratch / "table"
    if not table.exists():
        binaries = find_binaries()
        with PrivateServer(binaries.bin_dir, settings={"fsync": False, "autovacuum": False}) as running:
            with psycopg.connect(running.dsn, autocommit=True) as connection:
                connection.execute(TABLE)
                connection.execute("vacuum freeze t")
                connection.execute("checkpoint")
                [relation] = connection.execute("select pg_relation_filepath('t')").fetchone() or ("",)
            with open(Path(running.data_dir) / relation, "rb") as file:
                content = file.read(FILE)
            assert len(content) == FILE, len(content)
            table.write_bytes(content)
    folder = scratch / str(count)
    folder.mkdir()
    for number in range(count):
        os.link(table, folder / str(16384 + number))
    return folder


def measure(folders: dict[int, Path], scratch: Path, rounds: int, group: Group) -> dict[str, dict[int, list[dict[str, float]]]]:
    found: dict[str, dict[int, list[dict[str, float]]]] = {engine: {count: [] for count in folders} for engine in ENGINES}
    work = [(engine, count) for engine in ENGINES for count in folders]
    receipts: dict[int, set[bytes]] = {count: set() for count in folders}
    for number in range(rounds):
        for engine, count in random.sample(work, len(work)):
            out = scratch / f"{number}-{engine}-{count}.leadline"
            cost = scan(engine, folders[count], out, group)
            receipts[count].add((out / "receipts.jsonl").read_bytes())
            shutil.rmtree(out)
            found[engine][count].append({"wall_s": round(cost.wall_s, 3), "cpu_s": round(cost.cpu_s, 3)})
            print(f"{engine:<8} {count:>4} files: {cost.wall_s:7.2f} s, {cost.cpu_s:7.2f} s of CPU", flush=True)
    assert all(len(of_count) == 1 for of_count in receipts.values()), "the engines wrote other files"
    return found


def scan(engine: str, folder: Path, out: Path, group: Group) -> Cost:
    line = [sys.executable, "-m", "leadline", "page", "scan", str(folder), "-o", str(out)]
    line += ["--engine", "threads" if engine == "threads" else "ray"]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    with running_cluster() if engine == "cluster" else nullcontext() as address:
        if address:
            environment["RAY_ADDRESS"] = address
            warm = "import ray; ray.init(log_to_driver=False); ray.get(ray.remote(lambda: 1).remote()); ray.shutdown()"
            run([sys.executable, "-c", warm], environment)
        before, cpu, began = group.wait_for(), group.cpu_s(), time.monotonic()
        run(line, environment)
        wall = time.monotonic() - began
        group.wait_for(before)
        return Cost(wall, group.cpu_s() - cpu)


def run(line: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


@contextmanager
def running_cluster() -> Iterator[str]:
    """Of one node with the CPUs of this host: its address."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": os.cpu_count(), "object_store_memory": 200 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


class Group:
    """This process and all that it starts, whoever their parent is: a control group, which has the CPU of those that ended, too."""

    def __init__(self) -> None:
        self._place = CONTROLLER / f"leadline-bench-{os.getpid()}"
        self._place.mkdir()
        (self._place / "cgroup.procs").write_text(str(os.getpid()))

    def cpu_s(self) -> float:
        return int((self._place / "cpuacct.usage").read_text()) / 1e9

    def wait_for(self, processes: int | None = None) -> int:
        """Until there are no more processes than that; without a number, until none ends for a second. How many there are."""
        there, since = self._count(), time.monotonic()
        deadline = since + 60
        while (there > processes if processes is not None else time.monotonic() < since + 1) and time.monotonic() < deadline:
            time.sleep(0.02)
            if (now := self._count()) != there:
                there, since = now, time.monotonic()
        return there

    def _count(self) -> int:
        return len((self._place / "cgroup.procs").read_text().split())

    def remove(self) -> None:
        (CONTROLLER / "cgroup.procs").write_text(str(os.getpid()))
        with suppress(OSError):
            self._place.rmdir()


def report(found: dict[str, dict[int, list[dict[str, float]]]]) -> dict[str, dict[int, dict[str, float]]]:
    medians = {
        engine: {count: {key: statistics.median(run[key] for run in runs) for key in ("wall_s", "cpu_s")} for count, runs in counts.items()}
        for engine, counts in found.items()
    }
    for count in next(iter(medians.values())):
        base = medians["threads"][count]["cpu_s"]
        print(f"{count} files:")
        for engine, of in medians.items():
            wall, cpu = of[count]["wall_s"], of[count]["cpu_s"]
            print(f"  {engine:<8} {wall:6.2f} s, CPU {cpu:6.2f} s ({cpu - base:+.2f})")
    fixed, each = line_through({count: of["wall_s"] for count, of in medians["cluster"].items()})
    _, alone = line_through({count: of["wall_s"] for count, of in medians["threads"].items()})
    own, _ = line_through({count: of["wall_s"] for count, of in medians["threads"].items()})
    gain = alone - each / 2
    print(f"threads: {own:.2f} s and {alone:.4f} s a file; a cluster that runs: {fixed:.2f} s and {each:.4f} s a file")
    if gain > 0:
        files = (fixed - own) / gain
        print(f"two machines such as this one would be faster from {files:.0f} files of 64 MB on ({files * FILE / 1e9:.1f} GB)")
    else:
        print("two machines would not be faster")
    return medians


def line_through(points: dict[int, float]) -> tuple[float, float]:
    """Where it begins, and how much each file adds: through the smallest and the largest number of files."""
    few, many = min(points), max(points)
    each = (points[many] - points[few]) / max(1, many - few)
    return points[few] - few * each, each


if __name__ == "__main__":
    sys.exit(main())
