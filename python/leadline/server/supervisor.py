"""The process that watches one run of a template: it begins it, notes how it ends, and ends it with all its processes when told to.

Its output is written by the run itself to the log, so that nothing is lost when this process is killed; the run is then `lost`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from leadline.book.place import find_place
from leadline.book.recorder import PARENT, Recorder
from leadline.server.starting import tidy

GENTLE_S = 10.0
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    about: dict[str, Any] = json.load(sys.stdin)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wanted: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: wanted.append(number))
    place = find_place()
    assert place is not None
    recorder = Recorder(place, about["uid"])
    inputs = {name: value for name, value in about["inputs"].items() if value is not None}
    recorder.begin("template", about["name"], about["argv"], labels=about["labels"], inputs=inputs, cwd=about["cwd"])
    log = os.open(place.log_of(recorder.uid), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    environment = os.environ | {PARENT: recorder.uid, "PYTHONUNBUFFERED": "1"}
    try:
        child = subprocess.Popen(
            about["argv"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=about["cwd"], start_new_session=True
        )
    except OSError as e:
        os.write(log, f"leadline: cannot start {about['argv'][0]}: {e.strerror}\n".encode())
        tidy(place, recorder.uid)
        recorder.summary(f"not started: {e.strerror}")
        recorder.end(127)
        return
    os.close(log)
    status, usage = _watch(child.pid, wanted)
    code = os.waitstatus_to_exitcode(status)
    if wanted:
        recorder.summary("cancelled")
    tidy(place, recorder.uid)
    recorder.end(None if code < 0 else code, signal=-code if code < 0 else None, usage=usage, cancelled=bool(wanted))


def _watch(pid: int, wanted: list[int]) -> tuple[int, Any]:
    """Until the run's own process has ended; when it was cancelled, until none of its processes is left."""
    told_at = 0.0
    ended: tuple[int, Any] | None = None
    while True:
        found, status, usage = os.wait4(-1, os.WNOHANG) if ended is None or _has_children() else (0, 0, None)
        if found == pid:
            ended = (status, usage)
        if ended is not None and not wanted:
            return ended
        if wanted and told_at == 0.0:
            told_at = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if told_at and (ended is not None or time.monotonic() - told_at > GENTLE_S):
            left = descendants()
            for one in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one, signal.SIGKILL)
            if ended is not None and not left:
                return ended
        if found == 0:
            time.sleep(0.02)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants() -> list[int]:
    """Every process that this one or its descendants started, whatever session they are in: orphans become children of this one."""
    parents: dict[int, int] = {}
    for name in (path.name for path in Path("/proc").iterdir()):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    parents[int(name)] = int(fields[1])
    out, level = [], [os.getpid()]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        out += level
    return out


if __name__ == "__main__":
    main()
