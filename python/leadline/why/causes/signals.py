"""Processes that a signal ended."""

from __future__ import annotations

import signal

from leadline.why.cause import Cause
from leadline.why.seen import Process, Seen, signal_name

# Ends that are part of normal life: somebody wanted them, or a reader had seen enough.
WANTED = {signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2}
TEXTS = {
    signal.SIGSEGV: "used memory that it does not have",
    signal.SIGBUS: "used memory behind which there is no file any more, or no space",
    signal.SIGILL: "has an instruction that this CPU does not know",
    signal.SIGFPE: "divided by zero",
    signal.SIGABRT: "gave up by itself (abort)",
    signal.SIGSYS: "made a call that a seccomp filter forbids",
    signal.SIGXFSZ: "wrote more than the limit on file size allows (ulimit -f)",
    signal.SIGXCPU: "used more CPU time than its limit allows (ulimit -t)",
    signal.SIGKILL: "was killed",
}


def died(seen: Seen, process: Process) -> Cause | None:
    number = process.signal
    if number is None or process.killed_by_own or (number in WANTED and process is not seen.main):
        return None
    name, text = signal_name(number), TEXTS.get(signal.Signals(number) if number < signal.SIGRTMIN else signal.SIGTERM, "ended")
    if number == signal.SIGSYS and process.forbidden:
        text = f"made the call {process.forbidden}, which a seccomp filter forbids"
    statement = f"{process.program or process.name} {text}: it was ended by {name}."
    evidence = [f"pid {process.pid} ended by {name}" + (", core dumped" if process.core else "")]
    if process.sender:
        evidence.append(f"sent by pid {process.sender}")
    parent = seen.processes[process.parent] if process.parent is not None else None
    if parent is not None:
        evidence.append(f"its parent {parent.name} (pid {parent.pid}): {parent.outcome}")
    fixes = {
        signal.SIGKILL: "dmesg | grep -i 'out of memory' shows whether the kernel did it; else some other process",
        signal.SIGSYS: "allow the call in the sandbox: SystemCallFilter= in systemd, a seccomp profile in a container",
        signal.SIGXFSZ: "ulimit -f unlimited before the command",
        signal.SIGXCPU: "ulimit -t unlimited before the command",
        signal.SIGILL: "get a build for this CPU",
        signal.SIGBUS: "df -h, for a full /dev/shm or /tmp too",
    }
    fix = next((fix for wanted, fix in fixes.items() if wanted == number), "coredumpctl debug, or run it under gdb: gdb --args PROGRAM ...")
    hard = number not in WANTED
    return Cause("signal", 76 if hard else 45, statement, evidence, fix, process, hard=hard)
