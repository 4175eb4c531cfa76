"""A capture of a host alone, with known processes and known seconds: for the tests of host findings and views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from findings_synthetic import SyntheticCapture
from leadline.capture.manifest import Manifest, ProbeState, Target

GiB = 1 << 30


class HostCapture(SyntheticCapture):
    """20 s of a host with 4 CPUs unless said otherwise, read once a second. Processes are named by their process_id."""

    def __init__(self, tmp_path: Path, seconds: float = 20, cpu_count: int = 4) -> None:
        super().__init__(tmp_path, seconds=seconds, cpu_count=cpu_count)
        self._processes = 0
        self.fact("cpu.count", cpu_count)
        for second in range(int(seconds) + 1):
            self.add("clock", ts=self.ts(second), realtime_ns=self.wall_us(second) * 1000, boottime_ns=self.ts(second), uncertainty_ns=100)

    def process(self, comm: str, pid: int | None = None, ppid: int = 1, **columns: Any) -> int:
        """A process that was there before the window. Returns its process_id."""
        self._processes += 1
        given = {"pid": pid or 7000 + self._processes, "ppid": ppid, "comm": comm, "cgroup": "/"} | columns
        self.add("process", process_id=self._processes, **given)
        return self._processes

    def use(self, process: int, from_s: float = 0, to_s: float | None = None, **per_second: Any) -> None:
        """process_delta, a row a second; the values are what the process used in each."""
        given = {"state": "R", "threads": 1, "cpu_queue_ns": 0} | per_second
        self.each_second("process_delta", from_s, to_s, process_id=process, **given)

    def each_second(self, table: str, from_s: float = 0, to_s: float | None = None, **columns: Any) -> None:
        for second in range(int(from_s) + 1, int(self.seconds if to_s is None else to_s) + 1):
            self.add(table, ts=self.ts(second), dt_ns=10**9, **columns)

    def quiet(self) -> None:
        """What every idle host shows: some processes that do little, a disk that is written now and then, a few short processes."""
        ms = 1_000_000
        self.use(self.process("systemd"), cpu_run_ns=2 * ms, cpu_queue_ns=100_000, state="S", rss_bytes=12 << 20)
        self.use(self.process("agent", 900), cpu_run_ns=20 * ms, cpu_queue_ns=ms, state="S", write_bytes=8192, rss_bytes=80 << 20)
        self.each_second("device_delta", device="vda", writes=12, write_bytes=100_000, write_ns=9 * ms, busy_ns=15 * ms, queue_ns=20 * ms)
        self.each_second("net_delta", interface="eth0", rx_bytes=10_000, rx_packets=50, tx_bytes=10_000, tx_packets=50)
        short = {"processes": 2, "unseen": 2, "cpu_run_ns": 2 * ms, "lifetime_ns": 4 * ms}
        self.each_second("process_exit", ppid=900, parent_comm="agent", comm="df", **short)
        unlimited = {"cpu_periods": 0, "throttled_periods": 0, "throttled_ns": 0, "memory_limit_hits": 0}
        self.each_second("cgroup_delta", cgroup="/system.slice", cpu_ns=20 * ms, **unlimited)
        for metric, per_s in (
            ("stat.processes", 2), ("tcp.segments_out", 500), ("tcp.segments_retransmitted", 0.2), ("tcp.timeouts", 0.1),
            ("pressure.memory_some_ns", 1e5), ("vmstat.allocstall_normal", 0), ("vmstat.pswpin", 0), ("vmstat.pswpout", 0),
        ):  # fmt: skip
            self.counter(metric, 1000, per_s)
        self.dirty(1000, 0)

    def dirty(self, dirty: int, writeback: int) -> None:
        """Pages of the page cache that must be written, on a host that allows 800,000 and begins to write at 400,000."""
        limits = {"nr_dirty_threshold": 800_000, "nr_dirty_background_threshold": 400_000}
        for metric, value in ({"nr_dirty": dirty, "nr_writeback": writeback} | limits).items():
            self.counter(f"vmstat.{metric}", value)

    def _insert_ticks(self, db: Any) -> None:
        """A host has no passes over sessions."""

    def manifest(self, tables: dict[str, int]) -> Manifest:
        made = super().manifest(tables)
        made.target = Target("host", "synthetic", cpu_count=self.cpu_count)
        made.probes = {"host": ProbeState(tier="procfs", rate_hz=1.0), "self": ProbeState()}
        return made
