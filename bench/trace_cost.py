"""Measures what a trace costs in CPU time, and where: of each transaction of pgbench, of each BPF program, and of the reader.

    python bench/trace_cost.py                           6 rounds of 4 s, some seven minutes
    python bench/trace_cost.py --rounds 1 --seconds 1    does everything work?

pgbench -S and TPC-B with 32 clients run bare and traced (each call and sums by BPF, each call by perf events), in random order in each
round. Of each run all CPU time is counted: pgbench's, the server's, and the reader's of the trace. What a saturated machine keeps of its
throughput is about the bare time by the traced one, also when others use the machine meanwhile. Then each workload runs once more while
the kernel itself counts the runs of each program and their time (kernel.bpf_stats_enabled), which adds some 20 ns to each; what a
tracepoint costs before its program begins is not in that.
verified: instructions that the kernel looked at before it took a program, which is what a start waits for. Output: JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from trace import CLIENTS, SCALE, SETTINGS
from typing import Any

from leadline import _core
from leadline.capture.manifest import Clock, Manifest, Target, write_manifest
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.host.proc import descendants
from leadline.lab.paired import ENOUGH_PAIRS
from leadline.lab.signed_rank import signed_rank_ratio
from record import read_environment, start_as_installed

WAYS = ("bare", "events", "sums", "perf")
NR_BPF, OBJ_GET_INFO_BY_FD, ENABLE_STATS = {"x86_64": 321}[platform.machine()], 15, 32
INFO_BYTES, NAME, RUN_TIME, VERIFIED = 224, 64, 192, 216  # struct bpf_prog_info
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    request = attributes.ljust(128, b"\0")
    done: int = libc.syscall(NR_BPF, command, request, len(request))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def programs() -> dict[str, dict[str, int]]:
    """Those that this process has loaded, by name."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one of the list itself is gone
            if str(link.readlink()) == "anon_inode:bpf-prog":
                info = ctypes.create_string_buffer(INFO_BYTES)
                bpf(OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", int(link.name), INFO_BYTES, ctypes.addressof(info)))
                run_ns, runs = struct.unpack_from("=QQ", info.raw, RUN_TIME)
                [verified] = struct.unpack_from("=I", info.raw, VERIFIED)
                found[info.raw[NAME : NAME + 16].rstrip(b"\0").decode()] = {"run_ns": run_ns, "runs": runs, "verified": verified}
    return found


def server_cpu_s(pid: int) -> float:
    """Of the server's processes so far, also of those that ended."""
    ticks = 0
    for one in descendants([pid]):
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{one}/stat").read_text().rpartition(") ")[2].split()[11:15]))
    return ticks * TICK_S


@contextmanager
def traced(way: str, pid: int, found: dict[str, Any]) -> Iterator[None]:
    if way == "bare":
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        write_manifest(Path(folder), Manifest(Target("process"), clock=Clock(0, 1)))
        began = time.thread_time(), time.monotonic()
        probe = _core.kernel.KernelProbe(folder, sorted(descendants([pid])), tier="perf" if way == "perf" else "bpf", events=way != "sums")
        found["start_cpu_s"], found["start_s"] = time.thread_time() - began[0], time.monotonic() - began[1]
        probe.start()
        before = programs()
        try:
            yield
        finally:
            after, found["reader_s"] = programs(), probe.status()["cpu_ns"] / 1e9
            found["programs"] = {
                name: {key: one[key] - before[name][key] for key in ("run_ns", "runs")} | {"verified": one["verified"]}
                for name, one in after.items()
            }
            loss = probe.stop()["loss"]
            found["records"], found["lost"] = loss["records"], loss["records_lost"]


def measure(server: PrivateServer, words: list[str], way: str, seconds: float) -> dict[str, Any]:
    pid = int((Path(server.data_dir) / "postmaster.pid").read_text().split()[0])
    command = [str(Path(server.bin_dir) / "pgbench"), "-n", "-c", str(CLIENTS), "-j", "2", "-T", str(round(seconds)), *words, server.dsn]
    found: dict[str, Any] = {"way": way, "reader_s": 0.0}
    with traced(way, pid, found):
        before, of_server = resource.getrusage(resource.RUSAGE_CHILDREN), server_cpu_s(pid)
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + server_cpu_s(pid) - of_server
    done = int(next(line.split()[-1].split("/")[0] for line in out.splitlines() if "actually processed" in line))
    return found | {"transactions": done, "us_each": cpu_s / done * 1e6, "us_each_with_reader": (cpu_s + found["reader_s"]) / done * 1e6}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    middle = {way: statistics.median(run["us_each_with_reader"] for run in runs if run["way"] == way) for way in WAYS}
    each = {way: [run["us_each_with_reader"] for run in runs if run["way"] == way] for way in WAYS}
    kept = {way: signed_rank_ratio(list(zip(each[way], each["bare"]))) for way in WAYS}
    return {
        "us_each_with_reader": middle,
        "kept": {way: asdict(ratio) if ratio.pairs >= ENOUGH_PAIRS else {"estimate": ratio.estimate} for way, ratio in kept.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4, help="of each run of pgbench")
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pgbench")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_as_installed()
    rng, environment, results = random.Random(options.seed), read_environment(), []
    with PrivateServer(find_binaries(options.pg_bin).bin_dir, settings=SETTINGS) as server:
        subprocess.run([Path(server.bin_dir) / "pgbench", "-i", "-q", "-s", str(SCALE), server.dsn], check=True, capture_output=True)
        for workload, words in (("select", ["-S"]), ("tpcb", [])):
            runs = [measure(server, words, way, options.seconds) for _ in range(options.rounds) for way in rng.sample(WAYS, len(WAYS))]
            counting = bpf(ENABLE_STATS, struct.pack("=I", 0))
            counted = [measure(server, words, way, options.seconds) for way in WAYS[1:]]
            os.close(counting)
            results.append({"workload": workload} | summary(runs) | {"runs": runs, "counted": counted})
            print(workload, summary(runs), file=sys.stderr)
            for run in counted:
                each = {name: one for name, one in run["programs"].items() if one["runs"]}
                done = run["transactions"]
                lines = [f"{name} {one['runs'] / done:.2f} x {one['run_ns'] / one['runs']:.0f} ns" for name, one in each.items()]
                of_reader = f"reader {run['reader_s'] / run['transactions'] * 1e9:.0f} ns"
                print(f"  {run['way']}, for each transaction: {', '.join([*lines, of_reader])}", file=sys.stderr)
    json.dump({"environment": environment, "options": vars(options), "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
