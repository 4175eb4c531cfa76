"""Captures of the server beside the trials of a study: sessions with their waits and statements, and the devices of the host.

A process of its own makes them, one after the other: threads beside who waits for trials would take signals that are for that wait.

    python -m leadline.study.watch < LINES      a line of JSON begins a capture, the next line ends it; "ready", then the problem, if any
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from leadline.capture.manifest import read_manifest
from leadline.errors import LeadlineError

PROBES = ("sessions", "host")
PROFILE = "kernel"
LONGEST_S = 86_400.0


class Watcher:
    """What fails is in `problem`, and never in the way of a trial. not_profiled: why the last capture has no functions, though asked."""

    def __init__(self) -> None:
        self.problem = self.not_profiled = ""
        self._process: subprocess.Popen[str] | None = None

    @contextmanager
    def watching(self, dsn: str, directory: Path, standby: str = "", profile: bool = False) -> Iterator[None]:
        """While the block runs, the server is captured into the directory, with its standby if there is one.

        profile: also which functions use CPU time; where this host does not allow it, without them.
        """
        asked = {"dsn": dsn, "standbys": [standby] if standby else [], "folder": str(directory), "profile": profile}
        self.problem, self.not_profiled = self._ask(json.dumps(asked)), ""
        try:
            yield
        finally:
            self.problem = self.problem or self._ask("null")
            if self.problem:
                shutil.rmtree(directory, ignore_errors=True)
            elif profile:
                self.not_profiled = _why_off(directory)

    def _ask(self, line: str) -> str:
        """The problem that it answers with."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "leadline.study.watch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, start_new_session=True, cwd="/",
            )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError as e:
            return e.strerror or str(e)
        return str(json.loads(answer)) if answer else "what makes the capture has ended"

    def close(self) -> None:
        if self._process is not None:
            with suppress(OSError):
                self._process.communicate()
            self._process = None


def _why_off(directory: Path) -> str:
    """Why a capture has no profile; empty if it has one."""
    try:
        state = read_manifest(directory).probes.get(PROFILE)
    except LeadlineError as e:
        return e.message
    return state.why if state is not None and state.status == "off" else ""


def main() -> int:
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while asked := lines.get():
        wanted = json.loads(asked)
        _say(_take(wanted, lines))
    return 0


def _take(wanted: dict[str, Any], lines: queue.Queue[str]) -> str:
    """Says that it has begun; gives the problem."""
    from leadline.probes.options import Options
    from leadline.probes.take import take_with
    from leadline.progress import Silent

    begun: list[bool] = []

    def ready() -> None:
        begun.append(True)
        _say("")

    try:
        options = Options(
            dsn=wanted["dsn"], others=wanted["standbys"], for_s=LONGEST_S, out=Path(wanted["folder"]), overwrite=True,
            probes=(*PROBES, PROFILE) if wanted["profile"] else PROBES, kernel_detail="sums", keep_going=True,
        )  # fmt: skip
        take_with(options, Silent(), lambda: not lines.empty(), ready)
    except LeadlineError as e:
        return f"{e.message}{f' ({e.detail})' if e.detail else ''}"
    finally:
        if begun and not lines.get():  # the line that ended it, or the end of all
            lines.put("")
    return ""


def _say(problem: str) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps(problem), flush=True)


if __name__ == "__main__":
    sys.exit(main())
