"""Child processes of the bench and the CPU they use: started so that they never outlive it, paused, resumed, ended by pid."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.interrupt import deferred_interrupts

PR_SET_PDEATHSIG = 1
CPUCLOCK_SCHED = 2  # kernel/time/posix-cpu-timers.c: the clock of the scheduler's own accounting, ns
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """A child process in a session of its own (Ctrl-C reaches us first), killed by the kernel when we die.

    output: file for its stdout and stderr; without one, both can be read through `stdout` and `stderr`.
    """

    def __init__(self, name: str, command: Sequence[str], output: Path | None = None, cwd: Path | None = None) -> None:
        self.name, self._output = name, output
        parent = os.getpid()

        def after_fork() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # we died in between
                os._exit(1)

        with ExitStack() as files:
            target = subprocess.PIPE if output is None else files.enter_context(open(output, "wb"))
            try:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=target,
                    cwd=cwd,
                    start_new_session=True,
                    preexec_fn=after_fork,  # subprocess has no option for it; the bench has one thread
                )
            except OSError as e:
                raise LeadlineError("not_found", f"{name} cannot be started", detail=str(e), where=command[0]) from e

    @property
    def pid(self) -> int:
        return self.process.pid

    def check(self) -> None:
        """Raises LeadlineError('gone') when it has ended."""
        code = self.process.poll()
        if code is not None:
            raise LeadlineError("gone", f"{self.name} ended by itself, with code {code}", detail=self.last_words())

    def last_words(self) -> str:
        if self._output is not None:
            text = self._output.read_text(encoding="utf-8", errors="replace")
        else:
            text = self.process.stderr.read().decode(errors="replace") if self.process.stderr is not None else ""
        return " | ".join(line.strip() for line in text.splitlines()[-4:] if line.strip())

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self, number: signal.Signals = signal.SIGTERM, patience_s: float = 30.0) -> int:
        """Asks it to end, kills it after the patience, and gives its exit code. May be called twice."""
        with deferred_interrupts():
            if self.process.poll() is None:
                self.process.send_signal(number)
                self.process.send_signal(signal.SIGCONT)  # a stopped process does not act on a signal
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
            code = self.process.wait()
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()
        return code


def cpu_ns(pid: int) -> int:
    """CPU of one process since it started, all its threads, also those that have ended."""
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)


def tree_cpu_ns(pid: int) -> int:
    """CPU of a process and of every process below it; of those that have ended, to the resolution of a clock tick."""
    return sum(cpu_ns(member) + _ended_children_ns(member) for member in [pid, *descendants(pid)])


def thread_cpu_ns(pid: int) -> dict[str, int]:
    """CPU of the threads that live, ns by thread name; threads of one name are added up."""
    found: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        found[name] = found.get(name, 0) + int((task / "schedstat").read_text().split()[0])
    return found


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


def _ended_children_ns(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) * TICK_NS  # cutime, cstime
