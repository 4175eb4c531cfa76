"""Takes a capture of processes alone: their threads, traced in the kernel."""

from __future__ import annotations

import math
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from leadline.capture.directory import new_capture
from leadline.capture.manifest import Target
from leadline.errors import LeadlineError
from leadline.host.proc import all_pids, lives, read_text, start_ticks, uid_of
from leadline.probes.host import HostProbe
from leadline.probes.kernel import attach
from leadline.probes.overhead import OverheadProbe
from leadline.probes.recording import Recording, cpu_s
from leadline.progress import Progress, Silent

# Stops before it becomes the command, so that the trace is there before the command begins.
_HELD = 'kill -STOP $$; exec "$@"'


def trace(
    *,
    pids: Collection[int] = (),
    user: str | None = None,
    command: Sequence[str] = (),
    for_s: float | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    tier: str = "auto",
    detail: str = "events",
    budget: float = 0.3,
    retransmits: bool = False,
    ring_bytes: int | None = None,
) -> tuple[Path, int | None]:
    """Traces processes, or those of a user, or a command from its start to its end; the directory, and the command's exit status.

    for_s: seconds; None for until the command ends, or Ctrl-C. A trace of processes ends when they are all gone. The status is negative
    when a signal ended it, None when it still runs.
    tier: one of kernel.TIERS. retransmits: with the TCP segments that the whole host retransmits. Raises LeadlineError.
    """
    progress, cpu_at_call = progress or Silent(), cpu_s()
    if sum(map(bool, (pids, user, command))) != 1:
        raise LeadlineError("usage", "no process was chosen", hint="name one of: -p PID, -u USER, -- COMMAND")
    chosen = set(pids) or (processes_of(user) if user else set())
    gone = sorted(pid for pid in chosen if not Path(f"/proc/{pid}").exists())
    if gone:
        raise LeadlineError("not_found", f"no process {gone[0]}", hint="ps -e lists processes")
    started = {pid: start_ticks(pid) for pid in chosen}
    # Arguments of a command may hold passwords.
    program = Path(command[0]).name if command else None
    options: dict[str, Any] = {"for_s": for_s, "pids": sorted(pids), "user": user, "program": program, "kernel_tier": tier}
    child = None
    with new_capture(out, overwrite=overwrite) as directory:
        try:
            child = _Held(command) if command else None
            first = [child.process.pid] if child else chosen
            attached = attach(
                directory, first, tier, detail=detail, budget=budget, retransmits=retransmits, required=True, ring_bytes=ring_bytes
            )
            probe = attached.probe or HostProbe(directory, required=True)
            target = _target(chosen, user, program, child)
            recording = Recording(directory, target, [probe, OverheadProbe(directory)], progress, options, attached.notes, cpu_at_call)
            if attached.state is not None:
                recording.manifest.probes["kernel"] = attached.state
            if child is None:
                # Of a user only the processes of the beginning are known: others may come.
                recording.run(for_s or math.inf, until=None if user else lambda: not any(lives(*one) for one in started.items()))
                return directory, None
            recording.run(for_s or math.inf, until=lambda: child.status() is not None, begun=child.go)
        finally:
            if child is not None:
                child.drop()
    return directory, child.status()


def processes_of(user: str) -> set[int]:
    """Processes that run as a user (name or number). Raises LeadlineError."""
    try:
        uid = int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise LeadlineError("not_found", f"no user {user}", hint="getent passwd lists users") from None
    found = {pid for pid in all_pids() if uid_of(pid) == uid} - {os.getpid()}
    if not found:
        raise LeadlineError("not_found", f"user {user} runs no process")
    return found


def _target(pids: Collection[int], user: str | None, program: str | None, child: _Held | None) -> Target:
    if child is not None:
        return Target("process", program or "", child.process.pid, os.cpu_count())
    if user is not None:
        return Target("process", f"processes of {user}", None, os.cpu_count())
    names = [f"{(read_text(f'/proc/{pid}/comm') or '').strip()} {pid}" for pid in sorted(pids)]
    return Target("process", ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""), min(pids), os.cpu_count())


class _Held:
    """A command that has not yet begun."""

    def __init__(self, command: Sequence[str]) -> None:
        if shutil.which(command[0]) is None:
            raise LeadlineError("not_found", f"no command {command[0]}", hint="give its path")
        self.gone = False
        self.process = subprocess.Popen(["/bin/sh", "-c", _HELD, "sh", *command])
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go(self) -> None:
        self.gone = True
        self.process.send_signal(signal.SIGCONT)

    def drop(self) -> None:
        """Ends the command if it never began."""
        if not self.gone:
            self.process.kill()
            self.process.wait()

    def status(self) -> int | None:
        return self.process.poll()
