"""The findings of a trace: each on a trace that has it and nothing else, and on one that has less of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from leadline.capture.reader import open_capture
from leadline.findings import Finding, evaluate
from trace_synthetic import BEGIN, OTHER, PID, SECOND, write_trace

Rows = dict[str, list[tuple[object, ...]]]
END = BEGIN + 20 * SECOND
MS = 1_000_000
NAMES = [(0, "read"), (7, "poll"), (9, "mmap"), (21, "access"), (74, "fsync"), (75, "fdatasync")]
RWSEM = (1, "rwsem_down_write_slowpath", ["rwsem_down_write_slowpath", "down_write", "vm_mmap_pgoff", "do_syscall_64"], [1, 2, 3, 4])
READ = (2, "wait_woken", ["wait_woken", "sk_wait_data", "tcp_recvmsg"], [4, 5, 6])


def call(nr: int, ts: int, duration: int, sleep: int = 0, ret: int = 0, thread: int = 1) -> tuple[object, ...]:
    return (ts, duration, thread, nr, ret, sleep, 0, 0, int(sleep > 0), 3, 0, 0, 0, 0, 0, 0, 0)


def stay(nr: int, ts: int, sleep: int, runq: int, stack: int, before: int = 0) -> tuple[object, ...]:
    return (ts, sleep + runq, sleep, 1, int(sleep > 0), nr, stack, OTHER, before, 0)


def frame(cpu: int) -> Rows:
    """Two threads, of which the first has run for `cpu` ns and slept for the rest."""
    rest = END - BEGIN - cpu
    first = (END, 1, END - BEGIN, cpu, 0, 0, 0, rest, 0, 0, 0, *[0] * 11, False, 0, 0, None, None)
    return {
        "thread": [(1, BEGIN, PID, PID, 1, 0, "server"), (2, BEGIN, OTHER, OTHER, 1, 0, "batch")],
        "thread_time": [first, (END, 2, END - BEGIN, 0, 0, 0, 0, END - BEGIN, 0, 0, 0, *[0] * 11, False, 0, 0, None, None)],
        "syscall_name": NAMES,
        "kernel_stack": [RWSEM, READ],
    }


def kernel_locks(times: int) -> Rows:
    """A process with many threads changes its mappings; reads wait for clients beside it."""
    stays = [stay(9, BEGIN + i * 15 * MS, 2 * MS, 0, 1) for i in range(1, times + 1)] + [stay(0, END - SECOND, 9 * SECOND, 0, 2)]
    return frame(SECOND) | {"off_cpu": stays}


def run_queue(times: int) -> Rows:
    """Each time it waits 3 ms behind the batch, and as long again on an idle CPU, which is no finding."""
    behind = [stay(0, BEGIN + i * 19 * MS, 5 * MS, 3 * MS, 2, OTHER) for i in range(times)]
    return frame(2 * SECOND) | {"off_cpu": behind + [stay(0, BEGIN + i * 19 * MS + 9 * MS, 5 * MS, 3 * MS, 2) for i in range(times)]}


def queue_of_a_disk(times: int) -> Rows:
    written = [(BEGIN + i * 15 * MS, 4 * MS, MS, "sdb", "write", 0, i, 65536, 0, 2, OTHER, "batch") for i in range(1, times + 1)]
    quick = [(BEGIN + i * 15 * MS, 10_000, MS, "sda", "read", 0, i, 8192, 0, 1, PID, "server") for i in range(1, 1000)]
    return frame(SECOND) | {"block_io": written + quick}


def slow_fsync(times: int) -> Rows:
    """50 ms each, of which its own request was 1 ms in the queue and 30 ms in the disk; another thread does quick ones."""
    slow = [call(75, BEGIN + i * 120 * MS, 50 * MS, 49 * MS) for i in range(1, times + 1)]
    quick = [call(74, BEGIN + i * 15 * MS, MS, MS, thread=2) for i in range(1, 1200)]
    requests = [(BEGIN + i * 120 * MS - MS, MS, 30 * MS, "sda", "flush", 0, 0, 0, 0, 1, PID, "server") for i in range(1, times + 1)]
    return frame(SECOND) | {"syscall": slow + quick, "block_io": requests}


def polls(times: int) -> Rows:
    """Each returns nothing after 1 us; polls that waited, or found something, are beside it."""
    idle = [call(7, BEGIN + i * 200_000, 1_000) for i in range(1, times + 1)]
    useful = [call(7, BEGIN + i * 200_000 + 5_000, 90_000, 80_000) for i in range(1, 200)]
    return frame(SECOND) | {"syscall": idle + useful + [call(7, BEGIN + i * 200_000 + 99_000, 1_000, ret=1) for i in range(1, 200)]}


def missing_files(times: int) -> Rows:
    """Each asks for a path at an address of its own; found ones are beside it."""
    tried = [(*call(21, BEGIN + i * 10 * MS, MS, ret=-2)[:9], 0x7FFE_0000_0000 + i, 4, 0, 0, 0, 0, 0, 0) for i in range(1, times + 1)]
    return frame(SECOND) | {"syscall": tried + [call(21, BEGIN + i * 10 * MS + 2 * MS, MS) for i in range(1, 1500)]}


def lost_segments(times: int) -> Rows:
    """A segment is sent again while a read waits 60 ms for the answer; answers that come in time take 10 ms."""
    slow = [call(0, BEGIN + i * 100 * MS, 60 * MS, 60 * MS)[:-1] for i in range(1, times + 1)]
    stays = [stay(0, BEGIN + i * 100 * MS, 60 * MS, 0, 2) for i in range(1, times + 1)]
    again = [
        (BEGIN + i * 100 * MS - 30 * MS, 5, "ESTABLISHED", "10.0.0.1", 40000, "10.0.0.9", 5432, 500) for i in range(1, times + 1)
    ]  # fmt: skip
    others = [(BEGIN + i * 100 * MS, 0, "ESTABLISHED", "10.0.0.1", 40001, "10.0.0.8", 443, 900) for i in range(1, 60)]  # of nobody traced
    usual = [stay(0, BEGIN + i * 100 * MS + 20 * MS, 10 * MS, 0, 2) for i in range(1, 190)]
    return frame(SECOND) | {"syscall": [(*one, 5) for one in slow], "off_cpu": stays + usual, "tcp_retransmit": again + others}


CASES = [
    (
        "PROGRAM-RETRANSMITS", lost_segments, 40, 15, "server to 10.0.0.9",
        ["40 segments of server (pid 1026) to 10.0.0.9 were retransmitted on 1 connection", "2.000 s longer than usual in 40 sleeps"], 2.0,
    ),
    (
        "FAILING-CALL-STORM", missing_files, 1500, 900, "access of server",
        ["failed 1500 times with ENOENT (75 a second), always with the arguments an address, 0x4: 1.500 s in all, 1000.0 us each"], 1.5,
    ),
    (
        "KERNEL-LOCK-CONTENTION", kernel_locks, 1000, 200, "mmap of server in vm_mmap_pgoff",
        ["1 thread of server (pid 1026) slept 2.000 s", "1000 times in mmap", "called by vm_mmap_pgoff", "longest 2.0 ms"], 2.0,
    ),
    (
        "RUNQ-DELAY", run_queue, 1000, 200, "server",
        ["ready to run for 3.0 s while other threads had its CPU, and ran for 2.0 s", "behind batch 3.0 s", "longest wait 3.0 ms"], 3.0,
    ),
    (
        "IO-QUEUE", queue_of_a_disk, 1000, 200, "sdb",
        ["1000 requests waited 4.0 s in the queue of sdb (4.00 ms each) and were 1.0 s in the disk (1.00 ms each)",
         "by batch 1000 times"], 4.0,
    ),
    (
        "FSYNC-STALL", slow_fsync, 150, 15, "fdatasync of server",
        ["took 7.5 s in 150 calls: half of them up to 50.0 ms", "were 0.150 s in the queue of sda and 4.500 s in the disk"], 7.5,
    ),
    (
        "POLL-STORM", polls, 60_000, 9_000, "poll of server",
        ["returned at once with nothing 60000 times (3000 a second), 99 % of its calls: 0.060 s"], 0.06,
    ),
]  # fmt: skip


def found(folder: Path, rows: Rows) -> list[Finding]:
    with closing(open_capture(write_trace(folder, rows, END), hold=True)) as capture:
        result = evaluate(capture)
    assert not result.not_evaluated
    return result.findings


@pytest.mark.parametrize(("rule", "plant", "many", "few", "subject", "says", "cost_s"), CASES, ids=[case[0] for case in CASES])
def test_what_is_planted_is_found_and_less_of_it_is_not(
    rule: str, plant: Callable[[int], Rows], many: int, few: int, subject: str, says: list[str], cost_s: float, tmp_path: Path
) -> None:
    [finding] = found(tmp_path / "many", plant(many))
    assert (finding.id, finding.subject) == (rule, subject)
    assert finding.cost_s == pytest.approx(cost_s)
    for words in says:
        assert words in finding.statement, finding.statement
    assert found(tmp_path / "few", plant(few)) == []
