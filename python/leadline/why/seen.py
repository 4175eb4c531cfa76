"""What the follower saw of a command: its processes, and their calls that failed."""

from __future__ import annotations

import errno
import json
import signal
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Process:
    """One process. forbidden: the call for which a filter ended it. said: the end of its error output, but for /dev/null; said_to: where
    it went. exec_ns: when its program began. libraries: looked for in these directories and not found. stack, out_of_memory: why the kernel
    ended it."""

    at: int
    pid: int
    parent: int | None
    program: str
    exit_code: int | None
    signal: int | None
    core: bool
    sender: int | None
    forbidden: str | None
    killed_by_own: bool
    exec_ns: int | None
    said: str
    first_error: str
    said_ns: int | None
    said_to: str
    printed: str
    printed_ns: int | None
    cpu_s: float
    cpu_limit_s: int | None
    stack: dict[str, Any] | None
    out_of_memory: dict[str, Any] | None
    lookups: list[dict[str, Any]]
    libraries: list[dict[str, Any]]
    started_ns: int
    ended_ns: int | None

    @property
    def name(self) -> str:
        return self.program.rsplit("/", 1)[-1] or "the command"

    @property
    def failed(self) -> bool:
        return self.signal is not None or bool(self.exit_code)

    @property
    def outcome(self) -> str:
        if self.signal is not None:
            return f"ended by {signal_name(self.signal)}"
        return "still running" if self.exit_code is None else f"exit code {self.exit_code}"


@dataclass(frozen=True)
class Failure:
    """A call that failed. said: how clearly the process then wrote of it (crates/follow/src/speech.rs), 0 not at all; line: what it wrote.
    resolved: another attempt succeeded. before_exec: another program has taken the place of the one that failed. by_filter: seccomp
    refused it. detail: what its arguments tell of its purpose."""

    process: Process
    call: str
    error: str
    path: str
    address: str
    count: int
    said: int
    said_ns: int | None
    line: str
    before_exec: bool
    resolved: bool
    by_filter: bool
    ts_ns: int
    facts: dict[str, Any]
    detail: dict[str, Any]

    @property
    def mount(self) -> dict[str, str]:
        return self.facts.get("mount") or {}

    @property
    def matters(self) -> bool:
        """Nothing made up for it, and its process did not end well or spoke of it."""
        return not (self.resolved or self.before_exec) and (self.process.failed or bool(self.said))

    def as_call(self) -> str:
        about = f'"{self.path}"' if self.path else self.address
        times = f", {self.count:,} times" if self.count > 1 else ""
        return f"{self.call}({about}) = {self.error}{times}, by {self.process.name} (pid {self.process.pid})"


@dataclass(frozen=True)
class Seen:
    """All of one run."""

    processes: list[Process]
    failures: list[Failure]
    filtered: bool
    left_running: int
    left_out: dict[str, int] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    @property
    def main(self) -> Process:
        return self.processes[0]

    @cached_property
    def parents(self) -> set[int]:
        return {process.parent for process in self.processes if process.parent is not None}


def seen_of(text: str) -> Seen:
    """From the follower's JSON."""
    raw = json.loads(text)
    names = Process.__dataclass_fields__.keys() - {"at"}
    processes = [Process(at=at, **{name: one[name] for name in names}) for at, one in enumerate(raw["processes"])]
    failures = [
        Failure(
            process=processes[one["process"]], call=one["call"], error=errno.errorcode.get(one["errno"], f"error {one['errno']}"),
            path=one["path"] or "", address=one["address"] or "", count=one["count"], said=one["said"], said_ns=one["said_ns"],
            line=one["line"], before_exec=one["before_exec"], resolved=one["resolved"], by_filter=one["by_filter"], ts_ns=one["ts_ns"],
            facts=one["facts"] or {}, detail=one["detail"] or {},
        )
        for one in raw["failures"]
    ]  # fmt: skip
    left_out = {name: raw[name] for name in ("processes_left_out", "failures_left_out")}
    return Seen(processes, failures, raw["filtered"], raw["left_running"], left_out, raw["outputs"])


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
