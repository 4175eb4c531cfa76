"""A trace of threads with known numbers, written without a kernel: the case of the missing semaphore."""

from __future__ import annotations

from pathlib import Path

from leadline._core.capture import TableWriter
from leadline.capture.manifest import Manifest, ProbeState, Target, write_manifest

BEGIN, SECOND = 1_000_000_000_000, 1_000_000_000
PID, OTHER = 1026, 1027
SEMGETS, READS = 1000, 100
KEY = 0x10CABB74


def trace_of_semget(folder: Path) -> Path:
    """4 s of one process: 1000 calls of semget that fail after 900 us asleep, 60 us in the run queue and 10 us on a CPU; 100 reads of
    10 ms asleep; the rest is user code, and what is left of the 4 s another sleep. A second process is there and only woke it."""
    calls, stays = [], []
    now = BEGIN
    for i in range(SEMGETS):
        now += 2_000_000  # user
        stays.append((now + 965_000, 960_000, 900_000, 1, 1, 64, 1, OTHER, OTHER, i % 2))
        now += 970_000
        calls.append((now, 970_000, 1, 64, -2, 900_000, 60_000, 0, 1, KEY, 1, 0, 0, 0, 0, 0, 0))
    for _ in range(READS):
        stays.append((now + 10_004_000, 10_000_000, 10_000_000, 1, 1, 0, 2, 0, 0, 0))
        now += 10_005_000
        calls.append((now, 10_005_000, 1, 0, 8, 10_000_000, 0, 0, 1, 3, 0x7FFF0000, 4096, 0, 0, 0, 0, 1))
    traced = now - BEGIN
    sleep = SEMGETS * 900_000 + READS * 10_000_000
    time = (2_000_000 * SEMGETS, 10_000 * SEMGETS + 5_000 * READS, 0, 60_000 * SEMGETS, sleep, 0, 0, 0)
    assert sum(time) == traced
    counts = (SEMGETS + READS, SEMGETS, SEMGETS + READS, 0, 7, 40, 2, 0)
    rows: dict[str, list[tuple[object, ...]]] = {
        "thread": [(1, BEGIN, PID, PID, 1, BEGIN - SECOND, "dw.work"), (2, BEGIN, OTHER, OTHER, 1, BEGIN - SECOND, "dw.other")],
        "thread_time": [
            (now, 1, traced, *time, *counts, 2_011_000_000, 50_000_000, 1200, False, 3_000_000, 2, "fifo", 50),
            (now, 2, traced, 0, 0, 0, 0, traced, 0, 0, 0, *[0] * 11, False, 0, 0, "other", 0),
        ],
        "syscall": calls,
        "open_file": [(BEGIN, 1, PID, "socket", "tcp 10.0.0.1:5432 to 10.0.0.2:41000", 0, 8, 77, 2, False, 5432, 41000)],
        "syscall_name": [(0, "read"), (64, "semget")],
        "off_cpu": stays,
        "kernel_stack": [
            (1, "rwsem_down_write_slowpath", ["rwsem_down_write_slowpath", "ipcget", "do_syscall_64"], [1, 2, 3]),
            (2, "wait_woken", ["wait_woken", "sk_wait_data", "tcp_recvmsg"], [4, 5, 6]),
        ],
        # The client library has no names; the last of 17 stacks of failures was taken elsewhere, and cut.
        # A worker of the kernel writes too.
        "block_io": [
            *(
                (BEGIN + 1_000_000 * i, 20_000, 80_000 + 1_000 * i, "vda", "read", 8, 800 * i, 8192, 0, 1, PID, "dw.work")
                for i in range(1, 11)
            ),
            (BEGIN + 50_000_000, 5_000_000, 1_000_000, "vda", "write", 0, 99, 1 << 20, 0, 0, 77, "kworker/u8:1"),
        ],
        "stack_sample": [
            *((BEGIN + 2_970_000 * i, 1, "failed", 1, 64, 2, 1, 1, OTHER) for i in range(1, 17)),
            (BEGIN + 2_970_000 * 32, 1, "failed", 1, 64, 2, 1, 2, OTHER),
            *((BEGIN + 10_000_000 * i, 1, "on_cpu", 10_000_000, -1, 0, 0, 3, 0) for i in range(200)),
            *((BEGIN + 50_000_000 * i, 1, "asleep", 90_000_000, 64, 2, 1, 1, OTHER) for i in range(10)),
            *((BEGIN + 50_000_000 * i, 1, "asleep", 100_000_000, 0, 0, 2, 3, 0) for i in range(10)),
        ],
        "user_stack": [
            (1, [1, 2, 2, 3], [0x11CF5A, 0x1AF3, 0x1B07, 0x1133], True),
            (2, [1, 2], [0x11CF5A, 0x1C00], False),
            (3, [3, 0], [0x1240, 0x7F0000001234], True),
        ],
        "mapped_file": [(1, "/lib/libc.so.6", "aa"), (2, "/opt/client/libtrace.so", "bb"), (3, "/opt/app/dw", "")],
        "user_function": [(1, 0x11CF5A, "semget", "", 0), (3, 0x1133, "main", "dw.c", 12), (3, 0x1240, "work", "dw.c", 20)],
    }
    return write_trace(folder, rows, now)


def write_trace(folder: Path, rows: dict[str, list[tuple[object, ...]]], end: int) -> Path:
    """A trace of these rows, from BEGIN to `end`."""
    folder.mkdir(exist_ok=True)
    manifest = Manifest(Target("process", "dw.work 1026", PID, 2), status="complete")
    manifest.clock.ts_from, manifest.clock.ts_to, manifest.clock.wall_offset_ns = BEGIN, end, 0
    calibrated = {"waking_run_ns": 9_000, "waking_runq_ns": 14_000, "numa_nodes": 2}
    manifest.probes = {"kernel": ProbeState("ok", tier="bpf", detail=calibrated), "self": ProbeState()}
    for table, values in rows.items():
        writer = TableWriter(str(folder), table)
        writer.append(values)
        manifest.tables[table] = writer.close()
    write_manifest(folder, manifest)
    return folder
