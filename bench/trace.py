"""Measures what a trace costs the program that is traced: leadline on each tier, `perf trace -s` and `strace -c -f`, each in pairs
with the bare run.

    python bench/trace.py                            10 pairs of each workload with leadline, 4 with the others
    python bench/trace.py --tiers perf               one tier
    python bench/trace.py --tiers bpf,sums,ring,floor --peer-pairs 0    beside the least that such a trace can cost
    python bench/trace.py --pairs 2 --seconds 2      does everything work?

ring: the least that a trace by BPF can do that hands over each event by itself: records with room for a call or a stay off the CPU at the
same tracepoints, with nothing in them (bare_ring.bpf.c; needs clang and libbpf). floor: programs at these tracepoints that return at once:
the least of any trace by tracepoints, sums too. semget: a loop of failing calls, pinned to one CPU: ns per call. select, tpcb: pgbench with
32 clients on a private server; the trace follows the postmaster, and each backend from its fork. The order of each pair is drawn at random.
Output: JSON; ratios are traced by bare.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from leadline import _core
from leadline.capture.manifest import Clock, Manifest, Target, write_manifest
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.host.proc import descendants
from leadline.lab import interleave
from record import read_environment, start_as_installed

SEMGET = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/sem.h>
#include <time.h>
int main(int argc, char **argv) {
  long n = atol(argv[1]);
  char go;
  struct timespec a, b;
  if (fread(&go, 1, 1, stdin) != 1) return 1;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (long i = 0; i < n; i++) semget(0x10cabb74, 1, 0);
  clock_gettime(CLOCK_MONOTONIC, &b);
  printf("%f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
  return 0;
}
"""
# Counts calls and failures, and sums their time: less than a trace records.
BPFTRACE = """
tracepoint:raw_syscalls:sys_enter /comm == "postgres" || comm == "semget"/ { @begin[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@begin[tid]/ {
  @ns[args->id] = sum(nsecs - @begin[tid]); @calls[args->id, args->ret < 0] = count(); delete(@begin[tid]);
}
"""
HERE = Path(__file__).resolve().parent
CALLS = 300_000
NOBODY = 0  # whose calls the bare ring does not look at
CLIENTS, SCALE = 32, 50
SETTINGS = {"fsync": False, "shared_buffers": "2GB", "max_wal_size": "8GB", "max_connections": 60, "autovacuum": False}
Traced = Callable[[int], AbstractContextManager[None]]
seen: dict[str, list[dict[str, Any]]] = {}


@contextmanager
def by_leadline(workload: str, tier: str, pid: int) -> Iterator[None]:
    """With everything that `leadline trace` records; notes how many bytes an event takes."""
    with tempfile.TemporaryDirectory() as folder:
        write_manifest(Path(folder), Manifest(Target("process"), clock=Clock(0, 1)))
        probe = _core.kernel.KernelProbe(folder, sorted(descendants([pid])), tier="bpf" if tier == "sums" else tier, events=tier != "sums")
        probe.start()
        try:
            yield
        finally:
            final = probe.stop()
            loss, size = final["loss"], sum(table["bytes"] for table in final["tables"].values())
            figures = {"events": loss["records"], "lost": loss["records_lost"], "bytes_per_event": size / max(loss["records"], 1)}
            seen.setdefault(f"{workload}, {tier}", []).append(figures | {"own_cpu_s": final["cpu_ns"] / 1e9})


def build_ring(folder: Path) -> list[str]:
    """The command, without the process."""
    program, records = Path(folder) / "bare_ring", HERE.parent / "crates" / "kernel" / "bpf"
    of_machine = f"-I/usr/include/{platform.machine()}-linux-gnu"
    compiled = ["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", of_machine, f"-I{records}", "-c", HERE / "bare_ring.bpf.c"]
    subprocess.run([*compiled, "-o", program.with_suffix(".o")], check=True)
    subprocess.run(["cc", "-O2", "-o", program, HERE / "bare_ring.c", "-lbpf"], check=True)
    return [str(program), str(program.with_suffix(".o"))]


@contextmanager
def by_ring(command: list[str], what: str, pid: int) -> Iterator[None]:
    with subprocess.Popen([*command, "-p", str(pid)], stdout=subprocess.PIPE, text=True) as ring:
        assert ring.stdout is not None
        if ring.stdout.readline() != "begun\n":
            raise RuntimeError("the bare ring buffer could not be attached")
        try:
            yield
        finally:
            ring.send_signal(signal.SIGINT)
            said = re.search(r"(\d+) records, (\d+) lost", ring.stdout.read())
            if said:
                seen.setdefault(what, []).append({"events": int(said[1]), "lost": int(said[2])})


def tracer(tier: str, workload: str, ring: list[str]) -> tuple[str, Traced]:
    """Its name, and what traces a process."""
    if tier == "ring":
        return "bare ring", lambda pid: by_ring(ring, f"{workload}, ring", pid)
    if tier == "floor":
        return "floor", lambda _pid: by_ring(ring, f"{workload}, floor", NOBODY)
    return f"leadline, {tier}", lambda pid: by_leadline(workload, tier, pid)


@contextmanager
def by_peer(command: list[str], begun: str) -> Iterator[None]:
    """A tool that follows the process and its children and counts, from the moment it is seen to trace: as a debugger does, or by perf."""
    with tempfile.TemporaryFile("w+") as said:
        peer = subprocess.Popen(command, stdout=said, stderr=said)
        pid = command[command.index("-p") + 1]
        while not _attached(pid, peer.pid, begun):
            if peer.poll() is not None:
                said.seek(0)
                raise RuntimeError(f"{command[0]} ended: {said.read()[-300:]}")
        try:
            yield
        finally:
            ended = False
            while not ended:  # bpftrace does not always take the first one
                peer.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    peer.wait(5)
                    ended = True


def _attached(pid: str, peer: int, begun: str) -> bool:
    if begun == "ptrace":
        return re.search(rf"TracerPid:\s+{peer}\b", Path(f"/proc/{pid}/status").read_text()) is not None
    with suppress(OSError):  # what it has open changes while we look
        return any("perf_event" in str(fd.readlink()) for fd in Path(f"/proc/{peer}/fd").iterdir())
    return False


def peers() -> dict[str, Callable[[int], AbstractContextManager[None]]]:
    found: dict[str, Callable[[int], AbstractContextManager[None]]] = {}
    if shutil.which("perf"):
        found["perf trace -s"] = lambda pid: by_peer(["perf", "trace", "-s", "-p", str(pid)], "perf")
    if shutil.which("strace"):
        found["strace -c -f"] = lambda pid: by_peer(["strace", "-c", "-f", "-p", str(pid)], "ptrace")
    if shutil.which("bpftrace"):
        found["bpftrace"] = lambda pid: by_peer(["bpftrace", "-p", str(pid), "-e", BPFTRACE], "perf")
    return found


def semget(program: Path, traced: Traced | None) -> float:
    """ns per call."""
    command = ["taskset", "-c", "0", str(program), str(CALLS)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with traced(child.pid) if traced else nullcontext():
        out, _ = child.communicate("x")
    return float(out)


def pgbench(server: PrivateServer, options: list[str], seconds: float, traced: Traced | None) -> float:
    """Transactions per second."""
    pid = int((Path(server.data_dir) / "postmaster.pid").read_text().split()[0])
    program = Path(server.bin_dir) / "pgbench"
    command = [str(program), "-n", "-c", str(CLIENTS), "-j", "2", "-T", str(round(seconds)), *options, server.dsn]
    with traced(pid) if traced else nullcontext():
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"tps = ([\d.]+)", out)
    return float(found[1]) if found else 0.0  # not one transaction ended


def compare(name: str, tool: str, run: Callable[[Traced | None], float], traced: Traced, pairs: int, rng: random.Random) -> dict[str, Any]:
    trials = []
    for trial in interleave.trials(lambda: run(None), lambda: run(traced), pairs, rng):
        trials.append(trial)
        print(f"{name}: {tool if trial.on else 'bare'} {trial.result:,.0f}", file=sys.stderr)
    found = interleave.compare(trials, lambda value: value)
    return {"workload": name, "tool": tool, "bare": found.bare, "traced": found.variant, "ratio": asdict(found.ratio)} | (
        {"added": [b - a for a, b in _pairs(trials)]} if name == "semget" else {}
    )


def _pairs(trials: list[interleave.Trial[float]]) -> list[tuple[float, float]]:
    by_pair: dict[int, dict[bool, float]] = {}
    for trial in trials:
        by_pair.setdefault(trial.pair, {})[trial.on] = trial.result
    return [(pair[False], pair[True]) for pair in by_pair.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--peer-pairs", type=int, default=4)
    parser.add_argument("--tiers", default="bpf,sums,perf", help="of leadline; sums: bpf with --kernel-detail sums; and ring, floor")
    parser.add_argument("--seconds", type=float, default=6, help="of each run of pgbench")
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pgbench")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_as_installed()
    rng, environment, results = random.Random(options.seed), read_environment(), []
    binaries = find_binaries(options.pg_bin)
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "semget.c", Path(folder) / "semget"
        source.write_text(SEMGET)
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        tiers = options.tiers.split(",")
        ring = build_ring(Path(folder)) if {"ring", "floor"} & {*tiers} else []
        with PrivateServer(binaries.bin_dir, settings=SETTINGS) as server:
            tables = [binaries.bin_dir / "pgbench", "-i", "-q", "-s", str(SCALE), server.dsn]
            subprocess.run(tables, check=True, capture_output=True)
            workloads: dict[str, Callable[[Traced | None], float]] = {
                "semget": lambda traced: semget(program, traced),
                "select": lambda traced: pgbench(server, ["-S"], options.seconds, traced),
                "tpcb": lambda traced: pgbench(server, [], options.seconds, traced),
            }
            for name, run in workloads.items():
                for tier in tiers:
                    tool, ours = tracer(tier, name, ring)
                    results.append(compare(name, tool, run, ours, options.pairs, rng))
                for tool, traced in peers().items() if options.peer_pairs else ():
                    results.append(compare(name, tool, run, traced, min(options.peer_pairs, options.pairs), rng))
    json.dump({"environment": environment, "options": vars(options), "results": results, "leadline": seen}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
