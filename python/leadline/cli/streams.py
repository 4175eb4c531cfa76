"""stdout and stderr of the command leadline. What cannot be written to stdout is one kind of exception, whoever writes; what
cannot be written to stderr is lost, and changes nothing else."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from typing_extensions import Buffer

PASSING = (b"next: ", b"note: ", b"warning: ", b"  ", b"\n", b"\r")
STDIN, STDOUT, STDERR = 0, 1, 2


class OutputLost(Exception):
    """stdout cannot be written. No OSError: libraries have opinions of their own about a broken pipe."""

    def __init__(self, source: OSError) -> None:
        super().__init__(str(source))
        self.is_read_no_more = source.errno == errno.EPIPE  # the reader (head, less) has seen enough
        self.why = "it is closed" if source.errno == errno.EBADF else source.strerror

    def as_error(self) -> LeadlineError:
        return LeadlineError("storage", f"cannot write the output: {self.why}", where="stdout")


class _Stdout(io.FileIO):
    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as e:
            raise OutputLost(e) from None


class _Stderr(io.FileIO):
    """last: what was said last that is no note and no advice."""

    last = b""

    def write(self, data: Buffer, /) -> int:
        said = bytes(data)
        if not said.startswith(PASSING):
            self.last = said
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Puts them in the place of those that Python opened, or did not: a stream that was closed is opened on nothing, so that no file
    that is opened later is taken for it."""
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDONLY)  # what is written to it fails
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
    sys.stdout = _text(_Stdout(STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Stderr(STDERR, "w", closefd=False), sys.stderr, "backslashreplace")


def _text(raw: io.FileIO, usual: TextIO | None, errors: str = "strict") -> io.TextIOWrapper:
    encoding = getattr(usual, "encoding", None) or "utf-8"
    errors = getattr(usual, "errors", None) or errors
    is_talk = raw.fileno() == STDERR
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=is_talk or raw.isatty())


def last_said() -> str:
    """The last line on stderr that tells what came of the command."""
    raw = getattr(getattr(sys.stderr, "buffer", None), "raw", None)
    lines = getattr(raw, "last", b"").decode("utf-8", "replace").rpartition("\r")[2].split("\n")
    return next((line for line in reversed(lines) if line.strip()), "")


def forget_stdout() -> None:
    """What is still to be written there goes nowhere, without another error at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, STDOUT)
    os.close(nothing)
