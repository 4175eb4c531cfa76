"""Starts commands that are recorded: in the foreground, as they would run without, or detached; and cancels them."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from leadline.book import tree
from leadline.book.place import VARIABLE, Place, find_place
from leadline.book.supervisor import CANCEL, PASSED_ON, Output, Pipes, Request, Supervisor, hold, outputs, read_output
from leadline.errors import LeadlineError
from leadline.host import proc

START_S = 30
ENDS_WITHIN_S = 0.5
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Used:
    """max_rss_bytes: None where the kernel does not tell."""

    seconds: float
    cpu_s: float
    max_rss_bytes: int | None


@dataclass(frozen=True)
class Outcome:
    """code: 128 + N if signal N ended it. used: None if its supervisor was killed. interrupted: somebody asked us to end meanwhile.
    said: why it could not be started."""

    code: int
    used: Used | None
    interrupted: bool = False
    said: str = ""


def run_request(request: Request) -> int:
    """The exit code of the command; 128 + N if signal N ended it. Raises LeadlineError if it cannot be started."""
    place = find_place()
    if place is None:
        os.environ.update(request.env)
        _become(request.argv)
    with _begun(request, place) as waiting:
        return waiting.until_the_end()


def run_measured(request: Request) -> Outcome:
    """As run_request, with what it used; for one after the other. Only with a book. Raises LeadlineError."""
    place = find_place()
    if place is None:
        raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="what is measured is recorded")
    with _begun(request, place) as waiting:
        try:
            code = waiting.until_the_end()
            return Outcome(code, waiting.used, waiting.interrupted)
        finally:
            waiting.clear_away()


@contextmanager
def _begun(request: Request, place: Place) -> Iterator[_Waiting]:
    """Its supervisor has begun, and signals that are sent to us wait to be passed on."""
    pipes = outputs(request)
    said, saying = os.pipe()
    held = hold(request.remove)
    tree.adopt_orphans()  # should the supervisor be killed, the command is ours
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    waiting = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        _supervise(place, request, pipes, saying, waiting)
    for fd in (pipes[0][1], pipes[1][1], saying, *held):
        os.close(fd)
    os.set_blocking(said, False)
    try:
        yield _Waiting(supervisor, said, (pipes[0][0], pipes[1][0]), request.argv[0], f"{place.directory}/logs/{request.uid}.log")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become(command: Sequence[str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execvp(command[0], list(command))
    except OSError as e:
        raise _cannot_start(e.errno or 0, command[0]) from e


def _supervise(place: Place, request: Request, pipes: Pipes, saying: int, waiting: int) -> NoReturn:
    code = 1

    def tell(words: str) -> None:
        with suppress(OSError):
            os.write(saying, f"{words}\n".encode())
            os.kill(waiting, signal.SIGCHLD)

    try:
        Supervisor(place, request, tell, detached=False).run(pipes)
        code = 0
    finally:
        os._exit(code)


class _Waiting:
    """Who has asked for a run in the foreground, until it ends. Signals that are sent to us go to the command."""

    def __init__(self, supervisor: int, said: int, pipes: tuple[int, int], program: str, log: str) -> None:
        self.supervisor, self.said, self.pipes, self.program = supervisor, said, list(pipes), program
        self.log = log
        self.lost = 0
        self.to_pass_on: list[signal.Signals] = []
        self.command: int | None = None
        self.used: Used | None = None
        self.interrupted = False

    def until_the_end(self) -> int:
        heard = b""
        while True:
            signalled = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
            if signalled.si_signo != signal.SIGCHLD:
                # What a terminal sends (si_pid is 0 then), it sends to the command too; when it is closed, only to its first process.
                to_us_alone = signalled.si_pid or (signalled.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid())
                self.interrupted = self.interrupted or signalled.si_signo in INTERRUPTING
                if to_us_alone:
                    self.to_pass_on.append(signal.Signals(signalled.si_signo))
                self._pass_on()
                continue
            gone = self._supervisor_is_gone()
            with suppress(BlockingIOError):
                while piece := os.read(self.said, 512):
                    heard += piece
            *lines, heard = heard.split(b"\n")
            for line in lines:
                word, _, value = line.decode().partition(" ")
                if word == "start":
                    self.command = int(value)
                    self._pass_on()
                elif word == "closed":
                    self._close(int(value))
                elif word == "failed":
                    raise _cannot_start(int(value), self.program)
                elif word == "used":
                    took, cpu, rss = value.split()
                    self.used = Used(float(took), float(cpu), int(float(rss)) if float(rss) >= 0 else None)
                elif word == "lost":
                    self.lost = int(value)
                elif word == "end" and self.lost:
                    why = "it is closed" if self.lost == errno.EBADF else os.strerror(self.lost)
                    raise LeadlineError("storage", f"cannot write the output: {why}", where="stdout")
                elif word == "end":
                    return int(value)
            if gone:
                return self._go_on_alone()

    def clear_away(self) -> None:
        """For the next command: nothing of ours stays open. The supervisor gets a moment to end; what a command left behind may keep it."""
        for fd in (self.said, *self.pipes):
            with suppress(OSError):
                os.close(fd)
        with suppress(OSError):
            ended = os.pidfd_open(self.supervisor)
            select.select([ended], [], [], ENDS_WITHIN_S)
            os.close(ended)
        self._supervisor_is_gone()

    def _supervisor_is_gone(self) -> bool:
        with suppress(ChildProcessError):
            return os.waitpid(self.supervisor, os.WNOHANG)[0] != 0
        return True

    def _pass_on(self) -> None:
        """What came before the command is known waits until it is."""
        while self.command is not None and self.to_pass_on:
            tree.send([self.command], self.to_pass_on.pop(0))

    def _close(self, pipe: int) -> None:
        if pipe in self.pipes:
            os.close(pipe)
            self.pipes.remove(pipe)

    def _go_on_alone(self) -> int:
        """The supervisor was killed: the command must not notice. Its output still goes into the log, its end is not recorded."""
        own = [pid for pid in proc.all_pids() if proc.parent_of(pid) == os.getpid()]
        self.command = self.command or next(iter(own), None)
        if self.command is None:
            raise LeadlineError("gone", "the recorder was killed before the command began")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*PASSED_ON})
        import selectors

        try:
            log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            log = -1
        with selectors.DefaultSelector() as selector:
            for number, pipe in zip((1, 2), self.pipes):
                selector.register(pipe, selectors.EVENT_READ, Output(pipe, number, []))
            while selector.get_map():
                for key, _ in selector.select():
                    try:
                        piece = read_output(key.data.pipe)
                    except BlockingIOError:
                        continue
                    with suppress(OSError):
                        os.write(log, piece)
                    if not piece or not key.data.pass_on(piece):
                        selector.unregister(key.data.pipe)
                        os.close(key.data.pipe)
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self.command, 0)[1])
        except ChildProcessError:
            raise LeadlineError("gone", "the recorder was killed, and how the command ended is not known") from None
        return 128 - code if code < 0 else code


def start(request: Request, place: Place | None = None) -> str:
    """Starts a run that outlives us and our terminal; its uid. Raises LeadlineError if it cannot be started."""
    found = place or find_place()
    if found is None:
        raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="a detached run is only in the book")
    environment = os.environ | {VARIABLE: found.variable}
    if request.parent is None:
        environment.pop(tree.PARENT, None)
    command = [sys.executable, "-m", "leadline.book.supervisor"]
    held = hold(request.remove)
    try:
        said = subprocess.run(
            command, input=json.dumps(request.as_dict()), env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            timeout=START_S, check=False, pass_fds=held,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as e:
        raise LeadlineError("fault", "the supervisor of the run does not start", detail=str(e)) from e
    finally:
        for fd in held:
            os.close(fd)
    word, _, value = said.strip().partition(" ")
    if word == "failed":
        raise _cannot_start(int(value), request.argv[0])
    if word != "start":
        raise LeadlineError("fault", "the supervisor of the run ended before the command began")
    return request.uid


def cancel(run: Mapping[str, Any]) -> bool:
    """Asks the supervisor of a run (of the book) to end it with all of its processes; false if it is not running here."""
    if run["status"] != "running" or run["host"] != os.uname().nodename:
        return False
    try:
        fd = os.pidfd_open(run["pid"])
    except OSError:
        return False
    try:
        if not proc.lives(run["pid"], run["pid_start"]):
            return False
        # Commands of leadline itself are ended as by Ctrl-C.
        signal.pidfd_send_signal(fd, signal.SIGINT if run["kind"] == "leadline" else CANCEL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _cannot_start(number: int, program: str) -> LeadlineError:
    kind = "not_found" if number == 2 else "rights"
    return LeadlineError(kind, f"the command cannot be started: {os.strerror(number)}", where=program)
