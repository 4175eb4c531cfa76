"""The findings of a trace that look at files, disks, locks of user space, the clock and memory: each planted, and with less of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from leadline.capture.reader import open_capture
from test_findings_kernel import BEGIN, END, MS, PID, SECOND, Rows, found, frame, stay
from trace_synthetic import OTHER, write_trace

US = 1_000
NAMES = [
    (0, "read"), (1, "write"), (18, "pwrite64"), (327, "preadv2"), (328, "pwritev2"),
    (24, "sched_yield"), (64, "semget"), (65, "semop"), (202, "futex"), (228, "clock_gettime"),
    (230, "clock_nanosleep"),
]  # fmt: skip
FILES = [
    (1, "file", "/srv/export.csv", 0), (2, "file", "/proc/4711/smaps", 0), (3, "file", "/data/rootdbs", 0o40002), (4, "socket", "tcp", 2),
]  # fmt: skip
RECLAIM = (3, "io_schedule", ["io_schedule", "shrink_folio_list", "shrink_node", "try_to_free_pages", "alloc_pages"], [1, 2, 3, 4, 5])
SOCKET = (4, "wait_woken", ["wait_woken", "sk_wait_data"], [1, 2])
FAULT = (5, "clear_page_erms", ["clear_page_erms", "handle_mm_fault", "exc_page_fault", "asm_exc_page_fault"], [1, 2, 3, 4])
HUGE = (6, "clear_page_erms", ["clear_page_erms", "folio_zero_user", "do_huge_pmd_anonymous_page", "handle_mm_fault"], [1, 2, 3, 4])
NUMA = (7, "folio_copy", ["folio_copy", "migrate_misplaced_folio", "do_numa_page", "handle_mm_fault"], [1, 2, 3, 4])


Call = tuple[object, ...]


def one(nr: int, ts: int, duration: int, *arguments: int, ret: int = 0, sleep: int = 0, file: int = 0, thread: int = 1) -> Call:
    given = (*arguments, *[0] * (6 - len(arguments)))
    return (ts, duration, thread, nr, ret, sleep, 0, 0, int(sleep > 0), *given, 0, file)


def many(times: int, every: int, nr: int, duration: int, *arguments: int, ret: int = 0, sleep: int = 0, file: int = 0) -> list[Call]:
    return [one(nr, BEGIN + (i + 1) * every, duration, *arguments, ret=ret, sleep=sleep, file=file) for i in range(times)]


def trace_of(calls: list[Call]) -> Rows:
    files = [(BEGIN, number, PID, kind, name, 0, 8, number, flags, False, None, None) for number, kind, name, flags in FILES]
    return frame(SECOND) | {"syscall_name": NAMES, "open_file": files, "syscall": calls}


def small_io(times: int) -> Rows:
    """40 bytes each; whole pages of the same file, and small messages of a socket, are no finding."""
    pages = many(6_000, 3 * MS, 0, 5 * US, 5, 0, 8192, ret=8192, file=1)
    return trace_of(many(times, MS, 1, 20 * US, 5, 0, 40, ret=40, file=1) + pages + many(15_000, MS, 1, 5 * US, 6, 0, 9, ret=9, file=4))


def proc_readers(times: int) -> Rows:
    return trace_of(many(times, MS, 0, 100 * US, 3, 0, 4096, ret=900, file=2))


def futexes(times: int) -> Rows:
    """Three threads at one address; a fourth address has a worker that waits for long."""
    calls = [one(202, BEGIN + (i + 1) * 2 * MS, 900 * US, 0x5555_0000_1040, 128, 2, sleep=800 * US, thread=1 + i % 3) for i in range(times)]
    idle = [one(202, BEGIN + (i + 1) * 100 * MS, 99 * MS, 0x5555_0000_2040, 128, 0, sleep=99 * MS, thread=2) for i in range(190)]
    rows = trace_of(calls + idle)
    rows["thread"] = [*rows["thread"], (3, BEGIN, PID + 5, PID, 1, 0, "server")]
    rows["thread"] = [(number, ts, tid, PID, *rest) for number, ts, tid, _, *rest in rows["thread"]]
    rows["thread"] = [(number, ts, tid, pid, parent, start, "server") for number, ts, tid, pid, parent, start, _ in rows["thread"]]
    return rows


SET, KEY = 32_769, 0x4C454144


def semaphores(times: int) -> Rows:
    """Two processes take turns with a set that was there; a worker waits long for another, whose key only its semget tells."""
    calls = [one(65, BEGIN + (i + 1) * 2 * MS, 900 * US, SET, 0, 1, sleep=800 * US, thread=1 + i % 2) for i in range(times)]
    stays = [(BEGIN + (i + 1) * 2 * MS - US, 850 * US, 800 * US, 1 + i % 2, 1, 65, 2, PID if i % 2 else OTHER, 0, 0) for i in range(times)]
    calls += [one(64, BEGIN + US, US, 0x5EA, 1, ret=7)]
    calls += [one(65, BEGIN + (i + 1) * 100 * MS + US, 99 * MS, 7, 0, 1, sleep=98 * MS, thread=3) for i in range(190)]
    stays += [(BEGIN + (i + 1) * 100 * MS, 98 * MS, 98 * MS, 3, 1, 65, 2, PID, 0, 0) for i in range(190)]
    rows = trace_of(calls) | {"off_cpu": stays, "semaphore_set": [(BEGIN, SET, KEY, 3, 0), (BEGIN, 8, 0, 1, 0)]}
    rows["thread"] = [*rows["thread"], (3, BEGIN, PID + 5, PID + 5, 1, 0, "worker")]
    return rows


def unaligned(times: int) -> Rows:
    """512 bytes at 1536; aligned writes of the file beside them, and the same lengths in a file without O_DIRECT."""
    odd = many(times, 10 * MS, 18, 3 * MS, 7, 0, 512, 1536, ret=512, file=3)
    even = many(500, 20 * MS, 18, MS, 7, 0, 8192, 16384, ret=8192, file=3)
    return trace_of(odd + even + many(400, 20 * MS, 18, MS, 5, 0, 512, 1536, ret=512, file=1))


def short_sleeps(times: int) -> Rows:
    naps = many(times, 600 * US, 230, 60 * US, 0, 0, 0, 0, sleep=50 * US)
    return trace_of(naps + many(900, 20 * MS, 24, US))


def clock_calls(times: int) -> Rows:
    """The monotonic clock; the CPU time of the thread needs the kernel anyway."""
    return trace_of(many(times, 500 * US, 228, 2 * US, 1, 0) + many(30_000, 500 * US, 228, 2 * US, 3, 0))


def work_of_the_kernel(stack: Call) -> Callable[[int], Rows]:
    """5 ms asleep each, and a sample of 10 ms on a CPU for each fifth; other sleeps, and one sample of each kind, are beside them."""

    def plant(times: int) -> Rows:
        stays = [stay(0, BEGIN + i * 20 * MS, 5 * MS, 0, stack[0]) for i in range(1, times + 1)]
        stays += [stay(0, END - SECOND, 9 * SECOND, 0, SOCKET[0])]
        samples = [(BEGIN + i * 20 * MS, 1, "on_cpu", 10 * MS, -1, 0, stack[0], 0, 0) for i in range(1, 1 + times // 5)]
        samples += [(BEGIN + i * 30 * MS, 1, "on_cpu", 10 * MS, -1, 0, other, 0, 0) for i, other in enumerate((3, 4, 5, 6, 7), 1)]
        rows = trace_of([]) | {"off_cpu": stays, "stack_sample": samples, "kernel_stack": [RECLAIM, SOCKET, FAULT, HUGE, NUMA]}
        rows["thread_time"] = [(*row[:16], 300 * times, 5, *row[18:]) for row in rows["thread_time"]]
        return rows

    return plant


SPIN = (8, "native_queued_spin_lock_slowpath", ["native_queued_spin_lock_slowpath", "_raw_spin_lock", "alloc_fd", "do_dup"], [1, 2, 3, 4])
TAKEN = (9, "_raw_spin_lock", ["_raw_spin_lock", "alloc_fd", "do_dup"], [2, 3, 4])


def spins(times: int) -> Rows:
    """Samples of 10 ms; to take a lock that nobody holds is no finding."""
    samples = [(BEGIN + i * 20 * MS, 1, "on_cpu", 10 * MS, 32, 0, 9 if i % 3 == 0 else 8, 0, 0) for i in range(1, 1 + times)]
    return trace_of([]) | {"stack_sample": samples, "kernel_stack": [SPIN, TAKEN], "syscall_name": [*NAMES, (32, "dup")]}


def flushes(times: int) -> Rows:
    """50 ms each; half of them as writes through the cache. Ordinary writes take longer together."""
    kinds = [("flush", 0, 0), ("write", 1 << 9, 8192)]
    flushed = [(BEGIN + i * 90 * MS, 0, 50 * MS, "sda", *kinds[i % 2][:2], i, kinds[i % 2][2], 0, 1, PID, "server") for i in range(times)]
    others = [(BEGIN + i * 90 * MS, 0, 80 * MS, "sdb", "write", 0, i, 8192, 0, 1, PID, "server") for i in range(200)]
    return trace_of([]) | {"block_io": flushed + others}


def large_requests(times: int) -> Rows:
    """Small reads take 1 ms on both disks, and 9 ms in the 10 ms in which a disk has 4 MB to write."""
    large = [(BEGIN + i * 60 * MS, 0, 10 * MS, "sda", "write", 0, i, 4 << 20, 0, 2, OTHER, "batch") for i in range(1, times + 1)]
    behind = [(BEGIN + i * 60 * MS - US, 8 * MS, MS, "sda", "read", 0, i, 8192, 0, 1, PID, "server") for i in range(1, times + 1)]
    alone = [(BEGIN + i * 60 * MS + 30 * MS, 0, MS, "sda", "read", 0, i, 8192, 0, 1, PID, "server") for i in range(1, 300)]
    elsewhere = [(BEGIN + i * 60 * MS, 0, MS, "sdb", "read", 0, i, 8192, 0, 1, PID, "server") for i in range(1, 300)]
    return trace_of([]) | {"block_io": large + behind + alone + elsewhere}


def read_again(times: int) -> Rows:
    """Two places; a third is read a little less often than it takes, and all others once."""
    again = [(BEGIN + i * 9 * MS, MS, MS, "sda", "read", 0, 800 * (i % 2), 8192, 0, 1, PID, "server") for i in range(times)]
    seldom = [(BEGIN + i * 90 * MS, 0, 30 * MS, "sda", "read", 0, 7, 8192, 0, 1, PID, "server") for i in range(49)]
    once = [(BEGIN + i * 9 * MS, 0, MS, "sda", "read", 0, 10_000 + i, 8192, 0, 2, OTHER, "batch") for i in range(900)]
    return trace_of([]) | {"block_io": again + seldom + once}


CASES = [
    (
        "SMALL-IO", small_io, 15_000, 9_000, "/srv/export.csv of server",
        ["server (pid 1026) wrote /srv/export.csv 15000 times (750 a second) with 40 bytes each: 0.300 s in write, 20.0 us"], 0.3,
    ),
    (
        "PROC-READERS", proc_readers, 12_000, 9_000, "server",
        ["made 12000 calls (600 a second) on files of /proc and /sys: 1.200 s", "most of it for /proc/PID/smaps 1.200 s"], 1.2,
    ),
    (
        "FUTEX-CONTENTION", futexes, 6_000, 1_100, "0x555500001040 of server (pid 1026)",
        ["3 threads of server (pid 1026) waited 6000 times (300 a second) for the lock at 0x555500001040: 4.800 s", "800.0 us each"], 4.8,
    ),
    (
        "SEMAPHORE-CONTENTION", semaphores, 6_000, 1_100, "semaphores 0x4c454144",
        ["2 threads of batch, server waited 6000 times (300 a second) for the semaphores with the key 0x4c454144 (id 32769): 5.100 s",
         "850.0 us each, the longest 0.8 ms", "woken by batch (pid 1027) 3000 times, server (pid 1026) 3000 times"], 5.1,
    ),
    (
        "UNALIGNED-DIRECT-IO", unaligned, 1_000, 90, "/data/rootdbs of server",
        ["made 1000 reads and writes of /data/rootdbs with O_DIRECT", "(one had 512 bytes at offset 1536): 3.000 s"], 3.0,
    ),
    (
        "SHORT-SLEEPS", short_sleeps, 30_000, 19_000, "clock_nanosleep of server",
        ["called clock_nanosleep 30000 times (1500 a second), 60.0 us each: 0.300 s on a CPU"], 0.3,
    ),
    (
        "CLOCK-CALLS", clock_calls, 30_000, 19_000, "clock_gettime of server",
        ["called clock_gettime 30000 times (1500 a second), 2000 ns each: 0.060 s"], 0.06,
    ),
    (
        "MEMORY-RECLAIM", work_of_the_kernel(RECLAIM), 200, 20, "server",
        ["freed memory for 1.41 s before it got some: 0.41 s on a CPU and 1.00 s asleep, mostly in try_to_free_pages"], 1.41,
    ),
    (
        "PAGE-FAULT-STORM", work_of_the_kernel(FAULT), 200, 20, "server",
        ["had 60005 page faults (3000 a second, 5 read from disk): 0.41 s of its 1.00 s on a CPU, and 1.00 s asleep"], 1.41,
    ),
    (
        "HUGE-PAGES", work_of_the_kernel(HUGE), 200, 20, "server",
        ["worked on huge pages for 1.41 s in the time of server (pid 1026)", "mostly in do_huge_pmd_anonymous_page"], 1.41,
    ),
    (
        "NUMA-MIGRATION", work_of_the_kernel(NUMA), 200, 20, "server",
        ["moved pages between NUMA nodes for 1.41 s in the time of server (pid 1026)", "mostly in do_numa_page"], 1.41,
    ),
    (
        "KERNEL-SPIN", spins, 60, 15, "dup of server in alloc_fd",
        ["server (pid 1026) spun for 0.40 s of its 1.00 s on a CPU for a lock of the kernel that alloc_fd takes, in dup"], 0.4,
    ),
    (
        "READ-AGAIN", read_again, 1_002, 98, "sda",
        ["2 places of sda were read 1000 times again, one of them 501 times in all: 2.00 s", "most of them by server"], 2.0,
    ),
    (
        "BARRIER-WRITES", flushes, 200, 100, "sda",
        ["sda did 200 flushes and writes through its cache (10 a second): 10.0 s, 50.00 ms at the median", "by server 200 times"], 10.0,
    ),
    (
        "LARGE-IO", large_requests, 200, 50, "sda",
        ["200 small requests of sda took 9.00 ms at the median while it had requests of 1 MB and more, and 1.00 ms otherwise: 1.6 s longer",
         "batch asked for most of the large ones (200, 800 MB)"], 1.6,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "plant", "times", "fewer", "subject", "says", "cost_s"), CASES, ids=[case[0] for case in CASES])
def test_what_is_planted_is_found_and_less_of_it_is_not(
    rule: str, plant: Callable[[int], Rows], times: int, fewer: int, subject: str, says: list[str], cost_s: float, tmp_path: Path
) -> None:
    [finding] = found(tmp_path / "many", plant(times))
    assert (finding.id, finding.subject) == (rule, subject)
    assert finding.cost_s == pytest.approx(cost_s)
    for words in says:
        assert words in finding.statement, finding.statement
    assert found(tmp_path / "few", plant(fewer)) == []


def test_the_key_of_a_set_is_that_of_the_semget_that_gave_it(tmp_path: Path) -> None:
    with closing(open_capture(write_trace(tmp_path, semaphores(1), END), hold=True)) as capture:
        told = capture.rows("select semid, key, waker, count(*) as waits from semaphore_wait group by all order by semid")
    assert told == [
        {"semid": 7, "key": 0x5EA, "waker": "server", "waits": 190},
        {"semid": SET, "key": KEY, "waker": "batch", "waits": 1},
    ]


@pytest.mark.parametrize(
    ("nr", "place", "ret", "told"),
    [
        (328, 1536, 4096, "(one had 4096 bytes at offset 1536)"),
        (328, 4096, 512, "(one had 512 bytes at offset 4096)"),
        (327, 1536, 512, "(one had some bytes at offset 1536)"),
        (328, -1, 4096, ""),
        (327, 4096, 512, ""),
    ],
)
def test_direct_io_with_vectors_is_seen(nr: int, place: int, ret: int, told: str, tmp_path: Path) -> None:
    """The lengths of vectors are not known: the result of a write is one, a read may end with its file. Place -1: where the file is."""
    rows = found(tmp_path, trace_of(many(200, 10 * MS, nr, MS, 7, 0x7FFF0000, 1, place, ret=ret, file=3)))
    assert [told in finding.statement for finding in rows if finding.id == "UNALIGNED-DIRECT-IO"] == ([True] if told else [])


def test_direct_io_that_is_refused_says_so(tmp_path: Path) -> None:
    [finding] = found(tmp_path, trace_of(many(200, 10 * MS, 18, MS, 7, 0, 8192, 16384, ret=-22, file=3)))
    assert finding.id == "UNALIGNED-DIRECT-IO" and "200 were refused with EINVAL" in finding.statement
