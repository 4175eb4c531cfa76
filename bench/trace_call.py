"""Measures what a trace adds to one system call, in ns of CPU time of the caller.

    python bench/trace_call.py                   6 rounds, about two minutes
    python bench/trace_call.py --rounds 2        does everything work?

A program calls in batches of 5,000 on one CPU and gives the least CPU time of 30 batches: what interrupts, other programs and cold caches
add is in the others. It runs bare, while a process that does nothing is traced (what the trace costs all others), and traced itself, with
single calls and with sums. semget fails; pwrite writes a byte to /dev/zero, so that its file is looked up. The order in each round is drawn
at random. Output: JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leadline import _core
from leadline.capture.manifest import Clock, Manifest, Target, write_manifest
from record import read_environment, start_as_installed

CALLER = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sem.h>
#include <time.h>
#include <unistd.h>
static double cpu_ns(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int main(int argc, char **argv) {
  int writes = atoi(argv[1]), zero = open("/dev/zero", O_RDWR);
  char byte;
  cpu_set_t first;
  CPU_ZERO(&first); CPU_SET(0, &first); sched_setaffinity(0, sizeof first, &first);
  setvbuf(stdout, NULL, _IONBF, 0);
  while (read(0, &byte, 1) == 1) {
    double least = 1e18;
    for (int batch = 0; batch < 30; batch++) {
      double from = cpu_ns();
      for (int i = 0; i < 5000; i++)
        if (writes ? pwrite(zero, &byte, 1, 0) != 1 : semget(0x10cabb74, 1, 0) >= 0) return 1;
      double each = (cpu_ns() - from) / 5000;
      if (each < least) least = each;
    }
    printf("%f\n", least);
  }
  return 0;
}
"""
WAYS = ("bare", "another", "events", "sums")
RING = 1 << 26


@contextmanager
def traced(way: str, pid: int) -> Iterator[None]:
    """`another`: a process that sleeps is traced in place of the caller."""
    if way == "bare":
        yield
        return
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        with tempfile.TemporaryDirectory() as folder:
            write_manifest(Path(folder), Manifest(Target("process"), clock=Clock(0, 1)))
            of = sleeper.pid if way == "another" else pid
            probe = _core.kernel.KernelProbe(folder, [of], tier="bpf", events=way != "sums", ring_bytes=RING)
            probe.start()
            try:
                yield
            finally:
                lost = probe.stop()["loss"]["records_lost"]
                if lost:
                    raise RuntimeError(f"{lost} events were lost: this is no figure")
    finally:
        sleeper.kill()
        sleeper.wait()


def measure(program: Path, writes: bool, rounds: int, rng: random.Random) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with subprocess.Popen([program, str(int(writes))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdin is not None and caller.stdout is not None
        for _ in range(rounds):
            for way in rng.sample(WAYS, len(WAYS)):
                with traced(way, caller.pid):
                    caller.stdin.write("x")
                    caller.stdin.flush()
                    found[way].append(float(caller.stdout.readline()))
        caller.stdin.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_as_installed()
    rng, environment, results = random.Random(options.seed), read_environment(), []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "caller"
        program.with_suffix(".c").write_text(CALLER)
        subprocess.run(["cc", "-O2", "-o", program, program.with_suffix(".c")], check=True)
        for call in ("semget", "pwrite"):
            ns = measure(program, call == "pwrite", options.rounds, rng)
            added = {way: sorted(a - b for a, b in zip(ns[way], ns["bare"])) for way in WAYS[1:]}
            results.append({"call": call, "ns": ns, "added_ns": added})
            middle = {way: f"{statistics.median(values):.0f} [{values[0]:.0f}, {values[-1]:.0f}]" for way, values in added.items()}
            print(f"{call}: bare {statistics.median(ns['bare']):.0f} ns, added {middle}", file=sys.stderr)
    json.dump({"environment": environment, "options": vars(options), "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
