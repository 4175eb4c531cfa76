"""Runs a command and records what it prints, how it ends and what it costs. It runs as it would have without."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from leadline.book.place import find_place
from leadline.book.recorder import PARENT, Recorder
from leadline.errors import LeadlineError

PIECE = 64 << 10
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Log:
    """What the command prints, as it came. What cannot be written is counted: the command goes on."""

    def __init__(self, path: Path | None) -> None:
        self.lost_bytes, self._fd = 0, -1
        if path is not None:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError:
                self._fd = -1

    def add(self, piece: bytes) -> None:
        try:
            written = os.write(self._fd, piece) if self._fd >= 0 else 0
        except OSError:
            written = 0
        self.lost_bytes += len(piece) - written


class Hiding(Protocol):
    """Takes out of an output what must not be stored."""

    def feed(self, piece: bytes) -> bytes: ...
    def flush(self) -> bytes: ...


class NothingToHide:
    def feed(self, piece: bytes) -> bytes:
        return piece

    def flush(self) -> bytes:
        return b""


def run_command(
    command: Sequence[str], name: str, labels: Mapping[str, str], *, uid: str = "", kind: str = "command",
    files: Sequence[str] | None = None, environment: Mapping[str, str] | None = None, hiding: Callable[[], Hiding] = NothingToHide,
) -> int:  # fmt: skip
    """The exit code of the command; 128 + N if signal N ended it. Raises LeadlineError if it cannot be started.

    uid, kind: of the run. files: what it was given; by default the arguments that are files. environment: what to add to ours.
    hiding: made for each output; what it takes out is printed, but not stored.
    """
    place = find_place()
    recorder = Recorder(place, uid)
    given = [word for word in command if os.path.isfile(word)] if files is None else files
    recorder.begin(kind, name or os.path.basename(command[0]), command, labels=labels, files=given)
    log = Log(None if place is None else place.log_of(recorder.uid))
    own = {PARENT: recorder.uid} if place is not None else {}
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | (environment or {}) | own, bufsize=0)
    except OSError as e:
        recorder.summary(f"not started: {e.strerror}")
        recorder.end(127 if isinstance(e, FileNotFoundError) else 126)
        what = "not_found" if isinstance(e, FileNotFoundError) else "rights"
        raise LeadlineError(what, f"the command cannot be started: {e.strerror}", where=command[0]) from e

    def pass_on(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    # Ctrl-C reaches the command by the terminal; it decides what to do.
    before = {number: signal.signal(number, pass_on) for number in PASSED_ON} | {signal.SIGINT: signal.signal(signal.SIGINT, _nothing)}
    try:
        _copy(child, log, hiding)
        code, usage = _wait(child)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    ended_by = -code if code < 0 else None
    recorder.end(None if ended_by else code, signal=ended_by, usage=usage, log_lost_bytes=log.lost_bytes)
    return 128 - code if code < 0 else code


def _nothing(_number: int, _frame: FrameType | None) -> None: ...


def _copy(child: subprocess.Popen[bytes], log: Log, hiding: Callable[[], Hiding]) -> None:
    """Both outputs to ours and into the log, in the order in which they come, until the command and what it left behind close them."""
    out: dict[Any, Any] = {child.stdout: sys.stdout.buffer, child.stderr: sys.stderr.buffer}
    hidden = {pipe: hiding() for pipe in out}
    read_no_more: set[Any] = set()
    with selectors.DefaultSelector() as selector:
        for pipe in out:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                stream: Any = key.fileobj
                piece = os.read(stream.fileno(), PIECE)
                if not piece:
                    log.add(hidden[stream].flush())
                    selector.unregister(stream)
                    stream.close()
                    continue
                log.add(hidden[stream].feed(piece))
                if stream in read_no_more:
                    continue
                try:
                    out[stream].write(piece)
                    out[stream].flush()
                except BrokenPipeError:
                    # As without us: who writes on gets SIGPIPE, or an error.
                    read_no_more.add(stream)
                    selector.unregister(stream)
                    stream.close()
                    os.dup2(os.open(os.devnull, os.O_WRONLY), out[stream].fileno())


def _wait(child: subprocess.Popen[bytes]) -> tuple[int, resource.struct_rusage]:
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage
