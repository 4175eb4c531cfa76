"""What `findings`, `show`, `threads` and `report` cost on a trace of 59 million calls: seconds, CPU seconds, peak memory.

    .venv/bin/python bench/large_trace.py --make DIR               writes DIR/calls.leadline, in about ten minutes
    .venv/bin/python bench/large_trace.py --make DIR --millions 2  a smaller one
    .venv/bin/python bench/large_trace.py DIR                      measures each command
    .venv/bin/python bench/large_trace.py DIR --beside OLD --pairs 3
                     beside another build, in interleaved pairs; OLD is the Python of a virtual environment with it

The trace is synthetic, with the rows that a recorder writes: 16 threads of two processes for 120 s. Of their calls, half find out
something (getppid, semget of a set that is not there), and half read, write, poll, wait for semaphores and futexes, or close what is not
open; one in twelve sleeps. Each file is known. The rows of a second are made once and written with new times for each second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from leadline.lab import interleave

SECOND = 1_000_000_000
BEGIN, SECONDS, SEGMENT_S = 1_000 * SECOND, 120, 4
PROCESSES, THREADS = (4711, 4712), 8
# Name, number, out of 100 calls, what it returns, whether its first argument is a descriptor, of how many one sleeps.
CALLS = (
    ("getppid", 110, 25, 1, False, 0),
    ("semget", 64, 22, -2, False, 0),
    ("read", 0, 16, 4096, True, 8),
    ("write", 1, 12, 4096, True, 40),
    ("epoll_wait", 232, 6, 1, False, 2),
    ("semop", 65, 4, 0, False, 2),
    ("futex", 202, 5, 0, False, 2),
    ("recvfrom", 45, 5, 120, True, 4),
    ("close", 3, 5, -9, False, 0),
)
FILES = tuple((n, f"/srv/data/{n:04}.dat", "file") for n in range(1, 40)) + ((40, "tcp 10.0.0.1:5432 to 10.0.0.2:41000", "socket"),)
COMMANDS = (("findings",), ("show",), ("threads",), ("threads", "4711"), ("report",))


def rows_of_second(chance: random.Random, calls: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Calls and sleeps of all threads in one second that begins at 0."""
    kinds = [kind for kind in CALLS for _ in range(kind[2])]
    threads = len(PROCESSES) * THREADS
    step = SECOND * threads // calls
    made, stays = [], []
    for i in range(calls):
        _, nr, _, ret, on_file, sleeps_one_in = chance.choice(kinds)
        thread, end = 1 + i % threads, (i // threads + 1) * step
        slept = bool(sleeps_one_in) and chance.randrange(sleeps_one_in) == 0
        took = chance.randrange(step // 8, step) if slept else chance.randrange(150, 900)
        sleep = took * 3 // 4 if slept else 0
        runq = took // 8 if slept else 0
        file = chance.randrange(1, len(FILES) + 1) if on_file else 0
        made.append((end, took, thread, nr, ret, sleep, runq, 0, int(slept), 3 + file, 64, 4096, 0, 0, 0, 0, file))
        if slept:
            stays.append((end - took // 16, sleep + runq, sleep, thread, 1, nr, 1 + nr % 3, 1000 + (thread + 1) % threads, 0, thread % 2))
    return made, stays


def make(directory: Path, calls: int) -> None:
    from leadline._core.capture import TableWriter
    from leadline.capture.manifest import Manifest, ProbeState, Target, write_manifest

    path, chance = directory / "calls.leadline", random.Random(1)
    path.mkdir(parents=True)
    manifest = Manifest(Target("process", "load 4711", PROCESSES[0], 2), status="complete")
    manifest.clock.ts_from, manifest.clock.ts_to, manifest.clock.wall_offset_ns = BEGIN, BEGIN + SECONDS * SECOND, 0
    manifest.probes = {"kernel": ProbeState("ok", tier="bpf"), "self": ProbeState()}
    writers = {table: TableWriter(str(path), table) for table in ("syscall", "off_cpu")}
    second, sleeps = rows_of_second(chance, calls // SECONDS)
    for n in range(SECONDS):
        start = BEGIN + n * SECOND
        for table, rows in (("syscall", second), ("off_cpu", sleeps)):
            for at in range(0, len(rows), 100_000):
                writers[table].append([(row[0] + start, *row[1:]) for row in rows[at : at + 100_000]])
        if (n + 1) % SEGMENT_S == 0:
            for writer in writers.values():
                writer.flush()
    threads = range(1, len(PROCESSES) * THREADS + 1)
    few = {
        "thread": [(t, BEGIN, 1000 + t, PROCESSES[t % 2], 1, BEGIN - SECOND, f"load{t % 4}") for t in threads],
        "thread_time": [thread_time(t, second) for t in threads],
        "syscall_name": [(nr, name) for name, nr, *_ in CALLS],
        "open_file": [(BEGIN, n, PROCESSES[0], kind, name, 0, 2, 0, 100 + n, False, 0, 0) for n, name, kind in FILES],
        "kernel_stack": [(n, f"wait_{n}", [f"wait_{n}", "do_syscall_64"], [n, 9]) for n in (1, 2, 3)],
    }
    for table, rows in few.items():
        writers[table] = TableWriter(str(path), table)
        writers[table].append(rows)
    for table, writer in writers.items():
        manifest.tables[table] = writer.close()
    write_manifest(path, manifest)


def thread_time(thread: int, second: list[tuple[int, ...]]) -> tuple[Any, ...]:
    mine = [row for row in second if row[2] == thread]
    total, sleep, runq = (SECONDS * sum(row[column] for row in mine) for column in (1, 5, 6))
    failed = SECONDS * sum(row[4] < 0 for row in mine)
    user = SECONDS * SECOND - total
    times = (user, total - sleep - runq, 0, runq, sleep, 0, 0, 0)
    sleeps = SECONDS * sum(row[8] for row in mine)
    counts = (len(mine) * SECONDS, failed, sleeps, 0, 0, 0, 0, 0)
    return (BEGIN + SECONDS * SECOND, thread, SECONDS * SECOND, *times, *counts, user, runq, sleeps, False, 0, 0, "other", 0)


def cost(python: str, command: tuple[str, ...], capture: Path) -> dict[str, float]:
    """Seconds, CPU seconds and megabytes of a command."""
    name, *rest = command
    said = [python, "-m", "leadline", name, str(capture), *rest]
    if name == "report":
        said += ["-o", str(capture.parent / "report.html"), "--force"]
    began = time.perf_counter()
    process = subprocess.Popen(said, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, used = os.wait4(process.pid, 0)
    if (code := os.waitstatus_to_exitcode(status)) not in (0, 1):
        assert process.stderr is not None
        raise SystemExit(f"{' '.join(said)} ended with {code}: {process.stderr.read().decode()}")
    return {"wall_s": time.perf_counter() - began, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--millions", type=float, default=59)
    parser.add_argument("--beside", help="Python of another build")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.make:
        make(given.path, int(given.millions * 1e6))
        return
    capture, rng = given.path / "calls.leadline", random.Random(given.seed)
    for command in COMMANDS:
        told: dict[str, Any] = {"command": " ".join(command)}
        new = partial(cost, sys.executable, command, capture)
        if given.beside:
            trials = list(interleave.trials(partial(cost, given.beside, command, capture), new, given.pairs, rng))
            for what in ("wall_s", "cpu_s", "peak_mb"):
                found = interleave.compare(trials, itemgetter(what))
                told[what] = {"old": found.bare, "new": found.variant, "new by old": asdict(found.ratio)}
        else:
            told |= {what: round(value, 2) for what, value in new().items()}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
