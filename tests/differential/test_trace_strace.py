"""System calls of whole programs, counted by `leadline trace` and by `strace -c`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from bpf import on_each_tier
from conftest import no_oracle
from leadline.capture.reader import open_capture

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"
FORKS = """
import os
for i in range(20):
    if os.fork() == 0:
        for _ in range(i): os.getppid()
        try: os.stat("/nowhere")
        except OSError: pass
        os._exit(0)
    os.wait()
"""
PROGRAMS = {
    "find": ["find", str(TESTDATA), "-type", "f"],
    "dd": ["dd", "if=/dev/zero", "of=/dev/null", "bs=512", "count=5000"],
    "children": [sys.executable, "-I", "-S", "-c", FORKS],
}
# How often these are made depends on where memory happens to lie, or is a matter of strace: it is told of no execve that began before it.
LEFT_OUT = {"brk", "mmap", "munmap", "madvise", "mremap", "execve", "rt_sigreturn", "exit", "exit_group", "futex"}


def by_strace(command: list[str], folder: Path) -> dict[str, tuple[int, int]]:
    table = folder / "strace.txt"
    columns = "calls,errors,name"
    subprocess.run(["strace", "-f", "-c", "-U", columns, "-o", table, *command], check=True, capture_output=True)
    found = {}
    for line in table.read_text().splitlines():
        words = line.split()
        if words and words[0].isdigit() and words[-1] != "total":
            found[words[-1]] = (int(words[0]), int(words[1]) if len(words) == 3 else 0)
    return found


@on_each_tier
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_are_those_that_strace_counts(name: str, tier: str, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        no_oracle("no strace")
    expected = by_strace(PROGRAMS[name], tmp_path)
    path = tmp_path / "t.leadline"
    command = [sys.executable, "-m", "leadline", "trace", "--kernel-tier", tier, "-o", path, "--", *PROGRAMS[name]]
    subprocess.run(command, check=True, capture_output=True)  # the same kinds of stdin, stdout and stderr as under strace
    with closing(open_capture(path)) as capture:
        # The shell that held the command is left out: what counts begins with the program.
        rows = capture.rows(
            """
            with begin as (select max(ts) as ts from thread where ts < (select min(ts) from thread) + 5e9 and thread_id = 1)
            select call, count(*) as n, count(errno) as failed from call, begin where call.ts_from >= begin.ts and not partial group by call
            """
        )
        assert capture.manifest.probe("kernel").loss["records_lost"] == 0
    counted = {row["call"]: (row["n"], row["failed"]) for row in rows}
    assert {k: v for k, v in counted.items() if k not in LEFT_OUT} == {k: v for k, v in expected.items() if k not in LEFT_OUT}
    assert sum(n for n, _ in expected.values()) > 100
