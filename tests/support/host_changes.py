"""Changes of this host for the time of a block: a kernel setting, a control group, a disk. Skips the test where they are refused."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import wait_until
from locked import locked
from servers import cache_dir


@contextmanager
def kernel_setting(path: str, value: str) -> Iterator[None]:
    """Another value for the time of a block, for one test run at a time.

    A child writes the old value back at the end, also when this process is killed; it keeps the lock until then.
    """
    if not Path(path).exists():
        pytest.skip(f"this kernel has no {path}")
    with locked(cache_dir(), Path(path).name) as lock:
        text = Path(path).read_text().strip()
        before = text.split("[")[1].split("]")[0] if "[" in text else text  # always [madvise] never
        script = 'read -r _; printf %s "$2" > "$1"'
        command = ["/bin/sh", "-c", script, "leadline-test", path, before]
        back = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=[lock])
        try:
            try:
                Path(path).write_text(value)
            except OSError as e:
                pytest.skip(f"{path} may not be written here: {e.strerror}")
            yield
        finally:
            back.communicate()
        assert back.returncode == 0


@contextmanager
def control_group(controller: str, limit: str, version_1: str, version_2: str) -> Iterator[Path]:
    """A control group of this controller, with this limit in one of the two files; its processes must end when the block does."""
    first = Path("/sys/fs/cgroup") / controller
    group = (first if first.is_dir() else first.parent) / f"leadline-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as e:
        pytest.skip(f"no control group can be made here: {e.strerror}")
    try:
        file = group / (version_1 if first.is_dir() else version_2)
        try:
            file.write_text(limit)
        except OSError as e:
            pytest.skip(f"no limit can be written to {file}: {e.strerror}")
        yield group
    finally:
        wait_until(lambda: (group / "cgroup.procs").read_text() == "", what="the end of the group's processes")
        group.rmdir()


@contextmanager
def loop_device(backing: Path) -> Iterator[str]:
    """A block device over a file, through the page cache."""
    made = subprocess.run(["losetup", "--find", "--show", "--direct-io=off", backing], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"the kernel gives no loop device: {made.stderr}")
    device = made.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


BLKIO = Path("/sys/fs/cgroup/blkio")


@contextmanager
def loop_disk() -> Iterator[tuple[Path, str]]:
    """A small ext4 of its own, and the number of its block device. In a folder that the server's user may enter."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    with tempfile.TemporaryDirectory(prefix="leadline-disk-") as folder:
        Path(folder).chmod(0o755)
        image, at = Path(folder, "disk"), Path(folder, "mnt")
        at.mkdir()
        subprocess.run(["mkfs.ext4", "-q", image, "160M"], check=True)
        subprocess.run(["mount", "-o", "loop", image, at], check=True)
        try:
            at.chmod(0o755)
            number = at.stat().st_dev
            yield at, f"{os.major(number)}:{os.minor(number)}"
        finally:
            subprocess.run(["umount", at], check=True)


def forget_pages(folder: Path) -> None:
    """The files of this folder are on their disk, and not in the page cache any more."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def writes_limited(device: str, per_s: int, direction: str = "write") -> Iterator[Path]:
    """A control group whose processes may write so often, or read. All of them end before it."""
    limit = f"blkio.throttle.{direction}_iops_device"
    if not (BLKIO / limit).exists():
        pytest.skip("control groups of version 1 do not limit I/O here")
    group = BLKIO / f"leadline-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(f"{device} {per_s}")
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), what="the end of its processes")
        group.rmdir()
