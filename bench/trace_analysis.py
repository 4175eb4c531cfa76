"""Measures how fast a trace is analysed: `leadline threads CAPTURE PID` beside `perf script`, each on its own recording of one program.

    python bench/trace_analysis.py                     3 million events, 5 pairs
    python bench/trace_analysis.py --calls 300000      does everything work?

The program makes a mix of calls on one CPU, of which some sleep. leadline has one event for a call and one for a sleep; perf has two for a
call (its entry and its exit) and one for a switch. Both figures are events by CPU seconds of the whole command, with its start-up. The
output of `perf script` goes to /dev/null, as one that reads it would only add to its time. The order of each pair is drawn at random.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from leadline.capture.reader import open_capture
from leadline.lab import interleave
from leadline.probes.trace import trace
from record import read_environment, start_as_installed

PROGRAM = r"""
#include <stdlib.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
  long n = atol(argv[1]);
  struct timespec nap = {0, 1000};
  for (long i = 0; i < n; i += 10) {
    for (int j = 0; j < 5; j++) syscall(SYS_getppid);
    for (int j = 0; j < 3; j++) semget(0x10cabb74, 1, 0);
    close(-1);
    if (i % 100) sched_getcpu(), syscall(SYS_getuid); else nanosleep(&nap, NULL);
  }
  return 0;
}
"""
PERF = ["perf", "record", "-q", "-e", "raw_syscalls:sys_enter,raw_syscalls:sys_exit,sched:sched_switch", "-m", "16M"]


def cpu_s(command: list[str | Path]) -> float:
    """CPU seconds of a command and what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_as_installed()
    rng, environment = random.Random(options.seed), read_environment()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mix.c").write_text("#define _GNU_SOURCE\n#include <sched.h>\n" + PROGRAM)
        subprocess.run(["cc", "-O2", "-o", folder / "mix", folder / "mix.c"], check=True)
        program = ["taskset", "-c", "0", str(folder / "mix"), str(options.calls)]
        capture, _ = trace(command=program, out=folder / "mix.leadline")
        opened = open_capture(capture)
        ours = opened.scalar("select (select count(*) from syscall) + (select count(*) from off_cpu)")
        lost = opened.scalar("select sum(lost_records)::bigint from thread_time")
        pid = opened.scalar("select pid from thread_time join thread_name using (thread_id) order by calls desc limit 1")
        opened.close()
        recorded = folder / "perf.data"
        subprocess.run([*PERF, "-o", recorded, *program], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = subprocess.run(["perf", "script", "-i", recorded, "-F", "event"], check=True, capture_output=True).stdout.count(b"\n")
        analyse: list[str | Path] = [sys.executable, "-m", "leadline", "threads", capture, str(pid)]
        script: list[str | Path] = ["perf", "script", "-i", recorded]
        trials = list(interleave.trials(lambda: lines / cpu_s(script), lambda: ours / cpu_s(analyse), options.pairs, rng))
        found = interleave.compare(trials, lambda value: value)
        size = sum(file.stat().st_size for file in Path(capture).rglob("*.parquet"))
    result = {
        "leadline": {"events": ours, "lost": lost, "events_per_cpu_s": found.variant, "bytes": size},
        "perf script": {"events": lines, "events_per_cpu_s": found.bare},
        "times": asdict(found.ratio), "cpus": os.cpu_count(),
    }  # fmt: skip
    json.dump({"environment": environment, "options": vars(options), "result": result}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
