"""Projects a record of bench/recover.py to more cores and a longer log. Nothing is measured: it is arithmetic, and says what it assumes.

    python bench/projection.py bench/runs/2026-11-24-6/recover.json
    python bench/projection.py RECORD --cores 16 --log-tb 1 --database-gb 200 --read 6 --write 3

It prints a table for the README of the record: one row for a load and a disk, and the assumptions below it. A time is a range. The least:
threads scale perfectly, and CPU and disk work at the same time all the time. The most: what did not scale from one thread to two never
scales (Amdahl), and CPU and disk wait for each other.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

NAMES = {"tpcb": "`tpcb`", "hot": "`hot`, one hot table", "images": "`images`", "inserts": "`inserts`", "larger": "`larger` than memory"}
PAGE = 8192


def serial_share(speedup: float) -> float:
    """Of the work of one thread, when two take 1 / speedup of its time."""
    return min(1.0, max(0.0, 2 / speedup - 1))


def project(load: dict[str, Any], serial: float, read: float, write: float, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds. read and write: bytes per second of the disk."""
    runs, report = load["runs"], load["report"]
    log = arguments.log_tb * 1e12
    times = log / report["wal_bytes"]
    cpu_s = statistics.median(run["leadline"]["cpu_s"] for run in runs) * times
    kept = report["kept_bytes"] * times
    spilled = kept if kept > arguments.memory_gb * 1e9 else 0
    database = arguments.database_gb * 1e9
    disk_s = log / read + spilled / write + spilled / read + min(report["pages_written"] * PAGE * times, database) / write
    amdahl_s = cpu_s * (serial + (1 - serial) / arguments.cores)
    server_s = max(statistics.median(run["server"]["wall_s"] for run in runs) * times, log / read)
    return {"server": server_s, "least": max(cpu_s / arguments.cores, disk_s), "most": amdahl_s + disk_s, "disk": disk_s, "cpu": cpu_s}


def minutes(seconds: float) -> str:
    return f"{seconds / 60:,.0f} min"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="what bench/recover.py printed, with the load `threads` among others")
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--memory-gb", type=float, default=64, help="for records")
    parser.add_argument("--log-tb", type=float, default=1)
    parser.add_argument("--database-gb", type=float, default=200, help="no more pages than that are written")
    parser.add_argument("--read", type=float, default=6, help="GB/s of the faster disk")
    parser.add_argument("--write", type=float, default=3)
    arguments = parser.parse_args()
    record = json.loads(arguments.record.read_text())
    loads = {load["load"]: load for load in record["results"]}
    speedup = loads["threads"]["speedup_command"]["median"]
    serial = serial_share(speedup)
    here = record["bytes_per_s"]
    disks = [("of the record", here["read"], here["write"]), ("assumed", arguments.read * 1e9, arguments.write * 1e9)]
    print("| load | disk (read, write) | server | leadline | ratio | CPU | disk alone |\n|---|---|---|---|---|---|---|")
    for name, load in loads.items():
        for which, read, write in disks if name in NAMES else []:
            found = project(load, serial, read, write, arguments)
            ratio = f"{found['server'] / found['most']:.1f} to {found['server'] / found['least']:.1f}"
            speed = f"{which}: {read / 1e9:.1f}, {write / 1e9:.1f} GB/s"
            took = f"{minutes(found['least'])} to {minutes(found['most'])}"
            seconds = [minutes(found[what]) for what in ("cpu", "disk")]
            print(f"| {NAMES[name]} | {speed} | {minutes(found['server'])} | {took} | {ratio} | {' | '.join(seconds)} |")
    log, cores, memory, database = arguments.log_tb, arguments.cores, arguments.memory_gb, arguments.database_gb
    print(f"""
A **projection, not a measurement**: {log:g} TB of log on {cores} cores, made by `bench/projection.py` of the figures above.
It assumes that

- the log is {log:g} TB of the same records, and CPU time grows with it; the database has {database:g} GB, of which each page is
  written once;
- {memory:g} GB of memory are for records. If they do not fit, all go through the temporary file, which is written and read once, on
  the same disk;
- least: {cores} cores do {cores} times the work of one, and disk and CPU are busy at the same time; most: the {serial:.0%} of the work
  that did not scale from one thread to two ({speedup:.2f} times as fast) never does, and disk and CPU wait for each other;
- the server's own recovery, which is one process, takes as long for each byte of log as it did here, and no less than to read the log.
  That is to its favour where pages do not fit its memory, but for `larger`.""")


if __name__ == "__main__":
    main()
