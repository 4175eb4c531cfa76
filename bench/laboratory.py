"""Where it is measured: two servers alike, the trials of a comparison, and the window in which the CPU of a tool is read."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.engines.postgres.server.private import PrivateServer
from leadline.lab.machine import machine_cpu, steal_share
from leadline.lab.paired import trial_order
from load import Load, Workload, execute, fetch, fill, refresh
from variants import Tool, Variant

SETTINGS: dict[str, object] = {
    "max_connections": 120,
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",  # no checkpoint and no vacuum of the server's own choosing within a comparison: both are done before it
    "checkpoint_timeout": "1h",
    "autovacuum": False,
}
SETTLE_S = 0.5  # a stretch counts when it begins at least so long after the switch
WARM_UP = 3  # progress lines
SLICE_S = 5.0


@dataclass
class Trial:
    """One trial: the counted stretch of it (Unix time), and in that stretch the transactions, the share of CPU time the hypervisor
    took, and the CPU of the tool in percent of one core: next to nothing when it is paused, or the trial is not what it says.
    """

    workload: str
    variant: str
    pair: int
    number: int
    on: bool
    from_s: float
    to_s: float
    transactions: float
    steal_share: float
    tool_cpu_percent: float

    @property
    def tps(self) -> float:
        return self.transactions / (self.to_s - self.from_s)


@dataclass
class Slice:
    """CPU of a tool in one slice of its window, percent of one core, by part."""

    workload: str
    variant: str
    from_ns: int
    to_ns: int
    cpu_percent: dict[str, float]


@dataclass
class Results:
    trials: list[Trial] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    done: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # (workload, variant) -> what the tool did in its window
    complete: set[tuple[str, str]] = field(default_factory=set)


class Laboratory:
    """Two private servers with the same settings and tables. The second runs only for the variants that need a server of their own."""

    def __init__(self, bin_dir: Path, settings: dict[str, object], scale: int, clients: int, say: Callable[[str], None]) -> None:
        self.bin_dir, self.settings, self.scale, self.clients, self.say = bin_dir, settings, scale, clients, say
        self._stack = ExitStack()
        self.second: PrivateServer | None = None
        self._second_runs = False
        self._preload = ""

    def __enter__(self) -> Laboratory:
        with ExitStack() as undo:
            undo.push(self._stack)
            self.main = self._new_server()
            self.work = self.main.base_dir / "bench"
            self.work.mkdir()
            undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def server_settings(self) -> list[list[str]]:
        """What differs from the defaults of PostgreSQL, as the main server sees it."""
        query = (
            "select name, current_setting(name), source from pg_settings"
            " where source not in ('default', 'override') and name <> 'unix_socket_directories' order by name"
        )
        return [list(row) for row in fetch(self.main, query)]

    def extension_version(self, name: str) -> str | None:
        """The version that could be installed; None when the host does not have it."""
        found = fetch(self.main, f"select default_version from pg_available_extensions where name = '{name}'")
        return found[0][0] if found else None

    def compare(self, variant: Variant, workload: Workload, pairs: int, trial_s: int, rng: random.Random, results: Results) -> None:
        """Alternates bare and variant in the order of paired.trial_order and appends the trials."""
        with ExitStack() as stack:
            self._rest(variant)
            off = self._load(self.main, workload, stack)
            if variant.own_server:
                off.pause()  # so that the second server warms up alone
                server = self._second(variant.preload)
                on = self._load(server, workload, stack)
            else:
                server, on = self.main, off
            tool = self._start(variant, server, stack)
            active = on
            for number, with_variant in enumerate(trial_order(pairs, rng)):
                if off is not on:
                    self._switch_load(active, on if with_variant else off)
                    active = on if with_variant else off
                if with_variant:
                    tool.resume()
                else:
                    tool.pause()
                results.trials.append(self._trial(variant, workload, tool, active, number, with_variant, trial_s))
                tool.check()
            tool.resume()
            tool.stop()
        self._discard_work()

    def cost(self, variant: Variant, workload: Workload, window_s: float, results: Results) -> None:
        """Runs the tool without a break under the load and reads its CPU in slices; what it did comes from the tool itself."""
        with ExitStack() as stack:
            self._rest(variant)
            server = self._second(variant.preload) if variant.own_server else self.main
            load = self._load(server, workload, stack)
            tool = self._start(variant, server, stack)
            self._wait(load, WARM_UP)  # past the first seconds of the tool, where it sees every session for the first time
            from_ns, steal = time.monotonic_ns(), machine_cpu()
            before, before_ns = tool.cpu(), from_ns
            while before_ns < from_ns + window_s * 1e9:
                time.sleep(min(SLICE_S, max(0.0, (from_ns + window_s * 1e9 - time.monotonic_ns()) / 1e9)))
                now, now_ns = tool.cpu(), time.monotonic_ns()
                percent = {part: 100 * (now[part] - before[part]) / (now_ns - before_ns) for part in now}
                results.slices.append(Slice(workload.name, variant.name, before_ns, now_ns, percent))
                before, before_ns = now, now_ns
            stolen = steal_share(steal)
            tool.check()
            tps = self._wait(load, 1)
            tool.stop()
            results.done[workload.name, variant.name] = {
                "window_s": (before_ns - from_ns) / 1e9,
                "steal_share": stolen,
                "tps_at_end": tps,
                **tool.done(from_ns, before_ns),
            }
        self._discard_work()

    def _new_server(self) -> PrivateServer:
        server = self._stack.enter_context(PrivateServer(self.bin_dir, settings=self.settings))
        fill(server, self.scale)
        return server

    def _second(self, preload: str) -> PrivateServer:
        """The second server, made when it is first needed, restarted when it must have something else preloaded."""
        if self.second is None:
            self.say("  making the second server")
            self.second = self._new_server()
            self._second_runs = True
        if preload != self._preload:
            if not self._second_runs:
                self.second.start()
            # Set to '', it is a list with one library that has no name.
            change = f"set shared_preload_libraries = '{preload}'" if preload else "reset shared_preload_libraries"
            execute(self.second, f"alter system {change}")
            self.second.stop()
            self._second_runs, self._preload = False, preload
        if not self._second_runs:
            self.second.start()
            self._second_runs = True
        return self.second

    def _rest(self, variant: Variant) -> None:
        """The second server does not run where it is not measured: a collector in it would work all the time."""
        if self.second is not None and self._second_runs and not variant.own_server:
            self.second.stop()
            self._second_runs = False

    def _load(self, server: PrivateServer, workload: Workload, stack: ExitStack) -> Load:
        """A load that has run for a few seconds on refreshed tables."""
        refresh(server)
        load = stack.enter_context(Load(server, workload, self.clients))
        self._wait(load, WARM_UP)
        return load

    def _start(self, variant: Variant, server: PrivateServer, stack: ExitStack) -> Tool:
        tool = variant.make()
        stack.callback(tool.abandon)
        tool.start(server, self.work)
        return tool

    def _wait(self, load: Load, lines: int) -> float:
        """Waits for some progress lines from now; TPS of the last one."""
        load.drain()
        return [load.next_progress().tps for _ in range(lines)][-1]

    def _switch_load(self, old: Load, new: Load) -> None:
        if old is not new:
            old.pause()
        if new.paused:
            new.resume()

    def _trial(
        self, variant: Variant, workload: Workload, tool: Tool, load: Load, number: int, on: bool, trial_s: int
    ) -> Trial:
        """Right after the switch. What is read at the end of the last stretch that does not count begins the ones that do."""
        settled_s = time.time() + SETTLE_S
        load.drain()
        while True:
            machine, used, since_ns = machine_cpu(), tool.cpu()["total"], time.monotonic_ns()
            progress = load.next_progress()
            if progress.from_s >= settled_s:
                break
        counted = [progress] + [load.next_progress() for _ in range(trial_s - 2)]
        percent = 100 * (tool.cpu()["total"] - used) / (time.monotonic_ns() - since_ns)
        from_s, to_s = counted[0].from_s, counted[-1].to_s
        transactions = sum(p.transactions for p in counted)
        return Trial(workload.name, variant.name, number // 2, number, on, from_s, to_s, transactions, steal_share(machine), percent)

    def _discard_work(self) -> None:
        shutil.rmtree(self.work)
        self.work.mkdir()
