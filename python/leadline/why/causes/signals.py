"""Processes that a signal ended."""

from __future__ import annotations

import signal
from typing import Any

from leadline.units import sized
from leadline.why.cause import Cause
from leadline.why.seen import Process, Seen, signal_name
from leadline.why.words import last_line

# Ends that are part of normal life: somebody wanted them, or a reader had seen enough.
WANTED = {signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2}
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
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
    signal.SIGPIPE: "wrote to a pipe whose reader had ended",
}
FIXES: dict[int, str] = {
    signal.SIGKILL: "dmesg | grep -i 'out of memory' shows whether the kernel did it; else some other process",
    signal.SIGSYS: "allow the call in the sandbox: SystemCallFilter= in systemd, a seccomp profile in a container",
    signal.SIGXFSZ: "ulimit -f unlimited before the command",
    signal.SIGILL: "get a build for this CPU",
    signal.SIGBUS: "df -h, for a full /dev/shm or /tmp too",
    signal.SIGPIPE: "let the reader read to the end (sed -n 1p instead of head -1), or do not set pipefail for this pipeline",
}


def died(seen: Seen, process: Process) -> Cause | None:
    number = process.signal
    if (
        number is None
        or (process.killed_by_own and process is not seen.main and not _passed_on(seen, process))
        or (number in WANTED and process is not seen.main and not _passed_on(seen, process))
    ):
        return None
    name, text = signal_name(number), TEXTS.get(signal.Signals(number) if number < signal.SIGRTMIN else signal.SIGTERM, "ended")
    kind, fix = "signal", FIXES.get(number, "coredumpctl debug, or run it under gdb: gdb --args PROGRAM ...")
    evidence = [f"pid {process.pid} ended by {name}" + (", core dumped" if process.core else "")]
    if number == signal.SIGSYS and process.forbidden:
        text = f"made the call {process.forbidden}, which a seccomp filter forbids"
    elif process.stack is not None and number == signal.SIGSEGV:
        kind, text = (
            "stack_limit",
            f"used up its stack of {sized(process.stack['size_bytes'])}: by calls without end, or by large variables",
        )
        fix = "look for a function that calls itself without end; else ulimit -s N before the command (threads: their own setting)"
    elif number in (signal.SIGKILL, signal.SIGXCPU) and _used_its_time(process):
        kind, text = (
            "cpu_limit",
            f"used more CPU time than its limit of {process.cpu_limit_s} s allows" if process.cpu_limit_s else TEXTS[signal.SIGXCPU],
        )
        fix = "ulimit -t unlimited before the command; LimitCPU= in systemd"
        evidence.append(f"CPU time used: {process.cpu_s:.1f} s")
    elif number == signal.SIGKILL and process.out_of_memory is not None:
        kind, (text, fix) = "out_of_memory", _out_of_memory(process.out_of_memory)
    if process.sender is not None and number in FAULTS:
        text, fix = "was sent a signal by a process", "find out which process sent it, and why"
    statement = f"{process.program or process.name} {text}: it was ended by {name}."
    if process.said.strip():
        evidence.append(f"it printed last: {last_line(process)}")
    if process.sender not in (None, 0, process.pid):
        evidence.append(f"sent by pid {process.sender}")
    parent = seen.processes[process.parent] if process.parent is not None else None
    if parent is not None:
        evidence.append(f"its parent {parent.name} (pid {parent.pid}): {parent.outcome}")
    hard = number not in WANTED
    return Cause(kind, 76 if hard else 45, statement, evidence, fix, process, hard=hard)


def timed_out(seen: Seen, process: Process) -> Cause | None:
    """timeout(1) ended what it ran."""
    if process.name != "timeout" or process.exit_code not in (124, 128 + signal.SIGKILL):
        return None
    ended = [child for child in seen.processes if child.parent == process.at and child.signal is not None]
    if not ended:
        return None
    child = ended[-1]
    statement = f"{child.name} did not end in the time that timeout gave it: timeout ended it by {signal_name(child.signal or 0)}."
    evidence = [f"timeout (pid {process.pid}): {process.outcome}", f"{child.name} (pid {child.pid}): {child.outcome}"]
    return Cause("timeout", 70, statement, evidence, "give it more time, or find out what it waited for (leadline threads)", process)


def _passed_on(seen: Seen, process: Process) -> bool:
    """Its parent ended with the exit code that shells give for this signal: the signal decided (pipefail)."""
    parent = seen.processes[process.parent] if process.parent is not None else None
    return parent is not None and process.signal is not None and parent.exit_code == 128 + process.signal


def _used_its_time(process: Process) -> bool:
    """The kernel sends SIGXCPU at the soft limit and SIGKILL at the hard one. It counts in ticks, so that what was used looks like less."""
    if process.signal == signal.SIGXCPU:
        return process.sender is None
    return (
        process.sender is None
        and process.out_of_memory is None
        and process.cpu_limit_s is not None
        and process.cpu_s > 0.8 * process.cpu_limit_s - 0.1
    )


def _out_of_memory(found: dict[str, Any]) -> tuple[str, str]:
    if found["limit"]:
        group, size = found["limit"]
        text = f"was killed by the kernel, as the control group {group} had used all of its {sized(size)} of memory"
        return text, "raise its memory.max (memory.limit_in_bytes; MemoryMax= in systemd; --memory of a container), or let it use less"
    where = f"the control group {found['group']}" if found["group"] else "the host"
    return (
        f"was killed, and the kernel has just killed a process because {where} had no memory left",
        "dmesg | grep -i 'out of memory'; free -m",
    )
