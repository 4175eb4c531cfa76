"""Calls that are not made as most are: by 32-bit code, answered by a seccomp filter, from within a PID namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from bpf import needs_bpf, on_each_tier
from conftest import background
from leadline.capture.reader import Capture, open_capture
from leadline.probes.trace import trace
from traced import Goes

BEGIN = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def code(machine):
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(machine)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(ctypes.c_int)(at), memory
"""
END = """
sys.stdout.write("done\\n"); sys.stdout.flush(); sys.stdin.readline()
"""
# mov eax, 64 (getppid of 32-bit programs, semget of others); int 0x80; ret
OF_32_BIT = """
call, kept = code(b"\\xb8\\x40\\0\\0\\0\\xcd\\x80\\xc3")
sys.stdin.readline()
for _ in range(23):
    assert call() == os.getppid()
"""
# Of 32-bit programs: open (5), read (3), close (6), of a path below 4 GB. push rbx; mov eax, edi; mov ebx, esi;
# mov ecx, edx; mov edx, ecx; int 0x80; pop rbx; ret
FILES_OF_32_BIT = """
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(b"\\x53\\x89\\xf8\\x89\\xf3\\x89\\xd1\\x89\\xca\\xcd\\x80\\x5b\\xc3")
call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_uint)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
libc.mmap.restype = ctypes.c_void_p
low = libc.mmap(None, 4096, 3, 0x22 | 0x40, -1, 0)  # MAP_32BIT
ctypes.memmove(low, b"/etc/hostname\\0", 14)
sys.stdin.readline()
fd = call(5, low, 0)
assert fd > 2
assert call(3, fd, low) > 0
assert call(6, fd, 0) == 0
"""
# A filter: semget (64) fails with EPERM (1), all others are allowed.
FILTERED = """
import struct
def line(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
filter = line(0x20, 0, 0, 0) + line(0x15, 0, 1, 64) + line(0x06, 0, 0, 0x00050001) + line(0x06, 0, 0, 0x7fff0000)
kept = ctypes.create_string_buffer(filter)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(kept)))
sys.stdin.readline()
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
for _ in range(1000):
    assert libc.syscall(64, 0x10cabb74, 1, 0) == -1 and ctypes.get_errno() == 1
"""


def traced(code: str, out: Path, tier: str = "bpf", **options: object) -> Path:
    command = [sys.executable, "-c", BEGIN + code + END]
    with background(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        path, _ = trace(pids=[program.pid], for_s=0.3, out=out, progress=Goes(program), tier=tier, **options)  # type: ignore[arg-type]
    return path


def opened(path: Path) -> AbstractContextManager[Capture]:
    return closing(open_capture(path))


@needs_bpf
def test_calls_of_32_bit_have_the_names_of_their_own_table(tmp_path: Path) -> None:
    with opened(traced(OF_32_BIT, tmp_path / "32.leadline")) as capture:
        found = capture.rows("select call, nr, count(*) as n from call where call in ('getppid', 'semget') group by all order by nr")
    assert found == [{"call": "getppid", "nr": 110, "n": 23}, {"call": "getppid", "nr": 4096 + 64, "n": 23}]


@needs_bpf
def test_files_of_32_bit_calls_are_named(tmp_path: Path) -> None:
    with opened(traced(FILES_OF_32_BIT, tmp_path / "f.leadline")) as capture:
        found = capture.rows("select call, nr, file, arg3, arg4 from call where nr >= 4096 order by ts")
    named = {"file": "/etc/hostname", "arg3": 0, "arg4": 0}
    assert found == [{"call": call, "nr": 4096 + nr} | named for call, nr in (("open", 5), ("read", 3), ("close", 6))]


@needs_bpf
@pytest.mark.parametrize("detail", ["events", "sums"])
def test_calls_that_a_seccomp_filter_answers_are_there(detail: str, tmp_path: Path) -> None:
    path = traced(FILTERED, tmp_path / "s.leadline", detail=detail)
    with opened(path) as capture:
        [semget] = capture.rows(
            "select error, sum(calls)::bigint as calls, sum(duration_ns)::bigint as ns from call_sum where call = 'semget' group by 1"
        )
        assert semget == {"error": "EPERM", "calls": 1000, "ns": 0}
        if detail == "events":
            assert capture.scalar("select count(*) from call where call = 'semget' and arg0 = 281721716 and arg1 = 1") == 1000
    done = subprocess.run([sys.executable, "-m", "leadline", "findings", path, "--json"], capture_output=True, text=True, check=False)
    [storm] = [found for found in json.loads(done.stdout) if found["id"] == "FAILING-CALL-STORM"]
    assert "failed 1000 times with EPERM" in storm["statement"]


@needs_bpf
def test_a_trace_within_a_pid_namespace_has_its_numbers(tmp_path: Path) -> None:
    """The numbers are those that ps prints there; what wakes a thread from outside has none."""
    out = tmp_path / "ns.leadline"
    inside = f"{sys.executable} -m leadline trace --json -o {out} -- sh -c 'echo $$; sleep 0.05; true' > {tmp_path}/said"
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", inside], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pid = int((tmp_path / "said").read_text().split()[0])
    assert pid < 1000
    with opened(out) as capture:
        assert capture.rows(f"select distinct pid, tid from thread_name where pid = {pid}") == [{"pid": pid, "tid": pid}]
        assert capture.scalar(f"select count(*) from call where pid = {pid} and call = 'execve' and ret = 0") == 1
        assert capture.scalar(f"select sum(calls) from thread_time join thread_name using (thread_id) where parent_tid = {pid}") > 10
        assert capture.scalar("select count(*) from thread_name where pid = 0 or tid = 0") == 0


@on_each_tier
def test_threads_have_the_names_that_they_were_given_later(tier: str, tmp_path: Path) -> None:
    """As Java names its threads. And who woke one has a name, traced or not."""
    named = """
import threading
def work(name):
    libc.prctl(15, name.encode(), 0, 0, 0)
    ready.wait()
ready = threading.Barrier(4)
sys.stdin.readline()
threads = [threading.Thread(target=work, args=[f"worker-{i}"]) for i in range(3)]
for t in threads: t.start()
ready.wait()
for t in threads: t.join()
"""
    with opened(traced(named, tmp_path / "n.leadline", tier)) as capture:
        found = capture.rows("select comm from thread_name where comm like 'worker-%' order by comm")
        assert [row["comm"] for row in found] == ["worker-0", "worker-1", "worker-2"]
        if tier == "bpf":  # the test itself woke it by its line
            wakers = "select distinct w.comm from off_cpu o join task_name w on w.tid = o.waker_tid where w.pid = "
            assert capture.rows(f"{wakers} {os.getpid()}") != []
