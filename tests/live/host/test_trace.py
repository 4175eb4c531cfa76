"""leadline trace on programs whose calls are known: every call counted, times that close, losses that are told."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bpf import needs_bpf, needs_perf, on_each_tier
from commands import on_terminal
from conftest import background, no_oracle, wait_until
from host_changes import loop_device
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.host.facts import numa_nodes
from leadline.probes.trace import trace
from leadline.views.flame import folded, functions
from leadline.views.threads import PARTS, report
from traced import Goes

MS = 1_000_000
KEY = 0x10CABB74  # a semaphore that nobody has

# Each program waits for a line, does what its name says, answers with a line, and waits for the end of its input.
COMMON = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void work(long n);
int main(int argc, char **argv) {
  char line[8];
  long n = argc > 1 ? atol(argv[1]) : 0;
  if (read(0, line, 1) != 1) return 1;
  work(n);
  if (write(1, "done\\n", 5) != 5) return 1;
  return read(0, line, 1) != 0;
}
"""
PROGRAMS = {
    "known": """
static void work(long n) {
  for (int i = 0; i < 5; i++) syscall(SYS_getppid);
  for (int i = 0; i < 4; i++) semget(0x10cabb74, 1, 0);
  for (int i = 0; i < 3; i++) open("/nowhere/at/all", O_RDONLY);
  for (int i = 0; i < 2; i++) nanosleep(&(struct timespec){0, 5000000}, NULL);
  for (int i = 0; i < 6; i++) sched_yield();
  for (int i = 0; i < 3; i++) close(-1);
}
""",
    "many": "static void work(long n) { for (long i = 0; i < n; i++) syscall(SYS_getppid); }",
    "children": """
static void work(long n) {
  for (long i = 0; i < n; i++) {
    if (fork() == 0) { semget(0x10cabb74, 1, 0); _exit(0); }
    wait(NULL);
  }
}
""",
    "seconds": """
static void work(long n) {
  for (long i = 0; i < n * 1000; i++) { nanosleep(&(struct timespec){0, 900000}, NULL); for (int j = 0; j < 50; j++) syscall(SYS_getppid); }
}
""",
    "kinds": """
#include <sys/time.h>
static void work(long n) {
  for (long i = 0; i < n; i++) {
    syscall(SYS_getpid); syscall(SYS_getppid); syscall(SYS_getuid); syscall(SYS_geteuid); syscall(SYS_getgid);
    syscall(SYS_getegid); syscall(SYS_getpgrp); syscall(SYS_gettid); sched_yield(); syscall(SYS_getitimer, 99, NULL);
    semget(0x10cabb74, 1, 0); close(-1); dup(-1); close(dup(0));
  }
  for (int i = 0; i < 60; i++) nanosleep(&(struct timespec){0, 20000000}, NULL);
}
""",
    "threads": """
static void *one(void *n) { for (long i = 0; i < (long)n; i++) semget(0x10cabb74, 1, 0); return NULL; }
static void work(long n) {
  pthread_t t[8];
  for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, one, (void *)n);
  for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}
""",
    "crowd": """
static pthread_barrier_t together;
static void *one(void *p) { pthread_barrier_wait(&together); semget(0x10cabb74, 1, 0); return NULL; }
static void work(long n) {
  pthread_t *t = malloc(n * sizeof *t);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  pthread_barrier_init(&together, NULL, n);
  for (long i = 0; i < n; i++) if (pthread_create(&t[i], &small, one, NULL)) abort();
  for (long i = 0; i < n; i++) pthread_join(t[i], NULL);
}
""",
    "burst": """
static void work(long n) {
  int gate[2];
  char byte;
  if (pipe(gate)) abort();
  for (long i = 0; i < n; i++)
    if (fork() == 0) { close(gate[1]); if (read(gate[0], &byte, 1)) abort(); semget(0x10cabb74, 1, 0); _exit(0); }
  close(gate[1]);
  while (wait(NULL) > 0) ;
}
""",
    "naps": "static void work(long n) { while (n--) nanosleep(&(struct timespec){0, 50000}, NULL); }",
    "spin": """
static void work(long n) {
  // Asks for the time some thousand times a second: a million calls would be lost where others want the CPUs, too.
  struct timespec now;
  do {
    for (volatile int i = 0; i < 100000; i++) ;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < n);
}
""",
}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    for name, code in PROGRAMS.items():
        source = folder / f"{name}.c"
        source.write_text(COMMON + code)
        subprocess.run(["cc", "-O2", "-pthread", "-o", folder / name, source], check=True)
    return folder


def leadline(*words: object, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leadline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=before, check=False)


def as_one_without_rights() -> None:
    for capability in (21, 38, 39):  # CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP: a program that is started has it no more


@contextmanager
def traced(programs: Path, name: str, *arguments: int, out: Path, for_s: float = 0.3, **options: Any) -> Iterator[tuple[Capture, int]]:
    """The capture of one program, and its pid."""
    command = [programs / name, *arguments]
    with background(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        path, _ = trace(pids=[program.pid], for_s=for_s, out=out / f"{name}.leadline", progress=Goes(program), **options)
        capture = open_capture(path)
        try:
            yield capture, program.pid
        finally:
            capture.close()


def assert_slept(nap: dict[str, Any]) -> None:
    """Not as long as it asked for: its timer starts before it leaves the CPU. Nor all the time: busy neighbours keep it waiting."""
    assert nap["sleep_ns"] + nap["runq_ns"] + nap["cpu_ns"] + nap["unknown_ns"] == nap["elapsed_ns"] < 5 * nap["sleep_ns"]


@on_each_tier
def test_23_calls_give_23(tier: str, programs: Path, tmp_path: Path) -> None:
    with traced(programs, "known", out=tmp_path, tier=tier) as (capture, pid):
        found = {row["call"]: row for row in report(capture, pid).calls}
        counts = {name: (row["count"], row["failed"]) for name, row in found.items()}
        # before and after the work: the waiting read, and the answer
        known = {
            "getppid": (5, 0), "semget": (4, 4), "openat": (3, 3), "clock_nanosleep": (2, 0), "sched_yield": (6, 0), "close": (3, 3),
            "read": (1, 0), "write": (1, 0),
        }  # fmt: skip
        assert counts == known
        assert sum(n for n, _ in counts.values()) - 2 == 23
        assert found["semget"]["errors"] == {"ENOENT": 4} and found["close"]["errors"] == {"EBADF": 3}
        keys = capture.rows("select distinct arg0, arg1, arg2 from call where call = 'semget'")
        assert keys == [{"arg0": KEY, "arg1": 1, "arg2": 0}]
        slept = found["clock_nanosleep"]
        assert slept["sleeps"] == 2 and slept["elapsed_ns"] >= 2 * 5_000_000
        assert_slept(slept)
        assert [w["wait_function"] for w in slept["waits"]] == ["hrtimer_nanosleep"]
        # It slept in the read since before the trace.
        assert ["pipe" in w["wait_function"] for w in found["read"]["waits"]] == [True]


@on_each_tier
def test_100_000_calls_give_100_000(tier: str, programs: Path, tmp_path: Path) -> None:
    with traced(programs, "many", 100_000, out=tmp_path, tier=tier) as (capture, _):
        assert capture.scalar("select count(*) from call where call = 'getppid'") == 100_000
        assert capture.scalar("select sum(lost_records) from thread_time") == 0


@needs_bpf
def test_calls_that_the_kernel_sums_are_those_that_were_made(programs: Path, tmp_path: Path) -> None:
    """Of more kinds than a thread has room for, some at once and some a second later: all are counted, and times close."""
    with traced(programs, "kinds", 40_000, out=tmp_path, detail="sums", for_s=2.5) as (capture, pid):
        found = report(capture, pid)
        counts = {row["call"]: (row["count"], row["failed"], row["errors"]) for row in found.calls}
        for name in ("getpid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getpgrp", "gettid", "sched_yield", "getitimer"):
            assert counts[name][:2] == (40_000, 40_000 if name == "getitimer" else 0), name
        assert counts["semget"] == (40_000, 40_000, {"ENOENT": 40_000})
        assert counts["close"] == (80_000, 40_000, {"EBADF": 40_000})
        assert counts["dup"] == (80_000, 40_000, {"EBADF": 40_000})
        assert counts["clock_nanosleep"] == (60, 0, {})
        assert sum(row["count"] for row in found.calls) == found.time["calls"]
        assert sum(row["failed"] for row in found.calls) == found.time["failed_calls"]
        parts = " + ".join(name for name, _ in PARTS)
        assert capture.rows(f"select * from thread_time where traced_ns <> {parts}") == [] and found.closes_ns == 0
        nap = next(row for row in found.calls if row["call"] == "clock_nanosleep")
        assert nap["sleeps"] == 60 and 60 * 20_000_000 <= nap["elapsed_ns"] <= found.time["traced_ns"]
        assert_slept(nap)
        # rows for about each second, one after another, and neither calls nor sleeps one by one
        steps = capture.rows("select ts, traced_ns from thread_time order by ts")
        assert len(steps) >= 2
        assert all(before["ts"] == after["ts"] - after["traced_ns"] for before, after in pairwise(steps))
        assert [capture.scalar(f"select count(*) from {table}") for table in ("syscall", "off_cpu")] == [0, 0]
        # it may sleep for a moment in a page fault, too
        assert [w["wait_function"] for w in nap["waits"]] == ["hrtimer_nanosleep"] == [w["wait_function"] for w in found.waits[:1]]
        [storm] = [f for f in evaluate(capture, only=["FAILING-CALL-STORM"]).findings if f.subject.startswith("semget")]
        assert "failed 40000 times with ENOENT" in storm.statement and "argument" not in storm.statement
        assert "Called from semget" in storm.statement
        assert [name for name, _ in evaluate(capture, only=["FSYNC-STALL"]).not_evaluated] == ["FSYNC-STALL"]
    assert leadline("events", capture.path).stderr.startswith("error: this trace has sums of calls")


@needs_bpf
def test_a_trace_keeps_to_its_budget(programs: Path, tmp_path: Path) -> None:
    """It has almost none: two seconds later there are no stacks any more, and after another two only sums. Nothing is lost by that."""
    with traced(programs, "seconds", 6, out=tmp_path, budget=0.0001) as (capture, pid):
        steps = capture.rows("select detail, ts, cpu_share from kernel_detail order by ts")
        assert [step["detail"] for step in steps] == ["events", "sums"]
        assert all(step["cpu_share"] > 0.0001 for step in steps)
        state = capture.manifest.probe("kernel")
        assert state.status == "partial" and "took more than its budget" in state.why and "calls were summed" in state.why
        assert state.loss["records_lost"] == 0
        last = [capture.scalar(f"select max(ts) from {table}") for table in ("stack_sample", "syscall", "syscall_sum")]
        assert last[0] <= steps[0]["ts"] + MS < last[1] <= steps[1]["ts"] + MS < last[2]
        found = report(capture, pid)
        assert found.closes_ns == 0
        assert sum(row["count"] for row in found.calls) == found.time["calls"] > 6_000


READS = """
import mmap, os, sys
fd, buffer = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
os.preadv(fd, [buffer], 0)
print(flush=True)
while True:
    os.preadv(fd, [buffer], 0)
"""


@needs_bpf
@pytest.mark.parametrize("busy_disk", [False, True])
def test_threads_whose_sums_found_no_room_are_counted(busy_disk: bool, programs: Path, tmp_path: Path) -> None:
    """300 processes that live for a moment; the buffer has room for the sums of a few. What others ask of the disk before the trace
    begins takes the room of what is measured at its start, and is no loss of the trace."""
    with ExitStack() as stack:
        if busy_disk:
            (file := tmp_path / "file").write_bytes(os.urandom(4096))
            reader = stack.enter_context(background([sys.executable, "-c", READS, file], stdout=subprocess.PIPE))
            assert reader.stdout is not None and reader.stdout.readline()
        capture, _ = stack.enter_context(traced(programs, "children", 300, out=tmp_path, detail="sums", ring_bytes=1 << 12))
        state = capture.manifest.probe("kernel")
        # Each of the 301 hands over its sums at its end, or at that of the window.
        last = "exited or ts >= (select max(ts) from interrupt_sum)"
        known = capture.scalar(f"select count(distinct thread_id) from thread_time where {last}")
        assert state.loss["threads_lost"] == 301 - known > 0
        assert state.status == "partial" and f"{301 - known} ends of threads with their sums" in state.why


@needs_bpf
def test_what_is_lost_is_told_and_sums_stay_exact(programs: Path, tmp_path: Path) -> None:
    with traced(programs, "many", 100_000, out=tmp_path, ring_bytes=1 << 16) as (capture, pid):
        lost = capture.scalar("select sum(lost_records)::bigint from thread_time")
        calls, stays = (capture.scalar(f"select count(*) from {table}") for table in ("syscall", "off_cpu"))
        time = report(capture, pid).time
        assert lost > 0 and time["calls"] == 100_002
        state = capture.manifest.probe("kernel")
        assert state.status == "partial" and state.loss["records_lost"] == lost
        # every call and stay has its row or is counted as lost
        assert calls + stays + lost >= 100_002 and calls < 100_002


@needs_bpf
def test_a_trace_ends_although_calls_come_faster_than_they_are_read(tmp_path: Path) -> None:
    """Five programs on each CPU make calls without end: the reader's part of the CPUs is too small to keep up with them."""
    loop = f"import os\nprint(flush=True)\nwhile os.getppid() == {os.getpid()}: os.getppid()"
    with ExitStack() as stack:
        some = range(5 * len(os.sched_getaffinity(0)))
        busy = [stack.enter_context(background([sys.executable, "-c", loop], stdout=subprocess.PIPE)) for _ in some]
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()
        pids, out = [process.pid for process in busy], str(tmp_path / "x")
        options = f"pids={pids}, for_s=2.0, out=Path({out!r}), budget=100.0, ring_bytes=1 << 22"
        code = f"from pathlib import Path\nfrom leadline.probes.trace import trace\ntrace({options})"
        subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
    with closing(open_capture(tmp_path / "x.leadline")) as capture:
        [row] = capture.rows("select sum(calls) as calls, sum(lost_records) as lost from thread_time")
        kept = capture.scalar("select count(*) from syscall")
    assert row["lost"] > 0 and kept < row["calls"] <= kept + row["lost"]


@needs_bpf
def test_stacks_give_way_to_ends_and_names_of_threads(programs: Path, tmp_path: Path) -> None:
    """300 processes fail and end at the same time: their stacks would fill the ring eight times."""
    with traced(programs, "burst", 300, out=tmp_path, ring_bytes=1 << 19) as (capture, _):
        loss = capture.manifest.probe("kernel").loss
        assert loss["stacks_lost"] > 0 and loss["threads_lost"] == 0
        taken = capture.scalar("select count(*) from stack_sample where kind = 'failed'")
        assert taken + loss["stacks_lost"] >= 300
        assert capture.scalar("select count(*) from thread_time where exited") == 300
        assert capture.scalar("select sum(failed_calls) from thread_time") == 301  # and the last wait
        assert capture.rows("select comm from thread where comm = '' or comm is null") == []
        assert "stacks" in capture.manifest.probe("kernel").why and "exact all the same" in capture.manifest.probe("kernel").hint


@needs_perf
def test_what_perf_events_lose_is_counted_and_its_time_is_unknown(programs: Path, tmp_path: Path) -> None:
    with traced(programs, "many", 100_000, out=tmp_path, tier="perf", ring_bytes=1 << 16) as (capture, pid):
        state = capture.manifest.probe("kernel")
        found = report(capture, pid)
        calls = capture.scalar("select count(*) from call")
        assert state.loss["records_lost"] > 0 and "the buffer had no room for" in state.why
        assert "the time around them is unknown" in state.hint
        # What is not lost is there: of each call that was, its begin, its end, or both.
        assert calls == found.time["calls"] < 100_002 <= calls + state.loss["records_lost"]
        assert found.time["unknown_ns"] > 0 and found.closes_ns == 0
        assert capture.rows("select * from call where sleep_ns + runq_ns + cpu_ns + unknown_ns <> duration_ns or cpu_ns < 0") == []


@on_each_tier
def test_times_close(tier: str, programs: Path, tmp_path: Path) -> None:
    with traced(programs, "threads", 2_000, out=tmp_path, tier=tier) as (capture, pid):
        parts = " + ".join(name for name, _ in PARTS)
        assert capture.rows(f"select * from thread_time where traced_ns <> {parts}") == []
        assert capture.rows("select * from call where cpu_ns < 0 or sleep_ns + runq_ns + cpu_ns + unknown_ns <> duration_ns") == []
        found = report(capture, pid)
        assert found.closes_ns == 0 and len(found.threads) == 9
        semget = next(row for row in found.calls if row["call"] == "semget")
        assert (semget["count"], semget["failed"]) == (16_000, 16_000)
        # time on a CPU within calls is the calls' own, but for those that never return: the exits of the threads
        within = sum(row["cpu_ns"] for row in found.calls)
        assert 0.8 * found.time["system_ns"] <= within <= found.time["system_ns"]


def left_out_ns() -> int:
    """What the scheduler does not count as run time: interrupts, and what a hypervisor took. In ticks of 10 ms, of all CPUs."""
    fields = Path("/proc/stat").read_text().split()
    return sum(int(fields[i]) for i in (6, 7, 8)) * 10_000_000


@on_each_tier
def test_cpu_agrees_with_the_scheduler(tier: str, programs: Path, tmp_path: Path) -> None:
    before = left_out_ns()
    with traced(programs, "spin", 1_000, out=tmp_path, tier=tier) as (capture, pid):
        left_out = left_out_ns() - before + 10_000_000
        time = report(capture, pid).time
        ran, stat = time["user_ns"] + time["system_ns"], time["stat_run_ns"]
        assert ran + time["unknown_ns"] + left_out >= 990_000_000 and time["unknown_ns"] <= 0.02 * ran
        assert -time["unknown_ns"] - 0.01 * stat <= ran - stat <= 0.01 * stat + left_out


@on_each_tier
def test_the_check_allows_for_each_waking_what_was_measured(tier: str, programs: Path, tmp_path: Path) -> None:
    """Whether it holds depends on what a hypervisor takes from this machine while the test runs: the report says so, the test cannot."""
    with traced(programs, "naps", 1_000, out=tmp_path, tier=tier) as (capture, pid):
        found = report(capture, pid)
        detail = capture.manifest.probe("kernel").detail
        [naps] = capture.rows("select count(*) as n, sum(sleeps)::bigint as sleeps from call where call = 'clock_nanosleep'")
    assert detail["waking_run_ns"] > 0 and detail["waking_runq_ns"] > 0
    # A nap whose timer fires before the thread has left the CPU is none.
    assert naps["n"] == 1_000 and 500 <= naps["sleeps"] <= found.time["sleeps"]
    for check, each in zip(found.checks, (detail["waking_run_ns"], detail["waking_runq_ns"])):
        counted = max(check["kernel_ns"] // 100, 2_000_000)
        assert check["allowed_ns"] == counted + each * found.time["sleeps"] + found.time["unknown_ns"]
        assert check["holds"] is (abs(check["trace_ns"] - check["kernel_ns"]) <= check["allowed_ns"])


@on_each_tier
def test_processes_of_a_few_milliseconds_are_counted(tier: str, programs: Path, tmp_path: Path) -> None:
    with traced(programs, "children", 1_000, out=tmp_path, tier=tier) as (capture, pid):
        children = capture.rows(f"select comm, count(*) as n from thread_name where pid <> {pid} group by comm")
        assert children == [{"comm": "children", "n": 1_000}]
        calls = capture.rows("select call, count(*) as n, count(distinct pid) as pids from call where call = 'semget' group by call")
        assert calls == [{"call": "semget", "n": 1_000, "pids": 1_000}]
        assert capture.scalar(f"select count(*) from thread_time join thread_name using (thread_id) where exited and pid <> {pid}") == 1_000


@on_each_tier
def test_five_thousand_threads(tier: str, programs: Path, tmp_path: Path) -> None:
    with traced(programs, "crowd", 5_000, out=tmp_path, tier=tier) as (capture, pid):
        assert capture.manifest.probe("kernel").loss["records_lost"] == 0
        threads = capture.rows(f"select count(*) as n, count(distinct tid) as tids from thread_name where pid = {pid}")
        assert threads == [{"n": 5_001, "tids": 5_001}]
        calls = capture.rows("select count(*) as n, count(distinct thread_id) as threads from call where call = 'semget' and errno = 2")
        assert calls == [{"n": 5_000, "threads": 5_000}]
        assert capture.scalar("select count(*) from thread_time where exited") == 5_000
        assert report(capture, pid).closes_ns == 0


@on_each_tier
def test_a_program_that_becomes_another_keeps_its_thread(tier: str, tmp_path: Path) -> None:
    script = "import os, threading\nthreading.Thread(target=lambda: os.execvp('sh', ['sh', '-c', 'exec true'])).start()"
    path, status = trace(command=[sys.executable, "-c", script], tier=tier, out=tmp_path / "e.leadline")
    assert status == 0
    capture = open_capture(path)
    try:
        names = capture.rows("select thread_id, comm, tid = pid as is_first from thread order by ts")
        # A thread that is not the first one execs: it goes on under the number of the process.
        assert [row["comm"] for row in names][-2:] == ["sh", "true"] and names[-1]["is_first"]
        assert len({row["thread_id"] for row in names[-2:]}) == 1
        execs = capture.rows("select ret, count(*) as n from call where call = 'execve' and not partial group by ret order by ret")
        assert next(row for row in execs if row["ret"] == 0)["n"] >= 3
        assert capture.scalar("select sum(lost_records) from thread_time") == 0
    finally:
        capture.close()


@needs_bpf
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide what the kernel says of its types")
def test_a_kernel_that_does_not_describe_its_types(tmp_path: Path) -> None:
    out = tmp_path / "no.leadline"
    command = f"mount -t tmpfs none /sys/kernel/btf && exec {sys.executable} -m leadline trace --kernel-tier bpf -o {out} -- true"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not out.exists()
    assert "the kernel does not describe its types" in done.stderr and "CONFIG_DEBUG_INFO_BTF" in done.stderr
    assert "Traceback" not in done.stderr


@needs_perf
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide what the kernel says of its types, and its tracepoints")
@pytest.mark.parametrize("hidden", ["/sys/kernel/btf", "/sys/kernel/btf /sys/kernel/tracing /sys/kernel/debug"])
def test_without_types_perf_events_are_taken(hidden: str, tmp_path: Path) -> None:
    """Also where tracefs is not mounted: it is, for the thread that reads it."""
    out = tmp_path / "p.leadline"
    hide = " && ".join(f"mount -t tmpfs none {place}" for place in hidden.split() if Path(place).exists())
    trace_it = f"{sys.executable} -m leadline trace -o {out} -- true"
    command = f"{hide} && cat /proc/mounts >{tmp_path}/a && {trace_it} && cat /proc/mounts >{tmp_path}/b"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    assert "note: no kernel tier bpf: the kernel does not describe its types" in done.stderr
    assert "note: threads are traced by perf events: no requests of disks" in done.stderr
    assert "CONFIG_DEBUG_INFO_BTF" in done.stderr  # what would help
    state = read_manifest(out).probe("kernel")
    assert (state.status, state.tier) == ("partial", "perf")
    capture = open_capture(out)
    try:
        assert capture.scalar("select count(*) from call where call = 'execve' and ret = 0") == 1
        assert capture.unavailable("thread_time") is None
        assert capture.unavailable("block_io") == "perf events tell of no requests of disks"
    finally:
        capture.close()


@on_each_tier
def test_a_command_is_traced_from_start_to_end(tier: str, tmp_path: Path) -> None:
    command = ("--json", "--", sys.executable, "-c", "import os; os._exit(7)")
    done = leadline("trace", "--kernel-tier", tier, "-o", tmp_path / "c.leadline", *command)
    assert done.returncode == 7, done.stderr
    summary = json.loads(done.stdout)
    assert summary["probes"]["kernel"]["tier"] == tier
    assert summary["exit_status"] == 7 and summary["target"]["kind"] == "process"
    capture = open_capture(tmp_path / "c.leadline")
    try:
        assert capture.scalar("select count(*) from call where call = 'execve' and ret = 0") == 1
        assert capture.scalar("select bool_and(exited) from thread_time")
    finally:
        capture.close()


WITH_SIGNALS = """
import signal, sys
from pathlib import Path
from leadline.probes.trace import trace
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
trace(command=["true"], out=Path(sys.argv[1]), tier="bpf")
signal.setitimer(signal.ITIMER_REAL, 0)
"""


@needs_bpf
def test_a_trace_starts_while_signals_arrive(tmp_path: Path) -> None:
    """The kernel gives up checking a program when a signal is due for who loads it."""
    subprocess.run([sys.executable, "-c", WITH_SIGNALS, str(tmp_path / "c.leadline")], check=True)


@on_each_tier
def test_nothing_is_left_in_the_kernel(tier: str, programs: Path, tmp_path: Path) -> None:
    with traced(programs, "known", out=tmp_path, tier=tier):
        pass
    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [link for link in held if "bpf" in link or "perf_event" in link]


@needs_bpf
def test_without_rights_the_error_says_which(tmp_path: Path) -> None:
    command = ("trace", "--kernel-tier", "bpf", "-p", os.getpid(), "--for", "1s", "-o", tmp_path / "n.leadline")
    done = leadline(*command, before=as_one_without_rights)
    assert done.returncode == 2
    assert "the kernel does not take the BPF programs" in done.stderr and "cap_bpf" in done.stderr
    assert not (tmp_path / "n.leadline").exists()
    checks = json.loads(leadline("doctor", "--json", before=as_one_without_rights).stdout)["checks"]
    named = {check["name"]: check for check in checks}
    bpf, perf, tier = named["BPF programs"], named["perf events"], named["kernel tier"]
    assert bpf["status"] == "missing" and bpf["command"].startswith("sudo setcap cap_bpf,cap_perfmon+ep")
    assert perf["status"] == "missing" and perf["command"].startswith("sudo setcap cap_perfmon,cap_dac_read_search+ep /")
    assert (tier["status"], tier["command"]) == ("missing", bpf["command"]) and tier["found"].startswith("proc:")


@needs_bpf
@needs_perf
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide what the kernel says of its types")
def test_the_doctor_names_the_kernel_tier() -> None:
    hidden = f"mount -t tmpfs none /sys/kernel/btf && {sys.executable} -m leadline doctor --json"
    for command, status, tier in ((f"{sys.executable} -m leadline doctor --json", "ok", "bpf:"), (hidden, "limited", "perf:")):
        done = subprocess.run(["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=False)
        [found] = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "kernel tier"]
        assert (found["status"], found["found"][: len(tier)]) == (status, tier)
        assert ("CONFIG_DEBUG_INFO_BTF" in found["command"]) is (status == "limited")


def test_without_rights_processes_are_read_from_proc(tmp_path: Path) -> None:
    done = leadline("trace", "-p", os.getpid(), "--for", "500ms", "-o", tmp_path / "n.leadline", before=as_one_without_rights)
    assert done.returncode == 0, done.stderr
    assert "no kernel tier bpf: the kernel does not take the BPF programs" in done.stderr
    assert "note: threads are not traced: processes are read from /proc, without calls and sleeps (to trace: run as root" in done.stderr
    state = read_manifest(tmp_path / "n.leadline").probe("kernel")
    assert (state.status, state.tier) == ("off", "proc") and "cap_bpf" in state.hint
    shown = leadline("threads", tmp_path / "n.leadline")
    assert shown.returncode == 2 and "threads are not traced: processes are read from /proc" in shown.stderr
    capture = open_capture(tmp_path / "n.leadline")
    try:
        assert capture.scalar(f"select count(*) from process where pid = {os.getpid()}") >= 1
    finally:
        capture.close()


def test_a_kernel_tier_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(LeadlineError, match="no kernel tier named magic"):
        trace(pids=[os.getpid()], tier="magic", for_s=0.1, out=tmp_path / "x.leadline")
    assert not (tmp_path / "x.leadline").exists()


def test_processes_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(LeadlineError, match="no process 4194305"):
        trace(pids=[4194305], out=tmp_path / "x.leadline")
    with pytest.raises(LeadlineError, match="no command"):
        trace(command=["/no/such/command"], out=tmp_path / "x.leadline")
    with pytest.raises(LeadlineError, match="no process was chosen"):
        trace(out=tmp_path / "x.leadline")
    assert not (tmp_path / "x.leadline").exists()


@on_each_tier
def test_the_report_on_a_terminal(tier: str, programs: Path, tmp_path: Path) -> None:
    with traced(programs, "known", out=tmp_path, tier=tier) as (capture, pid):
        path = capture.path
    shown = on_terminal(["threads", str(path), str(pid)], 50, 80)
    assert "check: the parts differ from the traced time by 0 ns" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert ("traced by perf events: " in shown) is (tier == "perf")
    header = leadline("show", path).stdout.splitlines()
    assert [line for line in header if line.startswith("trace ") and f"by {'BPF' if tier == 'bpf' else 'perf events'}: " in line]
    listed = leadline("threads", path)
    assert "known" in listed.stdout
    events = leadline("events", path, "--call", "semget")
    assert events.stdout.count("semget(0x10cabb74, 1, 0") == 4 and events.stdout.count("= ENOENT") == 4
    assert read_manifest(path).status == "complete"


@on_each_tier
@pytest.mark.parametrize(("name", "times", "processes"), [("threads", 1_000, 1), ("children", 700, 700)])
def test_a_missing_semaphore_is_found(tier: str, name: str, times: int, processes: int, programs: Path, tmp_path: Path) -> None:
    """The case of the Db2 client: threads of one process, and processes that live for a moment, each asking once."""
    with traced(programs, name, times, out=tmp_path, tier=tier) as (capture, _):
        found = evaluate(capture, only=["FAILING-CALL-STORM"])
        assert not found.not_evaluated
        [finding] = found.findings
        [evidence] = finding.evidence
        assert finding.subject == f"semget of {name}" and "always with the arguments 0x10cabb74, 0x1" in finding.statement
        assert (evidence["error"], evidence["arg0"], evidence["processes"]) == ("ENOENT", "0x10cabb74", processes)
        assert evidence["calls"] == (8 * times if name == "threads" else times)
        spent = capture.scalar("select sum(duration_ns) / 1e9 from call where call = 'semget'")
        assert finding.cost_s == pytest.approx(spent)


LIBRARY = """
#include <sys/sem.h>
static __attribute__((noinline)) int look(int key) { int id = semget(key, 1, 0); __asm__ volatile("" ::: "memory"); return id + 1; }
int client_call(int key) { int sum = 0; for (int i = 0; i < 3; i++) sum += look(key + sum); return sum; }
"""


@needs_bpf
@pytest.mark.parametrize("children", [0, 300])
def test_the_caller_of_a_failing_call_is_found_in_a_stripped_library(children: int, tmp_path: Path) -> None:
    """No symbols, no frame pointers; with children it is processes that live for a moment."""
    for name, code, more in (
        ("libclient.so", LIBRARY, ["-shared", "-fPIC"]),
        (
            "user",
            """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int client_call(int key);
static __attribute__((noinline)) int request(int key) { int sum = client_call(key); __asm__ volatile("" ::: "memory"); return sum; }
int main(int argc, char **argv) {
  int children = atoi(argv[1]);
  if (!children) return request(0x10cabb74);
  for (int i = 0; i < children; i++) {
    if (fork() == 0) _exit(request(0x10cabb74));
    wait(NULL);
  }
  return 0;
}
""",
            [f"-L{tmp_path}", "-lclient", f"-Wl,-rpath,{tmp_path}"],
        ),
    ):
        (tmp_path / f"{name}.c").write_text(code)
        built = ["cc", "-O2", "-fomit-frame-pointer", "-o", tmp_path / name, tmp_path / f"{name}.c", *more]
        subprocess.run(built, check=True)
    symbols = subprocess.run(["nm", "-S", tmp_path / "libclient.so"], check=True, capture_output=True, text=True).stdout
    subprocess.run(["strip", tmp_path / "libclient.so", tmp_path / "user"], check=True)
    path, status = trace(command=[str(tmp_path / "user"), str(children)], out=tmp_path / "c.leadline")
    assert status == 0
    capture = open_capture(path)
    try:
        stacks = capture.rows(
            """
            select u.frames, u.complete, f.addresses[2] as second, count(*) as n, count(distinct n.pid) as processes
            from stack_sample s join user_frames u using (user_stack_id) join user_stack f using (user_stack_id)
            join thread_name n using (thread_id) join syscall_name c using (nr) where s.kind = 'failed' and c.name = 'semget' group by all
            """
        )
        [library] = capture.rows("select build_id from mapped_file where path like '%/libclient.so'")
    finally:
        capture.close()
    assert library["build_id"]
    [stack] = stacks
    assert (stack["n"], stack["processes"], stack["complete"]) == (max(3 * children, 3), max(children, 1), True)
    frames = stack["frames"]
    assert frames[0] == "semget" and frames[2] == "client_call"  # the one name that a stripped library has to keep
    assert frames[1].startswith("libclient.so+0x") and frames[3].startswith("user+0x")
    begin, size = next((int(a, 16), int(b, 16)) for a, b, _, name in (line.split() for line in symbols.splitlines() if line.count(" ") == 3)
                       if name == "look")  # fmt: skip
    assert begin < stack["second"] < begin + size


@on_each_tier
def test_what_runs_and_what_sleeps_has_its_functions(tier: str, programs: Path, tmp_path: Path) -> None:
    with traced(programs, "spin", 400, out=tmp_path, tier=tier) as (capture, pid):
        on_cpu = functions(folded(capture, "on-cpu", pid))
        [spent] = capture.rows(f"select user_ns + system_ns as ns from thread_time join thread_name using (thread_id) where pid = {pid}")
    # 99 samples a second of 0.4 s and more.
    total = {f.name: f.total for f in on_cpu}
    assert total["main"] == pytest.approx(spent["ns"], rel=0.25)


def disk_counters(device: str) -> dict[str, tuple[int, int]]:
    """Requests and bytes by operation, as /proc/diskstats has them."""
    [words] = [line.split() for line in Path("/proc/diskstats").read_text().splitlines() if line.split()[2] == Path(device).name]
    numbers = [int(word) for word in words[3:]]
    return {
        "read": (numbers[0], numbers[2] * 512),
        "write": (numbers[4], numbers[6] * 512),
        "discard": (numbers[11], numbers[13] * 512),
        "flush": (numbers[15], 0),
    }


@needs_bpf
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a block device")
def test_requests_of_a_disk_are_those_that_diskstats_counts(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(64 << 20))
    with loop_device(disk) as device:
        before = disk_counters(device)
        script = f"""
            dd if=/dev/zero of={device} bs=8k count=500 oflag=direct status=none
            dd if=/dev/zero of={device} bs=1M count=20 conv=fsync status=none
            dd if={device} of=/dev/null bs=4k count=300 iflag=direct status=none
            blkdiscard -o 1M -l 2M {device} || true
        """
        path, _ = trace(command=["sh", "-c", script], out=tmp_path / "disk.leadline")
        after = disk_counters(device)
    counted = {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in before}
    capture = open_capture(path)
    try:
        rows = capture.rows(
            f"""
            select operation, count(*) as n, sum(bytes)::bigint as bytes, min(least(queue_ns, service_ns)) as least,
                   count(*) filter (where thread_id > 0) as ours
            from block_io where device = '{Path(device).name}' group by operation
            """
        )
    finally:
        capture.close()
    traced_io = {row["operation"]: (row["n"], row["bytes"]) for row in rows}
    assert traced_io == {name: both for name, both in counted.items() if both != (0, 0)}
    assert counted["read"][0] >= 300 and counted["write"][0] >= 520 and counted["flush"][0] >= 1
    assert all(row["least"] >= 0 for row in rows)
    assert next(row for row in rows if row["operation"] == "read")["ours"] == counted["read"][0]


@on_each_tier
def test_a_killed_trace_can_be_read(tier: str, programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed.leadline"
    with background([programs / "many", 10], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        command = [sys.executable, "-m", "leadline", "trace", "--kernel-tier", tier, "-p", program.pid, "--for", "60s", "-o", out]
        with background(command, stderr=subprocess.DEVNULL) as recorder:
            wait_until(lambda: list(out.glob("thread/*.parquet")), what="the first segment of threads")
            recorder.kill()
            recorder.wait()
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(b"\n")  # the kernel took the programs away with the recorder: what they looked at goes on
        program.stdin.flush()
        assert program.stdout.readline() == b"done\n"
    capture = open_capture(out)
    try:
        assert capture.interrupted
        assert capture.scalar("select count(*) from thread") >= 1
    finally:
        capture.close()


@needs_bpf
def test_a_process_that_ends_in_the_window(programs: Path, tmp_path: Path) -> None:
    done = leadline("trace", "--for", "20s", "-o", tmp_path / "e.leadline", "--", "true")
    assert done.returncode == 0 and "the command ended with exit code 0" in done.stderr
    manifest = read_manifest(tmp_path / "e.leadline")
    assert manifest.status == "complete" and (manifest.cost.window_s or 99) < 10


@needs_bpf
def test_a_command_that_a_signal_ended_and_a_trace_whose_processes_are_gone(programs: Path, tmp_path: Path) -> None:
    done = leadline("trace", "-o", tmp_path / "k.leadline", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 128 + 9 and "the command ended with signal 9" in done.stderr

    class Ends(Goes):
        def go(self) -> None:
            super().go()
            self.program.communicate()

    with background([programs / "naps", 1], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        path, _ = trace(pids=[program.pid], for_s=100, out=tmp_path / "p.leadline", progress=Ends(program))
    manifest = read_manifest(path)
    assert manifest.status == "complete" and (manifest.cost.window_s or 99) < 50


@needs_bpf
def test_how_threads_are_scheduled_is_told(tmp_path: Path) -> None:
    ways = {
        ("other", 5): "nice -n 5", ("batch", 0): "chrt -b 0", ("idle", 0): "chrt -i 0", ("fifo", 7): "chrt -f 7",
        ("rr", 9): "chrt -r 9",
    }  # fmt: skip
    path, status = trace(command=["sh", "-c", "; ".join(f"{way} true" for way in ways.values())], out=tmp_path / "p.leadline")
    assert status == 0
    with closing(open_capture(path)) as capture:
        of_each = "select policy, priority from thread_time join thread_name using (thread_id)"
        rows = capture.rows(f"{of_each} where comm = 'true' order by ts_from")
        assert [tuple(row.values()) for row in rows] == list(ways)
    assert "fifo 7" in leadline("threads", path).stdout


MOVES = """
import os, sys
first, second = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, {first})
sys.stdin.readline()
for _ in range(10):
    os.sched_setaffinity(0, {second})
    os.sched_setaffinity(0, {first})
print("done", flush=True)
sys.stdin.readline()
"""


@needs_bpf
def test_moves_to_other_cpus_and_nodes_are_counted(tmp_path: Path) -> None:
    """Where the trace found a thread asleep, and the first CPU of a new one, are no moves."""
    if len(os.sched_getaffinity(0)) < 2:
        no_oracle("one CPU: there is nowhere to move to")
    with background([sys.executable, "-c", MOVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        path, _ = trace(pids=[program.pid], for_s=0.3, out=tmp_path / "m.leadline", progress=Goes(program))
    with closing(open_capture(path)) as capture:
        found = report(capture, program.pid)
        assert found.time["migrations"] == 20
        assert found.numa_nodes == max(1, len(numa_nodes()))
        if found.numa_nodes == 1:
            assert found.time["node_moves"] == 0
    said = leadline("threads", path, program.pid).stdout
    assert ("20 moves to another CPU; the host has one NUMA node" in said) == (found.numa_nodes == 1)
