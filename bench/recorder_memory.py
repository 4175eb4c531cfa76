"""Follows the memory of `leadline record` over many short pieces, of one server and of several in one recorder.

    python bench/recorder_memory.py > memory.json                    two servers, 200 pieces of 6 s
    python bench/recorder_memory.py --pieces 10 --servers 1          does everything work?

What a recorder of months does 144 times a day happens each few seconds: a piece ends, pieces become coarse, findings are evaluated. The
servers have sessions that come and go, and statements with new texts all the time, so that what is kept by text or session would show.
A second recorder of the first server runs by itself, without processes for each server. Each second reads /proc of every process that
belongs to a recorder: resident and proportional size, and of what they consist.

A line is fitted to the last two thirds of the time, with its slope in MB an hour; the interval comes from means of a twentieth each, since
values of one second and the next are alike. Output: JSON, and a page of it on stderr. Exit code 1 if memory grows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.recorder.status import status
from record import read_environment, start_as_installed
from recorder_soak import PLACES, SETTINGS, loads

BLOCKS, STUDENT_T = 20, 2.101  # means of which the interval is made; of 95 % with 18 degrees of freedom
EVERY_S = 1.0
MOST_MB = 150.0
GROWS_MB_H = 3.0  # what a line may rise by where nothing grows: the width of its interval in such a run
ARENA = 64 << 20  # heaps of glibc's other arenas begin at multiples of this


def kinds(pid: int) -> dict[str, int]:
    """kB that are resident, by what they are of; and `rss`, `pss`. Raises OSError."""
    found, kind = Counter[str](), ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            name, start = (words[5] if len(words) > 5 else ""), int(words[0].partition("-")[0], 16)
            kind = kind_of(name, start)
        elif words[0] == "Rss:":
            found[kind] += int(words[1])
            found["rss"] += int(words[1])
        elif words[0] == "Pss:":
            found["pss"] += int(words[1])
    return dict(found)


def kind_of(name: str, start: int) -> str:
    if name in ("[heap]", "[stack]"):
        return name.strip("[]")
    if not name:
        return "arenas" if start % ARENA == 0 else "anonymous"
    if name.startswith(("/dev/zero", "/SYSV", "/dev/shm", "/memfd", "/anon_hugepage")):
        return "memory of the server"
    return "DuckDB's code" if "duckdb" in name else "files"


@contextmanager
def churn(server: PrivateServer) -> Iterator[Counter[str]]:
    """Sessions that live for a few statements, each with a text, an application and a table of its own from time to time."""
    stop, counts, rng = threading.Event(), Counter[str](), random.Random(1)

    def client() -> None:
        while not stop.wait(0.15):
            counts["sessions"] += 1
            name = f"visitor {counts['sessions'] % 500}"
            with suppress(psycopg.Error), psycopg.connect(server.dsn, autocommit=True, application_name=name) as db:
                for _ in range(3):
                    counts["texts"] += 1
                    columns = ", ".join(f"{rng.randrange(9)} as c{counts['texts']}_{n}" for n in range(rng.randrange(1, 40)))
                    db.execute(f"select {columns}, pg_sleep(0.02)")

    thread = threading.Thread(target=client, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join(10)


def below(pid: int) -> list[int]:
    """The process and all that it has begun."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def slope(samples: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of (seconds, MB): MB an hour over the last two thirds, with an interval of 95 % from means of blocks."""
    late = samples[len(samples) // 3 :]
    blocks = [late[n * len(late) // BLOCKS : (n + 1) * len(late) // BLOCKS] for n in range(BLOCKS)]
    points = [(statistics.mean(s for s, _ in b) / 3600, statistics.mean(mb for _, mb in b)) for b in blocks]
    x_mean, y_mean = statistics.mean(x for x, _ in points), statistics.mean(y for _, y in points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    rise = sum((x - x_mean) * (y - y_mean) for x, y in points) / spread
    left = sum((y - y_mean - rise * (x - x_mean)) ** 2 for x, y in points)
    half = STUDENT_T * math.sqrt(left / (len(points) - 2) / spread)
    return {"mb_per_hour": round(rise, 2), "low": round(rise - half, 2), "high": round(rise + half, 2)}


def judged(sizes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one process that lives as long as the recorder."""
    thirds = [sizes[n * len(sizes) // 3 : (n + 1) * len(sizes) // 3] for n in range(3)]

    def medians(key: str) -> list[float]:
        return [round(statistics.median(one.get(key, 0) for one in third) / 1024, 1) for third in thirds]

    names = sorted({key for one in sizes for key in one} - {"at_s", "files", "threads"})
    return {
        "samples": len(sizes), "median_mb_by_third": {name: medians(name) for name in names},
        "rss_mb_most": round(max(one["rss"] for one in sizes) / 1024, 1),
        "rss_slope": slope([(one["at_s"], one["rss"] / 1024) for one in sizes]),
        "pss_slope": slope([(one["at_s"], one["pss"] / 1024) for one in sizes]),
        "files": [statistics.median(one["files"] for one in third) for third in thirds],
        "threads": [statistics.median(one["threads"] for one in third) for third in thirds],
    }  # fmt: skip


def follow(roots: dict[str, subprocess.Popen[bytes]], seconds: float) -> dict[str, Any]:
    """What the processes of each recorder had, second by second."""
    sizes: dict[str, dict[int, list[dict[str, Any]]]] = {name: defaultdict(list) for name in roots}
    together: dict[str, list[tuple[float, float]]] = {name: [] for name in roots}
    began = time.monotonic()
    while (now_s := time.monotonic() - began) < seconds:
        for name, root in roots.items():
            if root.poll() is not None:
                raise RuntimeError(f"{name} ended with code {root.returncode}")
            pss = 0.0
            for pid in below(root.pid):
                with suppress(OSError, IndexError):
                    one: dict[str, Any] = kinds(pid)
                    if not one.get("rss"):
                        continue
                    place = Path(f"/proc/{pid}")
                    one |= {"at_s": now_s, "files": len(list((place / "fd").iterdir())), "threads": len(list((place / "task").iterdir()))}
                    sizes[name][pid].append(one)
                    pss += one["pss"] / 1024
            together[name].append((now_s, pss))
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - began - now_s)))
    found: dict[str, Any] = {}
    for name, of in sizes.items():
        lives = {pid: one for pid, one in of.items() if one[-1]["at_s"] - one[0]["at_s"] >= 0.8 * seconds}
        found[name] = {
            "processes": [judged(one) for _, one in sorted(lives.items())],
            "all_pss_mb_most": round(max(mb for _, mb in together[name]), 1), "all_pss_slope": slope(together[name]),
            "processes_that_ended": len(of) - len(lives),
            "series": [{key: round(one[key] / 1024, 2) if key != "at_s" else round(one[key], 1) for key in ("at_s", "rss", "pss")}
                       for one in max(lives.values(), key=len)[::5]],
        }  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pieces", type=int, default=200)
    parser.add_argument("--piece", type=float, default=6.0, metavar="S", help="length of a piece")
    parser.add_argument("--servers", type=int, default=2, help="of the recorder that has several; 1: only the one of a single server")
    parser.add_argument("--pg-bin", type=Path)
    options = parser.parse_args()
    start_as_installed()
    environment, binaries, seconds = read_environment(), find_binaries(options.pg_bin), options.pieces * options.piece
    piece = options.piece
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        work = Path(name)
        os.environ["LEADLINE_BOOK"] = str(work / "book")
        servers = [stack.enter_context(PrivateServer(binaries.bin_dir, settings=SETTINGS)) for _ in range(options.servers)]
        counts = []
        for server in servers:
            with psycopg.connect(server.dsn, autocommit=True) as db:
                db.execute("create table account as select n as id, 0 as v, md5(n::text) as t from generate_series(1, 20000) n")
                db.execute("create unique index on account (id)")
            counts += [stack.enter_context(loads(server)), stack.enter_context(churn(server))]
        words = [f"--piece={piece:g}s", f"--keep-detail={10 * piece:g}s", f"--keep-seconds={30 * piece:g}s"]
        words += [f"--keep={60 * piece + 120:g}s", "--findings-every=20s", "--detail-budget=0s", "--max-size=1GB", "--keep-free=100MB"]
        wanted = {"one": [servers[0].dsn]} | ({"several": [server.dsn for server in servers]} if options.servers > 1 else {})
        roots = {}
        for recorder, dsns in wanted.items():
            with open(work / f"{recorder}.txt", "wb") as out:
                command = [sys.executable, "-m", "leadline", "record", *dsns, f"--to={work / recorder}", *words]
                roots[recorder] = subprocess.Popen(command, stdout=out, stderr=out)
            stack.callback(lambda root=roots[recorder]: root.poll() is None and root.kill())
        found = follow(roots, seconds)
        for root in roots.values():
            root.send_signal(signal.SIGTERM)
        codes = {recorder: root.wait(120) for recorder, root in roots.items()}
        told = status(work / "one")
        result = {
            "environment": environment, "pieces": options.pieces, "piece_s": piece, "servers": options.servers, "seconds": seconds,
            "load": [dict(one) for one in counts], "codes": codes, "levels": told["levels"], "coarser": told["coarser"],
            "findings": {k: v for k, v in (told["findings"] or {}).items() if k not in ("events", "open")}, "removed": told["removed"],
        } | found  # fmt: skip
    print(PLACES.sub(".../", json.dumps(result, indent=1, ensure_ascii=False)))
    problems = list(problems_of(found))
    for recorder in roots:
        for number, one in enumerate(found[recorder]["processes"]):
            print(f"{recorder} {number}: {one['rss_slope']} {one['median_mb_by_third']}", file=sys.stderr)
    print("\n".join(problems) or "memory is flat", file=sys.stderr)
    return 1 if problems else 0


def problems_of(found: dict[str, Any]) -> Iterator[str]:
    for recorder, of in found.items():
        for number, one in enumerate(of["processes"]):
            if one["rss_slope"]["low"] > 0 and one["rss_slope"]["mb_per_hour"] > GROWS_MB_H:
                yield f"{recorder}, process {number}: grows by {one['rss_slope']['mb_per_hour']} MB an hour"
            if one["rss_mb_most"] > MOST_MB:
                yield f"{recorder}, process {number}: had {one['rss_mb_most']} MB"


if __name__ == "__main__":
    sys.exit(main())
