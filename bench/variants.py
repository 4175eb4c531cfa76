"""What is compared with the bare server: leadline, pg_wait_sampling, a poll of pg_stat_activity, and nothing at all (the controls).

A tool runs from start() to stop(); pause() and resume() switch it between two trials within a millisecond, without its set-up.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from leadline.capture.manifest import MANIFEST, Manifest, read_manifest
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server.private import PrivateServer
from leadline.errors import LeadlineError
from leadline.tables import all_tables
from load import execute, fetch
from processes import Child, cpu_ns, thread_cpu_ns, tree_cpu_ns

START_S = 60.0
LONGER_THAN_ANY_BENCH_S = 86_400
SAMPLER, WRITER = "leadline-sample", "leadline-write"


class Tool(Protocol):
    """cpu: ns used so far, by part; "total" is everything. stop: the orderly end; abandon: the end in any case, after stop nothing.

    done: after stop, what it did between two moments of CLOCK_MONOTONIC (ns). All may raise LeadlineError, but not abandon.
    """

    def start(self, server: PrivateServer, work: Path) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def check(self) -> None: ...
    def cpu(self) -> dict[str, int]: ...
    def stop(self) -> None: ...
    def abandon(self) -> None: ...
    def done(self, from_ns: int, to_ns: int) -> dict[str, Any]: ...


class Nothing:
    """The control: all is done as for a tool, and there is none."""

    def start(self, server: PrivateServer, work: Path) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def check(self) -> None: ...
    def stop(self) -> None: ...
    def abandon(self) -> None: ...

    def cpu(self) -> dict[str, int]:
        return {"total": 0}

    def done(self, from_ns: int, to_ns: int) -> dict[str, Any]:
        return {}


def until_it_looks(child: Child, capture: Path) -> None:
    """Until the window of a capture has begun. Raises LeadlineError."""
    deadline = time.monotonic() + START_S
    while not (capture / MANIFEST).exists() or read_manifest(capture).clock.ts_from is None:
        child.check()
        if time.monotonic() > deadline:
            raise LeadlineError("gone", f"leadline take did not begin within {START_S:g} s", detail=child.last_words())
        time.sleep(0.05)


class Leadline:
    """`leadline take --pid` as a user runs it: shared memory, no connection, every table written to disk."""

    def __init__(self, rate_hz: int, python: str = sys.executable, options: tuple[str, ...] = ()) -> None:
        """python: of the virtual environment whose leadline it is."""
        self.rate_hz, self._python, self._options = rate_hz, python, options
        self._child: Child | None = None

    def start(self, server: PrivateServer, work: Path) -> None:
        self._capture = work / f"leadline-{self.rate_hz}-{time.monotonic_ns()}.leadline"
        options = ["--for", f"{LONGER_THAN_ANY_BENCH_S}s", "--rate", str(self.rate_hz), "--tier", "shm", "-o", str(self._capture)]
        command = [self._python, "-m", "leadline", "take", "--pid", str(server.pid), *options, *self._options]
        self._child = Child("leadline take", command, output=self._capture.with_suffix(".log"), cwd=work)
        until_it_looks(self.child, self._capture)
        self._setup_cpu_s = tree_cpu_ns(self.child.pid) / 1e9

    @property
    def child(self) -> Child:
        assert self._child is not None
        return self._child

    def pause(self) -> None:
        self.child.pause()

    def resume(self) -> None:
        self.child.resume()

    def check(self) -> None:
        self.child.check()

    def cpu(self) -> dict[str, int]:
        total, threads = tree_cpu_ns(self.child.pid), thread_cpu_ns(self.child.pid)
        sampler, writer = threads[SAMPLER], threads[WRITER]
        return {"total": total, "sampler thread": sampler, "writer thread": writer, "the rest": max(0, total - sampler - writer)}

    def stop(self) -> None:
        before = _children_cpu_s()
        code = self.child.end(signal.SIGINT)
        self._whole_life_cpu_s = _children_cpu_s() - before
        if code != 0:
            raise LeadlineError("gone", f"leadline take ended with code {code}", detail=self.child.last_words())

    def abandon(self) -> None:
        if self._child is not None:
            self._child.end(signal.SIGKILL)

    def done(self, from_ns: int, to_ns: int) -> dict[str, Any]:
        """After stop(): from the capture itself, ticks of the window and evidence of the whole run."""
        capture = open_capture(self._capture)
        try:
            (ticks,) = capture.rows(
                """select count(*) as passes, coalesce(sum(missed), 0)::bigint as missed, avg(sessions) as sessions,
                          quantile_cont(late_ns, 0.5) / 1e3 as late_p50_us, quantile_cont(late_ns, 0.99) / 1e3 as late_p99_us,
                          quantile_cont(pass_ns, 0.5) / 1e3 as pass_p50_us, quantile_cont(pass_ns, 0.99) / 1e3 as pass_p99_us
                   from tick where ts between ? and ?""",
                [from_ns, to_ns],
            )
        finally:
            capture.close()
        return {**ticks, **self._evidence(capture.manifest)}

    def _evidence(self, manifest: Manifest) -> dict[str, Any]:
        """Rows and bytes of what is sampled; what is read once before and after the window (catalog, host) is left out."""
        once = {name for name, table in all_tables().items() if table.probe == "catalog"} | {"host_fact", "mount", "block_device"}
        tables = {name: counts for name, counts in manifest.tables.items() if name not in once}
        rows, size = (sum(counts[key] for counts in tables.values()) for key in ("rows", "bytes"))
        window_s = manifest.clock.window_s or 1.0
        cost = manifest.cost
        samples = max(1, tables.get("session_run", {}).get("rows", 0))
        return {
            "capture_window_s": window_s,
            "rows_per_s": rows / window_s,
            "bytes_per_s": size / window_s,
            "bytes_per_row": size / max(1, rows),
            "bytes_per_session_sample": size / samples,
            "setup_cpu_s": self._setup_cpu_s,  # with the start of Python, which the tool's own account does not see
            "finish_cpu_s": max(0.0, self._whole_life_cpu_s - self._setup_cpu_s - (cost.cpu_s or 0.0)),
            "own_account_setup_cpu_s": cost.setup_cpu_s,
            "own_account_cpu_percent": cost.cpu_percent_of_core,
            "access": manifest.probe("sessions").access["shared_memory"],
            "probes": {name: probe.status for name, probe in manifest.probes.items()},
        }


class Reporting:
    """A program that writes a line of JSON when it runs and one when SIGTERM ends it: passes, missed, elapsed_s."""

    _child: Child | None = None

    def launch(self, name: str, command: list[str]) -> dict[str, Any]:
        self._child = Child(name, command)
        return self._answer()

    @property
    def child(self) -> Child:
        assert self._child is not None
        return self._child

    def pause(self) -> None:
        self.child.pause()

    def resume(self) -> None:
        self.child.resume()

    def check(self) -> None:
        self.child.check()

    def stop(self) -> None:
        self.child.process.send_signal(signal.SIGTERM)
        self.child.resume()
        self._said = self._answer()
        self.child.end()

    def abandon(self) -> None:
        if self._child is not None:
            self._child.end(signal.SIGKILL)

    def done(self, from_ns: int, to_ns: int) -> dict[str, Any]:
        """Of its whole life, brought to the window: it does the same all the time."""
        part = (to_ns - from_ns) / 1e9 / self._said["elapsed_s"]
        return {name: round(self._said[name] * part) for name in ("passes", "missed")}

    def _answer(self) -> dict[str, Any]:
        assert self.child.process.stdout is not None
        line = self.child.process.stdout.readline()
        if not line:
            raise LeadlineError("gone", f"{self.child.name} ended by itself", detail=self.child.last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer


class Poll(Reporting):
    """poll_activity.py: its process, and the backend that answers it."""

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz

    def start(self, server: PrivateServer, work: Path) -> None:
        script = Path(__file__).with_name("poll_activity.py")
        said = self.launch("poll_activity.py", [sys.executable, str(script), server.dsn, str(self.rate_hz)])
        self._backend = int(said["backend_pid"])

    def cpu(self) -> dict[str, int]:
        client, backend = cpu_ns(self.child.pid), cpu_ns(self._backend)
        return {"total": client + backend, "client": client, "backend": backend}

    def done(self, from_ns: int, to_ns: int) -> dict[str, Any]:
        return {**super().done(from_ns, to_ns), "sessions": self._said["rows"] / self._said["passes"]}


class Wakeups(Reporting):
    """The floor: a real-time thread that wakes up at the rate and does nothing (an example of crates/postgres/recorder)."""

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz

    def start(self, server: PrivateServer, work: Path) -> None:
        self.launch("wakeups", [str(_example("leadline-recorder", "wakeups")), str(self.rate_hz)])

    def cpu(self) -> dict[str, int]:
        return {"total": cpu_ns(self.child.pid)}


@cache
def _example(crate: str, name: str) -> Path:
    """Builds it first."""
    root = Path(__file__).resolve().parent.parent
    built = subprocess.run(["cargo", "build", "--release", "--quiet", "-p", crate, "--example", name], cwd=root)
    if built.returncode != 0:
        raise LeadlineError("not_found", f"the example {name} of {crate} cannot be built", hint="make build")
    return root / "target" / "release" / "examples" / name


class WaitSampling:
    """pg_wait_sampling with its defaults, preloaded into the server it is started on: its collector is a process of that server."""

    _pid = 0

    def start(self, server: PrivateServer, work: Path) -> None:
        self._server = server
        found = fetch(server, "select pid from pg_stat_activity where backend_type = 'pg_wait_sampling collector'")
        if len(found) != 1:
            raise LeadlineError("invalid", f"{len(found)} collectors of pg_wait_sampling were found, not 1")
        self._pid = found[0][0]
        execute(server, "create extension if not exists pg_wait_sampling", "select pg_wait_sampling_reset_profile()")
        self._reset_s = time.monotonic()

    def pause(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def check(self) -> None:
        if not Path(f"/proc/{self._pid}").exists():
            raise LeadlineError("gone", "the collector of pg_wait_sampling has ended")

    def cpu(self) -> dict[str, int]:
        collector = cpu_ns(self._pid)
        return {"total": collector, "collector": collector}

    def stop(self) -> None:
        """It lives as long as the server; here only what it counted is read."""
        self.resume()
        # a server process that always waits is counted in every sample
        counts = "select sum(count) as n from pg_wait_sampling_profile group by pid"
        self._samples = int(fetch(self._server, f"select coalesce(max(n), 0) from ({counts}) c")[0][0])
        self._sampled_s = time.monotonic() - self._reset_s

    def abandon(self) -> None:
        if self._pid and Path(f"/proc/{self._pid}").exists():
            self.resume()

    def done(self, from_ns: int, to_ns: int) -> dict[str, Any]:
        return {"passes": round(self._samples * (to_ns - from_ns) / 1e9 / self._sampled_s)}


@dataclass(frozen=True)
class Variant:
    """own_server: runs on a second server, because it (or what it controls for) must be in the server from its start."""

    name: str
    title: str
    make: Callable[[], Tool]
    rate_hz: int | None = None
    own_server: bool = False
    preload: str = ""
    trials: bool = True  # whether throughput is compared; of the others only the CPU is measured

    @property
    def is_control(self) -> bool:
        return self.rate_hz is None


VARIANTS = {
    v.name: v
    for v in (
        Variant("control", "control: nothing", Nothing),
        Variant("control-server", "control: the second server, bare", Nothing, own_server=True),
        Variant("leadline-100", "leadline at 100 Hz", lambda: Leadline(100), 100),
        Variant("leadline-1000", "leadline at 1 kHz", lambda: Leadline(1000), 1000),
        Variant("wakeups-100", "the floor: waking up at 100 Hz", lambda: Wakeups(100), 100, trials=False),
        Variant("wakeups-1000", "the floor: waking up at 1 kHz", lambda: Wakeups(1000), 1000, trials=False),
        Variant("wait-sampling", "pg_wait_sampling, default (100 Hz)", WaitSampling, 100, own_server=True, preload="pg_wait_sampling"),
        Variant("poll-10", "pg_stat_activity poll at 10 Hz", lambda: Poll(10), 10),
        Variant("poll-100", "pg_stat_activity poll at 100 Hz", lambda: Poll(100), 100, trials=False),
    )
}


def _children_cpu_s() -> float:
    """CPU of our children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
