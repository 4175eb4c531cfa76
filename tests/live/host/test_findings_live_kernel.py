"""The findings of a trace on a real kernel: programs that each do one thing wrong run at the same time, each is found under its name.

Not planted: NUMA-MIGRATION needs a host with two memory nodes; its test is in test_findings_kernel_files.py. FAILING-CALL-STORM is in
test_trace.py and test_trace_db2.py, PROGRAM-RETRANSMITS in test_trace_retransmits.py.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from bpf import needs_bpf
from conftest import background, no_oracle
from host_changes import control_group, kernel_setting, loop_device
from leadline.capture.reader import open_capture
from leadline.findings import Evaluation, Finding, evaluate
from leadline.probes.trace import trace

pytestmark = needs_bpf
WINDOW_S = 5.0

# Which of them it is, a program knows by its name; its argument is a folder for its files. It says when it begins, and goes on.
PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char *pages; /* for direct I/O */
static int file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void nap(long us) { nanosleep(&(struct timespec){0, us * 1000}, NULL); }
static void on_cpu(int number) { cpu_set_t set; CPU_ZERO(&set); CPU_SET(number, &set); sched_setaffinity(0, sizeof set, &set); }
static void *map(size_t bytes, int flags) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (at == MAP_FAILED) abort();
  return at;
}
static void touch(char *at, size_t bytes) { for (size_t i = 0; i < bytes; i += 4096) ((volatile char *)at)[i] = 1; }

static void pollstorm(void) { struct pollfd none = {-1, POLLIN, 0}; for (int i = 0; i < 100; i++) poll(&none, 1, 0); nap(5000); }
static void clockcalls(void) {
  struct timespec t;
  for (int i = 0; i < 100; i++) syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
  nap(5000);
}
static void smallwrites(void) { for (int i = 0; i < 50; i++) if (pwrite(file, "sixteen bytes...", 16, i * 16) != 16) abort(); nap(5000); }
static void shortsleeps(void) { nap(1); }
static void procreader(void) {
  static char text[65536];
  int fd = open("/proc/self/smaps", O_RDONLY);
  while (read(fd, text, sizeof text) > 0) {}
  close(fd);
}
static void faultstorm(void) {
  char *at = map(16 << 20, 0);
  madvise(at, 16 << 20, MADV_NOHUGEPAGE);
  touch(at, 16 << 20);
  munmap(at, 16 << 20);
}
static void hugepages(void) {
  char *at = map(64 << 20, 0);
  madvise(at, 64 << 20, MADV_HUGEPAGE);
  touch(at, 64 << 20);
  munmap(at, 64 << 20);
}
static void hugetlb(void) { /* pages that were set aside for it */
  char *at = map(16 << 20, MAP_HUGETLB);
  touch(at, 16 << 20);
  munmap(at, 16 << 20);
}
static void reclaim(void) { /* a page of a file after the other, where hardly any fits */
  static char *at;
  static size_t next;
  if (!at && (at = mmap(NULL, 1l << 30, PROT_READ, MAP_SHARED, file, 0)) == MAP_FAILED) abort();
  if (!next) madvise(at, 1l << 30, MADV_RANDOM);
  for (int i = 0; i < 256; i++, next = (next + 4096) % (1l << 30)) (void)((volatile char *)at)[next];
}
static void packets(void) { /* each is received 16 times, on the CPU that sends it */
  static int from;
  static struct sockaddr_in group = {AF_INET, 0, {0}, {0}};
  socklen_t length = sizeof group;
  if (!from) {
    struct ip_mreqn member = {{htonl(0xefff1337)}, {htonl(INADDR_LOOPBACK)}, 0}; /* 239.255.19.55 */
    int yes = 1;
    for (int i = 0; i < 16; i++) {
      int to = socket(AF_INET, SOCK_DGRAM, 0);
      setsockopt(to, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (bind(to, (struct sockaddr *)&group, length) || getsockname(to, (struct sockaddr *)&group, &length)) abort();
      if (setsockopt(to, IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member)) abort();
    }
    group.sin_addr = member.imr_multiaddr;
    from = socket(AF_INET, SOCK_DGRAM, 0);
    if (setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &member, sizeof member)) abort();
  }
  for (int i = 0; i < 100; i++) sendto(from, "x", 1, 0, (struct sockaddr *)&group, length);
}
static void change(int by) { struct sembuf one = {0, by, 0}; static int set; if (!set) set = semget(getpid(), 1, 0); semop(set, &one, 1); }
static void semlock(void) { change(-1); nap(300); change(1); sched_yield(); }
static void spinlock(void) { /* 40 ms of 100, both at once, on a CPU each, read a large set, whose lock is held meanwhile */
  static _Thread_local int number;
  static int threads, set;
  static unsigned short values[2][32000];
  if (!number) {
    number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    on_cpu(number % 2);
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1})) abort();
    set = semget(getpid(), 32000, IPC_CREAT | 0600);
  }
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (now.tv_nsec / 20000000 % 5 > 1) nap(1000); else if (semctl(set, 0, GETALL, values[number % 2])) abort();
}
static void futexlock(void) { pthread_mutex_lock(&lock); nap(300); pthread_mutex_unlock(&lock); sched_yield(); }
static void mmaplock(void) { munmap(map(32 << 20, MAP_POPULATE), 32 << 20); }
static void unaligned(void) { if (pread(file, pages, 512, 512) < 0) nap(100); nap(2000); }
static void fsyncstall(void) {
  for (int i = 0; i < 48; i++) if (pwrite(file, pages, 1 << 20, (long)i << 20) != 1 << 20) abort();
  fdatasync(file);
}
static void ioqueue(void) { if (pread(file, pages + 4096 * (rand() % 128), 256 << 10, 4096l * (rand() % 1024)) < 0) abort(); }
static void flusher(void) { if (pwrite(file, pages, 4096, 4096l * (rand() % 256)) < 0 || fdatasync(file)) abort(); }
static void largereads(void) { /* the first thread reads much for 50 ms, and nothing for as long; the others read pages all the time */
  static _Thread_local int number;
  static int threads;
  if (!number) number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
  if (number > 1) { if (pread(file, pages + 4096 * number, 4096, 4096l * (rand() % 4096)) < 0) abort(); nap(500); return; }
  static char *much;
  if (!much) much = map(4 << 20, MAP_POPULATE);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (now.tv_nsec / 50000000 % 2) nap(1000); else if (pread(file, much, 4 << 20, (long)(rand() % 12) << 20) < 0) abort();
}
static void rereader(void) { if (pread(file, pages, 4096, 4096l * (rand() % 16)) < 0) abort(); }
static void runqdelay(void) { for (volatile int i = 0; i < 100000; i++) {} }

static const struct { const char *name; void (*step)(void); int threads, cpu, flags; long bytes; } programs[] = {
  {"pollstorm", pollstorm, 1, -1, 0, 0}, {"clockcalls", clockcalls, 1, -1, 0, 0}, {"smallwrites", smallwrites, 1, -1, O_RDWR, 4096},
  {"shortsleeps", shortsleeps, 1, 1, 0, 0}, {"procreader", procreader, 1, 1, 0, 0}, {"faultstorm", faultstorm, 1, 1, 0, 0},
  {"hugepages", hugepages, 1, 1, 0, 0}, {"runqdelay", runqdelay, 2, 0, 0, 0}, {"futexlock", futexlock, 4, -1, 0, 0},
  {"mmaplock", mmaplock, 6, -1, 0, 0}, {"unaligned", unaligned, 1, -1, O_RDONLY | O_DIRECT, 1 << 20},
  {"hugetlb", hugetlb, 1, 1, 0, 0}, {"reclaim", reclaim, 1, 1, O_RDWR, 1 << 20}, {"packets", packets, 1, 0, 0, 0},
  {"semlock", semlock, 4, -1, 0, 0}, {"spinlock", spinlock, 2, -1, 0, 0},
  {"rereader", rereader, 1, -1, O_RDONLY | O_DIRECT, 1 << 20}, {"flusher", flusher, 2, -1, O_RDWR, 1 << 20},
  {"largereads", largereads, 4, -1, O_RDONLY | O_DIRECT, 16 << 20}, {"fsyncstall", fsyncstall, 1, -1, O_RDWR, 1 << 20},
  {"ioqueue", ioqueue, 32, -1, O_RDONLY | O_DIRECT, 1 << 20},
};
static int which;
static void *repeat(void *nothing) {
  if (programs[which].cpu >= 0) on_cpu(programs[which].cpu);
  for (;;) programs[which].step();
}
int main(int argc, char **argv) {
  const char *name = strrchr(argv[0], '/') + 1;
  while (strcmp(programs[which].name, name)) which++;
  pages = map(1 << 20, 0);
  if (programs[which].cpu >= 0 && nice(-5) == -1) {} /* it needs CPU time on a busy host, too */
  if (programs[which].bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.data", argv[1], name);
    int made = open(path, O_RDWR | O_CREAT, 0600);
    for (long at = 0; at < programs[which].bytes; at += 1 << 20) if (pwrite(made, pages, 1 << 20, at) < 0) return 1;
    fsync(made);
    if ((file = open(path, programs[which].flags)) < 0) return 1;
  }
  if (!strcmp(name, "reclaim") && ftruncate(file, 1l << 30)) return 1;
  if (!strcmp(name, "semlock") && semctl(semget(getpid(), 1, IPC_CREAT | 0600), 0, SETVAL, 1)) return 1;
  pthread_t thread;
  for (int i = 1; i < programs[which].threads; i++) if (pthread_create(&thread, NULL, repeat, NULL)) return 1;
  if (write(1, "begun\n", 6) != 6) return 1;
  repeat(NULL);
}
"""


@dataclass(frozen=True)
class Plant:
    """A program, and the finding that is to name it; says: words of its statement, where {pid} is the program's.

    alone: it names no other of the group.
    """

    program: str
    rule: str
    subject: str
    says: tuple[str, ...] = ()
    alone: bool = True


# Those of a group run at the same time.
BUSY = (
    Plant("pollstorm", "POLL-STORM", "poll of pollstorm", ("returned at once with nothing", "100 % of its calls")),
    Plant("clockcalls", "CLOCK-CALLS", "clock_gettime of clockcalls"),
    Plant("smallwrites", "SMALL-IO", "smallwrites.data of smallwrites", ("with 16 bytes each",)),
    Plant("shortsleeps", "SHORT-SLEEPS", "clock_nanosleep of shortsleeps"),
    Plant("procreader", "PROC-READERS", "procreader", ("most of it for /proc/PID/smaps",)),
    Plant("faultstorm", "PAGE-FAULT-STORM", "faultstorm", ("0 read from disk",), alone=False),
    Plant("runqdelay", "RUNQ-DELAY", "runqdelay", ("was ready to run for", "it waited behind"), alone=False),
    Plant("hugepages", "HUGE-PAGES", "hugepages"),
    Plant("hugetlb", "HUGE-PAGES", "hugetlb", ("mostly in hugetlb_",)),
    Plant("packets", "INTERRUPT-STEAL", "packets", ("NET_RX",)),
)
WAITING = (
    Plant("futexlock", "FUTEX-CONTENTION", "of futexlock (pid", ("4 threads of futexlock",)),
    Plant("mmaplock", "KERNEL-LOCK-CONTENTION", "munmap of mmaplock in", ("6 threads of mmaplock", "on a lock of the kernel")),
    Plant("unaligned", "UNALIGNED-DIRECT-IO", "unaligned.data of unaligned", ("512 bytes at offset 512",)),
    Plant("fsyncstall", "FSYNC-STALL", "fdatasync of fsyncstall", alone=False),
    Plant("semlock", "SEMAPHORE-CONTENTION", "semaphores 0x", ("4 threads of semlock", "key {pid:#010x}", "by semlock (pid {pid})")),
    Plant("flusher", "BARRIER-WRITES", "loop", ("flusher called fdatasync",)),
    Plant("largereads", "LARGE-IO", "", ("small requests of",)),
    Plant("rereader", "READ-AGAIN", "", ("by rereader",)),
    Plant("spinlock", "KERNEL-SPIN", "spinlock in", ("for a lock of the kernel that",)),
)
# A full disk, and a full memory: reclaim has a CPU for itself where the other one only waits.
FULL = (
    Plant("ioqueue", "IO-QUEUE", "", ("ioqueue",)),
    Plant("reclaim", "MEMORY-RECLAIM", "reclaim", ("mostly in try_to_free_mem_cgroup_pages",)),
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        made = Path(name)
        (made / "program.c").write_text(PROGRAM)
        subprocess.run(["cc", "-O2", "-pthread", "-o", made / "program", made / "program.c"], check=True)
        for plant in BUSY + WAITING + FULL:
            (made / plant.program).symlink_to("program")
        yield made


@dataclass
class Found:
    """absent: programs that cannot be planted here, with the reason."""

    evaluation: Evaluation
    pids: dict[str, int]
    absent: dict[str, str]


def remove_semaphores(key: int) -> None:
    libc = ctypes.CDLL(None)
    libc.semctl(libc.semget(key, 0, 0), 0, 0)  # IPC_RMID


def disk_apart(link: Path, stack: ExitStack) -> Path:
    """A disk over a file, so that nothing else waits for it: its folder in /sys. A flush syncs the file, so it takes time on every host."""
    image = link.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(8 << 20)
    device = stack.enter_context(loop_device(image))
    link.symlink_to(device)
    return Path("/sys/block") / Path(device).name


def planted(plant: Plant, folder: Path, stack: ExitStack) -> int:
    """The program runs and has begun; its pid. Raises the exception of pytest.skip."""
    group = None
    if plant.program == "hugetlb":
        pages = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
        stack.enter_context(kernel_setting(str(pages), "16"))
        if int(pages.read_text()) < 16:
            pytest.skip("the kernel has no room for 16 huge pages")
    elif plant.program == "flusher":
        disk_apart(folder / "flusher.data", stack)
    elif plant.program == "ioqueue":
        queue = disk_apart(folder / "ioqueue.data", stack) / "queue/nr_requests"
        stack.enter_context(kernel_setting(str(queue), "4"))
    elif plant.program == "reclaim":
        group = stack.enter_context(control_group("memory", "16M", "memory.limit_in_bytes", "memory.max"))
    program = stack.enter_context(background([folder / plant.program, folder], stdout=subprocess.PIPE))
    assert program.stdout is not None and program.stdout.readline() == b"begun\n"
    if group is not None:
        (group / "cgroup.procs").write_text(str(program.pid))
    if plant.program in ("semlock", "spinlock"):
        stack.callback(remove_semaphores, program.pid)
    return program.pid


@functools.cache
def found(group: tuple[Plant, ...], folder: Path) -> Found:
    pids: dict[str, int] = {}
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        for plant in group:
            try:
                pids[plant.program] = planted(plant, folder, stack)
            except pytest.skip.Exception as e:
                absent[plant.program] = str(e)
        path, _ = trace(pids=pids.values(), for_s=WINDOW_S, out=folder / f"{group[0].program}.leadline")
    with closing(open_capture(path)) as capture:
        return Found(evaluate(capture), pids, absent)


def of(plant: Plant, evaluation: Evaluation) -> list[Finding]:
    return [f for f in evaluation.findings if f.id == plant.rule and plant.subject in f.subject]


def disk_of(folder: Path) -> Path:
    """Its folder in /sys, if it is on one."""
    device = folder.stat().st_dev
    return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")


OF_DISKS = ("IO-QUEUE", "READ-AGAIN", "FSYNC-STALL", "UNALIGNED-DIRECT-IO", "BARRIER-WRITES", "LARGE-IO")
EACH = [pytest.param(plant, group, id=f"{plant.rule}-{plant.program}") for group in (BUSY, WAITING, FULL) for plant in group]


@pytest.mark.parametrize(("plant", "group"), EACH)
def test_what_is_planted_is_found_under_its_name(plant: Plant, group: tuple[Plant, ...], folder: Path) -> None:
    if plant.rule in OF_DISKS and not disk_of(folder).exists():
        no_oracle("the kernel has the temporary folder on no block device")
    planted = found(group, folder)
    if plant.program in planted.absent:
        pytest.skip(f"not planted on this kernel: {planted.absent[plant.program]}")
    evaluation = planted.evaluation
    [finding] = of(plant, evaluation)
    for words in plant.says:
        assert words.format(pid=planted.pids[plant.program]) in finding.statement, finding.statement
    assert finding.cost_s is not None and finding.cost_s > 0
    if plant.subject and plant.alone:
        others = [f.subject for f in evaluation.findings if f.id == plant.rule and f.subject != finding.subject]
        assert not [name for name in others if any(p.program in name for p in group if p.rule != plant.rule)], others
