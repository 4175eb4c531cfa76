"""Operations of io_uring and io_submit whose numbers and results are known."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from bpf import needs_bpf
from leadline.capture.reader import open_capture
from leadline.findings import evaluate
from leadline.probes.trace import trace
from leadline.views.sections import Context, all_sections

# One after another: each is handed over and waited for in one call.
PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static struct io_uring_params p;
static char *sq, *cq;
static struct io_uring_sqe *sqes;
static int ring;
static int one(int opcode, int fd, void *buffer, unsigned bytes, unsigned flags) {
  unsigned *tail = (unsigned *)(sq + p.sq_off.tail), mask = *(unsigned *)(sq + p.sq_off.ring_mask), at = *tail & mask;
  struct io_uring_sqe *s = &sqes[at];
  memset(s, 0, sizeof *s);
  s->opcode = opcode;
  s->fd = fd;
  s->addr = (unsigned long)buffer;
  s->len = bytes;
  s->flags = flags;
  ((unsigned *)(sq + p.sq_off.array))[at] = at;
  __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
  if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1) exit(3);
  unsigned *head = (unsigned *)(cq + p.cq_off.head), cmask = *(unsigned *)(cq + p.cq_off.ring_mask);
  int result = ((struct io_uring_cqe *)(cq + p.cq_off.cqes))[*head & cmask].res;
  __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
  return result;
}
int main(int argc, char **argv) {
  char block[4096] = "x";
  ring = syscall(SYS_io_uring_setup, 8, &p);
  if (ring < 0) { perror("io_uring_setup"); return 77; }
  sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
  cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
  sqes = mmap(NULL, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
  int file = open(argv[1], O_RDWR | O_CREAT, 0600);
  for (int i = 0; i < 5; i++) if (one(IORING_OP_WRITE, file, block, 100 + i, 0) != 100 + i) return 4;
  for (int i = 0; i < 3; i++) if (one(IORING_OP_READ, file, block, 50, 0) < 0) return 5;
  if (one(IORING_OP_FSYNC, file, NULL, 0, IOSQE_ASYNC) != 0) return 6;
  for (int i = 0; i < 2; i++) if (one(IORING_OP_READ, 999, block, 50, 0) != -9) return 7;
  for (int i = 0; i < 7; i++) if (one(IORING_OP_NOP, -1, NULL, 0, 0) != 0) return 8;
  return 0;
}
"""


@needs_bpf
def test_each_operation_is_told_with_its_file_and_result(tmp_path: Path) -> None:
    source, program, file = tmp_path / "ring.c", tmp_path / "ring", tmp_path / "written"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-O2", "-o", program, source], check=True)
    path, status = trace(command=[str(program), str(file)], out=tmp_path / "r.leadline")
    if status == 77:
        pytest.skip("this kernel gives no io_uring")
    assert status == 0
    with closing(open_capture(path)) as capture:
        rows = capture.rows(
            """
            select operation, result, o.name as file, count(*) as n, count(*) filter (by_worker) as by_workers, min(duration_ns) as least
            from io_uring_op left join file_name o using (file_id) group by all order by operation, result
            """
        )
        traced = capture.scalar("select max(ts) - min(ts - duration_ns) from io_uring_op join thread_name using (thread_id)")
        assert all(0 < row["least"] <= traced for row in rows), (rows, traced)
        assert [(row["operation"], row["result"], row["file"], row["n"]) for row in rows] == [
            ("fsync", 0, str(file), 1),
            ("nop", 0, None, 7),
            ("read", -9, None, 2),
            ("read", 50, str(file), 3),
            *(("write", 100 + i, str(file), 1) for i in range(5)),
        ]
        asked = "select operation, bytes, place, count(*) as n from io_uring_op group by all order by 1, 2, 3"
        assert [tuple(row.values()) for row in capture.rows(asked)] == [
            ("fsync", None, None, 1), ("nop", None, None, 7), ("read", 50, 0, 5), *(("write", 100 + i, 0, 1) for i in range(5)),
        ]  # fmt: skip
        # What was asked to be left to a worker was, what waits for nothing was not; of writes the file system decides.
        by_workers = {row["operation"]: row["by_workers"] for row in rows}
        assert (by_workers["fsync"], by_workers["nop"]) == (1, 0)
        [section] = [section for section in all_sections() if section.key == "io_uring"]
        grid = section.data(Context(capture, None))
        read = sorted(row[:4] for row in grid.rows if row[0] == "read")
        assert read == [("read", "(none)", 2, 2), ("read", str(file), 3, 0)]


# 120 reads of 512 bytes at 512, 1, 2 or 3 to a call, and one with a descriptor that is none.
SUBMITS = r"""
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong()
if libc.syscall(206, 64, ctypes.byref(context)):  # io_setup
    sys.exit(77)
fd, buffer = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
def submit(fds):
    kept = [ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 7, 0, 0, 0, 0, f, address, 512, 512, 0, 0, 0)) for f in fds]
    list = (ctypes.c_void_p * len(kept))(*map(ctypes.addressof, kept))
    done = libc.syscall(209, context, len(kept), list)
    events = ctypes.create_string_buffer(32 * 8)
    if done > 0 and libc.syscall(208, context, ctypes.c_long(done), ctypes.c_long(8), events, None) != done:  # io_getevents
        sys.exit(5)
    return done
for n in [1, 2, 3] * 20:
    if submit([fd] * n) != n:
        sys.exit(4)
if submit([999]) != -1:
    sys.exit(6)
"""


@needs_bpf
def test_what_io_submit_hands_over_is_told(tmp_path: Path) -> None:
    """Also when it is not aligned: the calls do not say so, what they hand over does."""
    file, out = tmp_path / "direct", tmp_path / "s.leadline"
    file.write_bytes(bytes(8192))
    path, status = trace(command=[sys.executable, "-c", SUBMITS, str(file)], out=out)
    if status == 77:
        pytest.skip("this kernel gives no asynchronous I/O")
    assert status == 0
    with closing(open_capture(path)) as capture:
        rows = capture.rows(
            "select operation, o.name as file, bytes, place, count(*) as n"
            " from io_submit_op left join file_name o using (file_id) group by all order by n"
        )
        assert [tuple(row.values()) for row in rows] == [("read", None, 512, 512, 1), ("read", str(file), 512, 512, 120)]
        [found] = evaluate(capture, only=["UNALIGNED-DIRECT-IO"]).findings
        assert f"made 120 reads and writes of {file} with O_DIRECT" in found.statement
        assert "one had 512 bytes at offset 512" in found.statement
