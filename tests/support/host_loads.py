"""Programs that load this host in one way each: bounded, and killed at the end of a block with all they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import wait_until


@contextmanager
def load(code: str, *arguments: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that names itself, says that it runs, and is killed afterwards with all it started."""
    head = f"import ctypes, sys; ctypes.CDLL(None).prctl(15, {name.encode()!r}); print('up', flush=True)\n"
    process = subprocess.Popen([sys.executable, "-c", head + code, *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def direct_reads(folder: Path, name: str) -> Iterator[str]:
    """A program that reads a file past the page cache, all the time. Gives the number of the block device."""
    file = folder / "data"
    with open(file, "wb") as out:
        out.write(os.urandom(64 << 20))
        out.flush()
        os.fsync(out.fileno())
    device = file.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    if not Path(f"/sys/dev/block/{number}").exists():
        pytest.skip("the kernel has the temporary folder on no block device")
    code = (
        "import mmap, os\nfd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT); buffer = mmap.mmap(-1, 1 << 20)\n"
        "while True:\n    for at in range(64): os.preadv(fd, [buffer], at << 20)"
    )
    with load(code, str(file), name=name):
        yield number


@contextmanager
def memory_hog(folder: Path, name: str) -> Iterator[Path]:
    """A program that reads a file of 96 MB again and again, in a control group that may have 48 MB. Gives the group."""
    file = folder / "data"
    with open(file, "wb") as out:
        out.write(os.urandom(1 << 20) * 96)
        out.flush()
        os.fsync(out.fileno())
        os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # else its pages are charged to this process, and not to the hog
    code = "import os\nfd = os.open(sys.argv[1], os.O_RDONLY)\nwhile True:\n    for at in range(96): os.pread(fd, 1 << 20, at << 20)"
    head = "open(sys.argv[2] + '/cgroup.procs', 'w').write('0')\n"
    with memory_group(48 << 20) as group, load(head + code, str(file), str(group), name=name):
        yield group


def new_group(limit: int) -> Path | None:
    """A control group with a limit of memory, of either version; None where none can be made."""
    for base, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(base) / f"leadline-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / file).write_text(str(limit))
            return group
        except OSError:
            if group.exists():
                group.rmdir()
    return None


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    group = new_group(limit)
    if group is None:
        pytest.skip("no control group with a limit of memory can be made here")
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text().strip(), what="the killed process to leave its group")
        group.rmdir()
