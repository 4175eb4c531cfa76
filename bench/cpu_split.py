"""Compares the run queue of sessions, as leadline shows it, with what tracepoints of the scheduler say of their processes.

    python bench/cpu_split.py > record.json                 8, 32 and 64 clients, alone and beside a loop on each CPU: some 4 minutes
    python bench/cpu_split.py --seconds 2 --clients 8       does everything work?

`perf record` (root) notes each sched_wakeup and sched_switch while a capture is taken, both on CLOCK_MONOTONIC. From a wakeup or a
preemption to the switch that puts the process on a CPU it was in the run queue. leadline has the same seconds from counters: `queued_s`,
and as the part of database time that sessions waited for a CPU, `shown_s`, whatever state the server gave them. Sums are of the same
time: of each session that between the first and the last reading of its counters. Output: JSON, and a table on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.probes.take import take

SETTINGS = {"fsync": False, "autovacuum": False, "max_connections": 120, "shared_buffers": "256MB"}
LOADS = {"reads": ["-S", "-M", "prepared"], "writes": ["-N", "-M", "prepared"]}
OF_LOAD = "backend_type = 'client backend' and application_name = 'pgbench'"
TRACEPOINTS = "sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch"


@dataclass(frozen=True)
class Compared:
    """Seconds of all backends of the load."""

    load: str
    clients: int
    loops: bool
    traced_s: float
    after_wakeups_s: float
    queued_s: float
    shown_s: float

    @property
    def off(self) -> float:
        return self.shown_s / self.traced_s - 1


def run_queue(lines: Iterable[str], windows: dict[int, tuple[int, int]]) -> tuple[float, float]:
    """Seconds in the run queue of these processes, each within its window, and of them those after a wakeup. lines: of `perf script`."""
    since: dict[int, tuple[int, bool]] = {}  # when it became ready to run, and whether by a wakeup
    running: set[int] = set()
    total = woken = first = ts = 0
    for line in lines:
        time, event, rest = line.split(None, 2)
        seconds, _, nanoseconds = time.rstrip(":").partition(".")
        ts = int(seconds) * 10**9 + int(nanoseconds.ljust(9, "0"))
        first = first or ts
        words = dict(word.split("=", 1) for word in rest.split() if "=" in word)
        if "sched_switch" in event:
            before, after = int(words["prev_pid"]), int(words["next_pid"])
            running.discard(before)
            if before in windows and words["prev_state"].startswith("R"):
                since[before] = (ts, False)
            if after in windows:
                running.add(after)
                begun, by_wakeup = since.pop(after, (None, False))
                if begun is not None:
                    took = max(0, min(ts, windows[after][1]) - max(begun, windows[after][0]))
                    total += took
                    woken += took if by_wakeup else 0
        elif (pid := int(words["pid"])) in windows and pid not in running:
            since.setdefault(pid, (ts, True))
    if first > min(begin for begin, _ in windows.values()) or ts < max(end for _, end in windows.values()):
        raise SystemExit("perf has not seen all of the window")
    return total / 1e9, woken / 1e9


def busy_loops(stack: ExitStack) -> None:
    """One for each CPU; they end with this process."""
    for cpu in sorted(os.sched_getaffinity(0)):
        loop = f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile os.getppid() == {os.getpid()}: [0 for _ in range(100000)]"
        process = stack.enter_context(subprocess.Popen([sys.executable, "-c", loop]))
        stack.callback(process.kill)


def pgbench_of(server: PrivateServer) -> str:
    return shutil.which("pgbench", path=str(server.bin_dir)) or shutil.which("pgbench") or "pgbench"


def compare(server: PrivateServer, load: str, clients: int, loops: bool, seconds: float, folder: Path) -> Compared:
    data, out = folder / "perf.data", folder / f"{load}-{clients}-{loops}.leadline"
    with ExitStack() as stack:
        if loops:
            busy_loops(stack)
        words = [pgbench_of(server), "-n", *LOADS[load], "-c", str(clients), "-j", "2", "-T", "600", server.dsn]
        pgbench = stack.enter_context(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        stack.callback(pgbench.kill)
        control, answer = folder / f"{out.stem}.control", folder / f"{out.stem}.answer"
        os.mkfifo(control)
        os.mkfifo(answer)
        perf = ["perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-e", TRACEPOINTS, "-m", "4M", "-o", str(data)]
        perf += ["-D", "-1", f"--control=fifo:{control},{answer}", "--", "sleep", str(seconds + 5)]
        tracer = stack.enter_context(subprocess.Popen(perf, stderr=subprocess.PIPE))
        with control.open("w") as asks, answer.open() as answers:
            print("enable", file=asks, flush=True)
            assert answers.readline() == "ack\n"
        path = take(pid=server.pid, for_s=seconds, out=out, probes=["sessions"])
        _, errors = tracer.communicate(timeout=60)
    if b"LOST" in errors.upper():
        raise SystemExit(f"perf has lost events: {errors.decode()}")
    capture = open_capture(path)
    try:
        of_load = f"session_id in (select session_id from session where {OF_LOAD})"
        rows = capture.rows(f"""
            select any_value(s.pid) as pid, min(q.ts_from) as ts_from, max(q.ts) as ts_to
            from session_queue q join session s using (session_id) where {OF_LOAD} group by session_id""")
        windows = {row["pid"]: (row["ts_from"], row["ts_to"]) for row in rows}
        queued = capture.scalar(f"select sum(queue_s) from session_queue where {of_load}")
        shown = capture.scalar(f"select sum(cpu_queue_s) from db_time where {OF_LOAD}")
    finally:
        capture.close()
    script = ["perf", "script", "-i", str(data), "-F", "time,event,trace", "--ns"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as events:
        assert events.stdout is not None
        traced, woken = run_queue(events.stdout, windows)
    data.unlink()
    return Compared(load, clients, loops, *(round(float(value), 4) for value in (traced, woken, queued, shown)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pg-bin", help="folder with postgres and initdb")
    parser.add_argument("--clients", default="8,32,64")
    parser.add_argument("--seconds", type=float, default=8)
    options = parser.parse_args()
    rows: list[Compared] = []
    with PrivateServer(find_binaries(options.pg_bin).bin_dir, settings=SETTINGS) as server, tempfile.TemporaryDirectory() as work:
        subprocess.run([pgbench_of(server), "-i", "-q", "-s", "5", server.dsn], check=True, capture_output=True)
        for loops in (False, True):
            for load in LOADS:
                for clients in map(int, options.clients.split(",")):
                    rows.append(compare(server, load, clients, loops, options.seconds, Path(work)))
                    r = rows[-1]
                    traced = f"traced {r.traced_s:8.3f} s ({r.after_wakeups_s:8.3f} after wakeups)"
                    ours = f"counted {r.queued_s:8.3f} s, shown {r.shown_s:8.3f} s ({100 * r.off:+.1f} %)"
                    print(f"{r.load:6} {r.clients:3} clients{' and loops' if r.loops else '':10} {traced}, {ours}", file=sys.stderr)
    json.dump({"options": vars(options), "result": [asdict(row) for row in rows]}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
