"""The processes of a run: all that its command has started, also what has left its session or lost its parent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from leadline.host import proc

PARENT = "LEADLINE_RUN"
PR_SET_CHILD_SUBREAPER = 36
CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def adopt_orphans() -> None:
    """Descendants whose parents end become our children, not those of init. Where that cannot be, they are found by their environment."""
    with suppress(OSError, ImportError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def members(uid: str, supervisor: int) -> set[int]:
    """The processes of a run that live."""
    found = proc.descendants([supervisor]) | {pid for pid in proc.all_pids() if _belongs(pid, uid)}
    return {pid for pid in found - {supervisor, os.getpid()} if proc.lives(pid, None)}


def _belongs(pid: int, uid: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{PARENT}={uid}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def _cgroup_of(uid: str) -> Path | None:
    """Below our own; None where there are none."""
    own = next((line[3:] for line in (proc.read_text("/proc/self/cgroup") or "").splitlines() if line.startswith("0::")), None)
    directories = [Path(root + own) for root in CGROUPS] if own is not None else []
    return next((directory / f"leadline-{uid}" for directory in directories if (directory / "cgroup.procs").exists()), None)


def forget_cgroup(uid: str) -> None:
    """Removes that of a run whose supervisor could not, if nothing runs in it."""
    if (directory := _cgroup_of(uid)) is not None:
        with suppress(OSError):
            directory.rmdir()


class Cgroup:
    """A control group of the run's own, where this user may make one: all in it can be ended at once, whatever they fork."""

    def __init__(self, uid: str) -> None:
        self.path: Path | None = None
        directory = _cgroup_of(uid)
        if directory is not None:
            with suppress(OSError):
                directory.mkdir()
                self.path = directory

    def enter(self) -> None:
        """This process, and all that it starts from now on."""
        if self.path is not None:
            with suppress(OSError):
                (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def kill(self) -> None:
        if self.path is not None:
            with suppress(OSError):
                (self.path / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        if self.path is not None:
            with suppress(OSError):
                self.path.rmdir()
