"""Several servers in one recorder: each has a process and a directory of its own, and this process begins those anew that end.

A process that waits for its server, or fails, or is killed keeps nothing from the others. Each is told what to record over its stdin, which
ends with this process, however that ends: nobody goes on recording whom the next start would have to fight.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError, cannot_be_written
from leadline.probes.options import Options
from leadline.probes.recording import stop_on_signal
from leadline.recorder.detail import Bounds
from leadline.recorder.pieces import Pieces
from leadline.recorder.retention import Limits
from leadline.recorder.run import LEAST_BYTES
from leadline.recorder.state import STATE, locked
from leadline.units import sized

ONE = (sys.executable, "-m", "leadline.recorder.one")
LOOK_S = 0.5
BACKOFF_S = (1.0, 60.0)
ENDS_S = 60.0  # for the last rows of a piece and what describes it, on a busy host


@dataclass(frozen=True)
class Wanted:
    """What is recorded of each server: as leadline.recorder.run.Recorder takes it. limits, detail: of all of them together."""

    options: Options
    limits: Limits
    findings_s: float
    detail: Bounds
    baseline: bool

    def told(self, dsn: str, name: str, directory: Path, servers: int) -> dict[str, Any]:
        """What the process of one of so many servers is told. Of what all may take, each has an equal share."""
        options = {"dsn": dsn, "for_s": self.options.for_s, "rate_hz": self.options.rate_hz, "tier": self.options.tier}
        limits = replace(self.limits, max_bytes=self.limits.max_bytes // servers)
        detail = replace(self.detail, max_bytes=self.detail.max_bytes // servers)
        return {
            "name": name, "directory": str(directory / name), "options": options, "limits": asdict(limits), "findings_s": self.findings_s,
            "detail": asdict(detail), "baseline": self.baseline,
        }  # fmt: skip


@dataclass
class Process:
    """That of one server."""

    name: str
    command: Sequence[str]
    told: str
    running: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    backoff_s: float = BACKOFF_S[0]

    def begin(self) -> None:
        self.began = time.monotonic()
        self.running = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        assert self.running.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already: the next look begins it anew
            self.running.stdin.write(self.told.encode() + b"\n")
            self.running.stdin.flush()

    def look(self, say: Callable[[str], None]) -> None:
        """Begins it anew when it has ended: soon the first time, then less often."""
        now = time.monotonic()
        if self.running is not None:
            if (code := self.running.poll()) is None:
                return
            self.close()
            if now - self.began > BACKOFF_S[1]:
                self.backoff_s = BACKOFF_S[0]
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            say(f"note: {self.name}: its process {how}; it is begun again in {self.backoff_s:g} s")
            self.running, self.began = None, now + self.backoff_s
            self.backoff_s = min(2 * self.backoff_s, BACKOFF_S[1])
        if now >= self.began:
            self.begin()

    def close(self) -> None:
        """It ends by itself when there is nobody any more who could tell it something."""
        if self.running is not None and self.running.stdin is not None:
            with suppress(BrokenPipeError):
                self.running.stdin.close()

    def wait(self) -> None:
        if self.running is None:
            return
        try:
            self.running.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self.running.kill()
            self.running.wait()


@dataclass
class Servers:
    """dsns: the servers by the names of their directories, below `directory`."""

    directory: Path
    dsns: Mapping[str, str]
    wanted: Wanted
    say: Callable[[str], None]
    command: Sequence[str] = ONE
    processes: list[Process] = field(default_factory=list)

    def run(self) -> None:
        """Until SIGINT or SIGTERM arrives. Raises LeadlineError for what waiting does not mend."""
        count = len(self.dsns)
        self.wanted.options.check()
        if self.wanted.limits.max_bytes // count < LEAST_BYTES:
            what = f"{sized(self.wanted.limits.max_bytes)} is too little for the recorders of {count} servers"
            raise LeadlineError("usage", what, hint=f"give {sized(count * LEAST_BYTES)} or more")
        with stop_on_signal() as stop, locked(self.directory):
            if (self.directory / STATE).exists() or Pieces(self.directory).names():
                hint = "record into another directory with --to"
                raise LeadlineError("usage", "this directory has the pieces of one server", hint=hint, where=str(self.directory))
            for name, dsn in self.dsns.items():
                try:
                    (self.directory / name).mkdir(exist_ok=True)
                except OSError as e:
                    raise cannot_be_written("the directory of a server", e, self.directory / name) from e
                told = json.dumps(self.wanted.told(dsn, name, self.directory, count))
                self.processes.append(Process(name, self.command, told))
            try:
                while not stop.is_set():
                    for process in self.processes:
                        process.look(self.say)
                    stop.wait(LOOK_S)
            finally:
                for process in self.processes:
                    process.close()
                for process in self.processes:
                    process.wait()
