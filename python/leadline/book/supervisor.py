"""The process that runs a command of `leadline run` or of a template, and records it: apart from who asked for it.

It keeps the log, takes in what the command leaves behind, and ends the whole tree when the run is cancelled. In the foreground it is
a child of `leadline run`, in the same terminal and with the same signals; a detached one has a session of its own, and outlives
terminal and server.

    python -m leadline.book.supervisor < REQUEST        REQUEST is JSON (Request), so that nothing secret is in a command line
"""

from __future__ import annotations

import errno
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

from leadline.book import tree
from leadline.book.log import LogWriter
from leadline.book.place import Place, find_place
from leadline.book.recorder import PARENT, Recorder
from leadline.book.spool import new_uid

PIECE = 64 << 10
AT_THE_END = 32  # pieces of each output that are looked for when the command has ended; what it left behind may go on printing
CANCEL = signal.SIGRTMIN + 1
GRACE_S = 10.0  # from asking the command to end until all of its processes are asked
LAST_GRACE_S = 2.0  # from then until they are killed
GIVE_UP_S = 5.0  # processes of other users may outlive even that
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT)


@dataclass
class Request:
    """What to run. env: added to the environment. secrets: what the log and the record must not have, in whatever form. remove: files to
    remove when it has ended. Both may be secret themselves: a request is never stored. interrupted_code: the exit code by which the
    program says that Ctrl-C ended it, where that is not 130. shown: the command as the record has it, where argv begins with a helper.
    pty: its outputs are terminals, not pipes. quiet: it reads nothing, and what it prints goes into the log alone. makes: kind and path of
    what it makes, for commands that do not say so themselves."""

    argv: list[str]
    uid: str = field(default_factory=new_uid)
    kind: str = "command"
    name: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    parent: str | None = None
    secrets: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    interrupted_code: int | None = None
    shown: list[str] = field(default_factory=list)
    pty: bool = False
    quiet: bool = False
    makes: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


Pipes = tuple[tuple[int, int], tuple[int, int]]


def outputs(request: Request) -> Pipes:
    """For stdout and stderr of its command, each the end to read and the end to write. As terminals they change no byte."""
    return (_terminal(), _terminal()) if request.pty else (os.pipe(), os.pipe())


def _terminal() -> tuple[int, int]:
    import termios

    master, slave = os.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST  # no CR before LF: the terminal that shows it adds that
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    with suppress(OSError):
        size = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
    return master, slave


def read_output(pipe: int) -> bytes:
    """What is there, and nothing when nobody can write to it any more. Raises BlockingIOError when there is nothing yet."""
    try:
        return os.read(pipe, PIECE)
    except BlockingIOError:
        raise
    except OSError as e:
        if e.errno != errno.EIO:  # a terminal whose other side is closed
            raise
        return b""


def hold(files: Iterable[str]) -> list[int]:
    """Descriptors that keep the directories of these files from being swept (see `is_held`) as long as any process has one of them."""
    out = []
    for directory in sorted({os.path.dirname(path) for path in files}):
        with suppress(OSError):
            out.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            fcntl.flock(out[-1], fcntl.LOCK_SH)
    return out


def is_held(directory: str | os.PathLike[str]) -> bool:
    """Whether a run uses it. Unlike what /proc says of a process, a lock is never gone for a moment while a program is started."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _forms(secrets: list[str]) -> list[str]:
    if not secrets:
        return []
    from leadline.book.ansible.plugin.leadline_book import forms_of

    return sorted({form for secret in secrets for form in forms_of(secret)})


class Masked:
    """Hides forms of secrets in a stream: what could be the beginning of one waits for what follows."""

    def __init__(self, forms: list[str]) -> None:
        self._forms = sorted({form.encode("utf-8", "surrogateescape") for form in forms if form}, key=len, reverse=True)
        self._kept = b""

    def __call__(self, piece: bytes, *, last: bool = False) -> bytes:
        if not self._forms:
            return piece
        from leadline.book.ansible.plugin.leadline_book import places, without

        text = self._kept + piece
        cut = len(text) if last else min((self._begun(text, form) for form in self._forms), default=len(text))
        for start, end in places(text, self._forms):
            if start < cut < end:
                cut = start  # whole, with what may follow it
        self._kept = text[cut:]
        return without(text[:cut], self._forms, b"***")

    @staticmethod
    def _begun(text: bytes, form: bytes) -> int:
        """Where the text ends with a part of the form, from its beginning on; the end of the text if nowhere."""
        at = text.find(form[:1], max(0, len(text) - len(form) + 1))
        while at >= 0 and not form.startswith(text[at:]):
            at = text.find(form[:1], at + 1)
        return at if at >= 0 else len(text)


class Output:
    """One of the two outputs of a command: its pipe, and where it goes besides the log."""

    def __init__(self, pipe: int, to: int | None, forms: list[str]) -> None:
        self.pipe, self.to, self.mask = pipe, to, Masked(forms)
        self.failed = 0  # the error number of a stdout that does not take it

    def pass_on(self, piece: bytes) -> bool:
        """False: nobody reads it any more."""
        view = memoryview(piece)
        while self.to is not None and view:
            try:
                view = view[os.write(self.to, view) :]
            except BlockingIOError:
                selectors_wait(self.to)
            except OSError as e:
                if self.to == 1 and not isinstance(e, BrokenPipeError):
                    self.failed = e.errno or 0
                self.to = None
                return not isinstance(e, BrokenPipeError)
        return True


def selectors_wait(fd: int) -> None:
    """Until an output that somebody has made non-blocking takes more."""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_WRITE)
        selector.select(1.0)


class Supervisor:
    """Runs one command. tell: called with words for who waits: `start PID`, `failed ERRNO`, `closed N`, `lost ERRNO`,
    `used SECONDS CPU BYTES`, `end CODE`."""

    def __init__(self, place: Place, request: Request, tell: Callable[[str], None], *, detached: bool) -> None:
        self.place, self.request, self.tell, self.detached = place, request, tell, detached
        self.recorder = Recorder(place, request.uid)
        self._forms = _forms(request.secrets)
        self.log = LogWriter(place, request.uid)
        self.cgroup = tree.Cgroup(request.uid) if detached else None
        self._selector = selectors.DefaultSelector()
        self._child = -1
        self._status: tuple[int, Any] | None = None
        self._began = self._took_s = 0.0
        self._cancelled_at: float | None = None
        self._asked_all = False
        self._recorded = False

    def run(self, pipes: Pipes) -> None:
        """Until the command has ended, and what it left behind has closed its outputs."""
        tree.adopt_orphans()
        self._listen()
        request = self.request
        command = request.shown or request.argv
        files = [path for word in command if os.path.isfile(path := os.path.join(request.cwd or "", word))]
        if request.kind == "ansible":
            files = []  # its plugin knows which are playbooks, and what in them is secret
        name = request.name or os.path.basename(command[0])
        argv, inputs = self._hidden(command), dict(zip(request.inputs, self._hidden(list(request.inputs.values()))))
        self.recorder.begin(
            request.kind, name, argv, labels=request.labels, inputs=inputs, files=files, parent=request.parent, cwd=request.cwd,
        )  # fmt: skip
        (out, out_end), (err, err_end) = pipes
        held = hold(request.remove)  # by the command, too: it may outlive us
        alone = self.detached or request.quiet
        self._began = time.monotonic()
        try:
            child = subprocess.Popen(
                request.argv, stdin=subprocess.DEVNULL if alone else None, stdout=out_end, stderr=err_end, cwd=request.cwd,
                env=os.environ | request.env | {PARENT: request.uid}, preexec_fn=self.cgroup.enter if self.cgroup else None,
                start_new_session=self.detached, pass_fds=held,
            )  # fmt: skip
        except OSError as e:
            self.recorder.summary(f"not started: {e.strerror}")
            self.recorder.end(127 if isinstance(e, FileNotFoundError) else 126)
            self._clean_up()
            self.tell(f"failed {e.errno}")
            return
        child.returncode = 0  # it is we who wait for it, with all that we adopt
        self._child = child.pid
        for end in (out_end, err_end):
            os.close(end)
        self.tell(f"start {child.pid}")
        for number, pipe in ((1, out), (2, err)):
            os.set_blocking(pipe, False)
            output = Output(pipe, None if alone else number, self._forms)
            self._selector.register(pipe, selectors.EVENT_READ, output)
        self._loop()
        self.log.close()
        self._clean_up()

    def _listen(self) -> None:
        read, write = os.pipe()
        os.set_blocking(write, False)
        os.set_blocking(read, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._selector.register(read, selectors.EVENT_READ)
        self._woken = read
        signal.signal(signal.SIGCHLD, _nothing)
        signal.signal(CANCEL, self._cancel)
        for number in PASSED_ON:  # the command gets them by itself, from the terminal or from who waits
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._cancel if self.detached and number == signal.SIGTERM else _nothing)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _cancel(self, _number: int, _frame: FrameType | None) -> None:
        if self._cancelled_at is None and self._status is None:
            self._cancelled_at = time.monotonic()
            tree.send([self._child] if self._child > 0 else [], signal.SIGTERM)

    def _loop(self) -> None:
        while not self._recorded or len(self._selector.get_map()) > 1:
            ready = self._selector.select(0.05 if self._cancelled_at is not None and not self._recorded else None)
            with suppress(BlockingIOError):
                while os.read(self._woken, 512):
                    pass
            for key, _ in ready:
                if key.data is not None:
                    self._copy(key.data)
            self._reap()
            if self._cancelled_at is not None and not self._recorded:
                self._end_tree(time.monotonic() - self._cancelled_at)
            elif self._status is not None and not self._recorded:
                self._end()

    def _copy(self, output: Output) -> bool:
        """Takes what is there; false when there was nothing. First into the log: nobody has seen what is not in it."""
        try:
            piece = read_output(output.pipe)
        except BlockingIOError:
            return False
        shown = output.mask(piece, last=not piece)
        if shown:
            self.log.add(shown)
        wanted = output.pass_on(shown)
        if output.failed:
            self.tell(f"lost {output.failed}")
            output.failed = 0
        if not wanted or not piece:
            self._selector.unregister(output.pipe)
            os.close(output.pipe)
            if piece:
                self.tell(f"closed {output.pipe}")
            return False
        return True

    def _reap(self) -> None:
        """Everything that has ended and is ours, also what we adopted."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child:
                self._status = (os.waitstatus_to_exitcode(status), usage)
                self._took_s = time.monotonic() - self._began

    def _end_tree(self, since_s: float) -> None:
        """A step of ending all processes of the run: the command is asked, then all are, then they are killed."""
        left = tree.members(self.request.uid, os.getpid())
        if self._status is not None and (not left or since_s > GRACE_S + LAST_GRACE_S + GIVE_UP_S):
            if left:
                self.recorder.summary(f"cancelled; processes that could not be ended: {', '.join(map(str, sorted(left)))}")
            self._end()
        elif not self._asked_all and (self._status is not None or since_s > GRACE_S):
            self._asked_all = True
            self._cancelled_at = time.monotonic() - GRACE_S
            tree.send(left, signal.SIGTERM)
        elif self._asked_all and since_s > GRACE_S + LAST_GRACE_S:
            if self.cgroup is not None:
                self.cgroup.kill()
            tree.send(left, signal.SIGKILL)

    def _end(self) -> None:
        """Records the end, with all that the command itself has printed."""
        assert self._status is not None
        for key in list(self._selector.get_map().values()):
            for _ in range(AT_THE_END):
                if key.data is None or not self._copy(key.data):
                    break
        code, usage = self._status
        ended_by = -code if code < 0 else None
        self._recorded = True
        for kind, path in self.request.makes.items():
            if os.path.exists(path):
                self.recorder.artifact(kind, path)
        used = self.recorder.end(
            None if ended_by else code, signal=ended_by, usage=usage, wall_s=self._took_s, log_lost_bytes=self.log.lost_bytes,
            log_hash=self.log.hash.hexdigest(), log_hashed=self.log.size,
            cancelled=self._cancelled_at is not None or (code > 0 and code == self.request.interrupted_code),
        )  # fmt: skip
        self.tell(f"used {used['wall_s']!r} {used['cpu_s']!r} {used.get('max_rss_bytes', -1)}")
        self.tell(f"end {128 - code if code < 0 else code}")

    def _clean_up(self) -> None:
        for path in self.request.remove:
            with suppress(OSError):
                os.unlink(path)
        if self.cgroup is not None:
            self.cgroup.remove()

    def _hidden(self, values: list[Any]) -> list[Any]:
        """Texts without the secrets of the request."""
        def hidden(value: Any) -> Any:
            if not isinstance(value, str):
                return value
            return Masked(self._forms)(value.encode("utf-8", "surrogateescape"), last=True).decode("utf-8", "surrogateescape")

        return [hidden(value) for value in values]


def _nothing(_number: int, _frame: FrameType | None) -> None: ...


def main() -> int:
    """Starts the run that stdin asks for, in a process that nobody waits for; says on stdout how that went."""
    import json

    place = find_place()
    if place is None:
        return 2
    request = Request(**json.load(sys.stdin))
    if os.fork():
        os._exit(0)
    with suppress(OSError):
        os.setsid()

    def tell(words: str) -> None:
        with suppress(OSError):
            os.write(1, f"{words}\n".encode())
        if words.startswith("start"):  # who asked need not wait for more
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nothing, fd)

    Supervisor(place, request, tell, detached=True).run(outputs(request))
    return 0


if __name__ == "__main__":
    sys.exit(main())
