"""Runs a load of a load file with direct I/O on real files, for bench/storage_arrays.py: the steps that the simulator takes, one for one.

Prints a line of JSON: what was done in the measured time, and what of it reached each device.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Done:
    """What a thread has done in the measured time. Times are seconds."""

    reads: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    transactions: list[float] = field(default_factory=list)


class Part:
    """An object's part of a LUN."""

    def __init__(self, file: int, begin: int, size: int) -> None:
        self.file, self.begin, self.size = file, begin, size


def objects_of(layout: dict[str, Any], folder: Path) -> dict[str, list[Part]]:
    """Objects lie in their LUNs one behind the other, by name, in equal shares: as the simulator puts them."""
    on_lun: dict[str, list[str]] = {}
    for name, luns in sorted(layout["place"].items()):
        for lun in luns:
            on_lun.setdefault(lun, []).append(name)
    files = {lun: os.open(folder / lun, os.O_RDWR | os.O_DIRECT) for lun in on_lun}
    sizes = {lun: os.fstat(file).st_size for lun, file in files.items()}
    out: dict[str, list[Part]] = {}
    for name, luns in sorted(layout["place"].items()):
        for lun in luns:
            share = sizes[lun] // len(on_lun[lun]) // 65536 * 65536
            out.setdefault(name, []).append(Part(files[lun], on_lun[lun].index(name) * share, share))
    return out


class Thread(threading.Thread):
    def __init__(
        self, number: int, load: dict[str, Any], objects: dict[str, list[Part]], begin: float, end: float, go: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self.number, self.load, self.objects, self.begin, self.end, self.go = number, load, objects, begin, end, go
        self.random, self.done, self.problem = random.Random(number), Done(), ""
        self.cursors: dict[str, int] = {}
        self.buffers = {step.get("kb", 8): mmap.mmap(-1, step.get("kb", 8) * 1024) for step in load["step"]}
        self.wanted = threading.Event()

    def run(self) -> None:
        self.wanted.set()
        self.go.wait()
        # A file system may choose the copy that it reads by the number of the thread: even and odd ones are as many.
        if threading.get_native_id() % 2 != self.number % 2:
            self.problem = "parity"
            return
        try:
            while time.monotonic() < self.end:
                self._transaction()
        except OSError as e:
            self.problem = str(e)

    def _transaction(self) -> None:
        began = time.monotonic()
        for step in self.load["step"]:
            whole = int(step.get("count", 1))
            for _ in range(whole + (self.random.random() < step.get("count", 1) - whole)):
                self._request(step)
        self._note(self.done.transactions, began)

    def _request(self, step: dict[str, Any]) -> None:
        parts, kb = self.objects[step["object"]], step.get("kb", 8)
        if step.get("pattern") == "sequential":
            part = parts[self.number % len(parts)]
            first = self.number // len(parts) * 0x9E37_79B9
            slot = self.cursors[step["object"]] = self.cursors.get(step["object"], first) + 1
        else:
            part, slot = self.random.choice(parts), self.random.getrandbits(40)
        at = part.begin + slot % (part.size // (kb * 1024)) * kb * 1024
        began = time.monotonic()
        if step["op"] == "read":
            os.preadv(part.file, [self.buffers[kb]], at)
            self._note(self.done.reads, began)
        else:
            os.pwritev(part.file, [self.buffers[kb]], at)
            self._note(self.done.writes, began)

    def _note(self, times: list[float], began: float) -> None:
        now = time.monotonic()
        if self.begin <= now < self.end:
            times.append(now - began)


def threads_of(count: int, make: Any) -> list[Thread]:
    """Threads whose numbers in the kernel are even and odd in turn. Others end at once."""
    out: list[Thread] = []
    while len(out) < count:
        thread = make(len(out))
        thread.start()
        thread.wanted.wait()
        if thread.native_id % 2 == len(out) % 2:
            out.append(thread)
    return out


def requests_of(devices: list[str]) -> dict[str, tuple[int, int]]:
    """Reads and writes that each device has completed."""
    lines = [line.split() for line in Path("/proc/diskstats").read_text().splitlines()]
    return {line[2]: (int(line[3]), int(line[7])) for line in lines if line[2] in devices}


def quantiles(times: list[float]) -> dict[str, float] | None:
    ordered = sorted(times)
    at = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    if not ordered:
        return None
    return {"mean": 1e3 * sum(ordered) / len(ordered)} | {
        name: 1e3 * ordered[int(share * (len(ordered) - 1))] for name, share in at.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs a load with direct I/O on the LUNs of a layout, which are files in a folder.")
    parser.add_argument("layout", type=Path)
    parser.add_argument("loads", type=Path)
    parser.add_argument("load")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--devices", default="")
    args = parser.parse_args()
    layout = tomllib.loads(args.layout.read_text())
    load = next(load for load in tomllib.loads(args.loads.read_text())["load"] if load["name"] == args.load)
    objects, go = objects_of(layout, args.folder), threading.Event()
    began_us = time.time_ns() // 1000
    begin = time.monotonic() + 1 + args.warm_up
    end = begin + args.seconds
    threads = threads_of(load["threads"], lambda number: Thread(number, load, objects, begin, end, go))
    time.sleep(max(0.0, begin - args.warm_up - time.monotonic()))
    go.set()
    devices = args.devices.split(",") if args.devices else []
    time.sleep(max(0.0, begin - time.monotonic()))
    before = requests_of(devices)
    time.sleep(max(0.0, end - time.monotonic()))
    after = requests_of(devices)
    for thread in threads:
        thread.join(60)
    problems = [thread.problem for thread in threads if thread.problem]
    if problems:
        raise SystemExit(f"error: {problems[0]}")
    reads = [s for thread in threads for s in thread.done.reads]
    writes = [s for thread in threads for s in thread.done.writes]
    transactions = [s for thread in threads for s in thread.done.transactions]
    drives = [[(after[name][kind] - before[name][kind]) / args.seconds for kind in (0, 1)] for name in devices]
    per_s = {name: len(of) / args.seconds for name, of in (("reads", reads), ("writes", writes), ("transactions", transactions))}
    print(
        json.dumps(
            {"layout": layout["name"], "load": args.load, "began_us": began_us}
            | {"requests_per_s": per_s["reads"] + per_s["writes"]}
            | {f"{name}_per_s": value for name, value in per_s.items()}
            | {"rows_per_s": per_s["transactions"] * load.get("rows", 0)}
            | {"latency_ms": {"read": quantiles(reads), "write": quantiles(writes), "transaction": quantiles(transactions)}}
            | {"drives": [{"reads_per_s": one, "writes_per_s": other} for one, other in drives]}
        )
    )


if __name__ == "__main__":
    main()
