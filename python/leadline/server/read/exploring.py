"""What the page of `leadline explore` asks of captures that runs made, and of recorders, each read by a process of its own within the
bounds of sandbox.py.

A few of these processes stay, the one that was asked last longest. They end with this one, or by themselves when nobody asks them.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadline.book.place import OFF, VARIABLE
from leadline.errors import LeadlineError
from leadline.server.read import sandbox
from leadline.server.read.reports import state_of

QUESTIONS = ("opening", "about", "marks", "findings", "findings-of", "time", "ranking", "compare", "locks")
READER = "leadline.explore.piped"  # by its name: it stands above this package
MOST_OPEN = 4
MOST_ANSWER = 16 << 20


class Reader:
    """The process that has one capture or recorder open. One question at a time. words: what READER opens. What it writes goes with it."""

    def __init__(self, words: Sequence[str]) -> None:
        self._lock, self._left = threading.RLock(), b""
        self.scratch = Path(tempfile.mkdtemp(prefix=sandbox.SCRATCH))
        self._process = subprocess.Popen(
            [sys.executable, "-m", READER, *words], env={**os.environ, VARIABLE: OFF, "TMPDIR": str(self.scratch)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
        )  # fmt: skip

    def ask(self, question: str, query: str) -> dict[str, Any] | None:
        """None: it has ended. Raises LeadlineError."""
        assert self._process.stdin is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps({"question": question, "query": query}).encode() + b"\n")
            except (OSError, ValueError):
                return None
            line = self._line(time.monotonic() + sandbox.PATIENCE_S)
        if line is None:
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def _line(self, until: float) -> bytes | None:
        assert self._process.stdout is not None
        why = ""
        while b"\n" not in self._left:
            try:
                if not select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                    why = f"It took more than {sandbox.PATIENCE_S} s."
                elif not (piece := self._process.stdout.read(1 << 18)):
                    return None
                elif len(self._left) + len(piece) > MOST_ANSWER:
                    why = f"The answer has more than {MOST_ANSWER >> 20} MB."
            except (OSError, ValueError):
                return None
            if why:
                self.end()
                raise sandbox.too_much("explored", why)
            self._left += piece
        line, _, self._left = self._left.partition(b"\n")
        return line

    def end(self) -> int:
        """Its exit code."""
        self._process.kill()
        code = self._process.wait()
        with self._lock:  # who still waits for an answer sees that there is none
            self._close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        return code

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


_readers: OrderedDict[str, Reader] = OrderedDict()  # by what they have open
_guard = threading.Lock()


def explored(capture: Path, question: str, query: str) -> Any:
    """The answer to one question; query: the state of the page, as its address has it. Raises LeadlineError."""
    return _answered(state_of(capture), [str(capture)], question, query)


def explored_recorder(directory: Path, window: str, question: str, query: str) -> Any:
    """The same of a recorder's directory. window: seconds since 1970 from which its time is counted; or FROM-TO, a window of it that is
    opened as a capture, or FROM-TO~FROM-TO with the one that it is compared with. Raises LeadlineError.
    """
    return _answered(f"{window} {directory}", ["--recorder", window, str(directory)], question, query)


def _answered(key: str, words: Sequence[str], question: str, query: str) -> Any:
    code = 0
    for _ in range(2):  # the one that was open may have ended meanwhile
        reader = _reader(key, words)
        if (found := reader.ask(question, query)) is not None:
            if "error" in found:
                raise LeadlineError(**found["error"])
            return found["answer"]
        with _guard:
            if _readers.get(key) is reader:
                del _readers[key]
        code = reader.end()
    raise sandbox.too_much("explored", f"The process that read it ended with {code}.")


def _reader(key: str, words: Sequence[str]) -> Reader:
    surplus = []
    with _guard:
        reader = _readers.pop(key, None)
        if reader is None:
            while len(_readers) >= MOST_OPEN:
                surplus.append(_readers.popitem(last=False)[1])
            reader = Reader(words)
        _readers[key] = reader
    for other in surplus:
        other.end()
    return reader
