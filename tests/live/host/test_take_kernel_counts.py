"""take --kernel of a real server against who else counts: perf its calls, the scheduler its run time, /proc/diskstats its requests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bpf import needs_bpf, needs_perf
from conftest import Server, fetched_or_skip, no_oracle, wait_until
from host_changes import loop_device
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer
from leadline.engines.postgres.server.user import server_user
from leadline.probes.take import take
from leadline.progress import Silent
from leadline.views import where
from leadline.views.threads import report
from test_trace import disk_counters, left_out_ns

ROUNDS = 4_000
EPOLL_WAIT = "232"
COUNTED = (
    "epoll_wait", "recvfrom", "sendto", "pread64", "pwrite64", "lseek", "fdatasync", "openat", "close", "kill", "futex", "newfstatat",
)  # fmt: skip


@dataclass
class Between(Silent):
    """Does something while the capture is taken; knows from when to when, in ns on CLOCK_MONOTONIC."""

    work: Callable[[], None]
    window: list[int] = field(default_factory=list)

    def update(self, elapsed_s: float, total_s: float, seen: str) -> None:
        if not self.window:
            self.window.append(time.monotonic_ns())
            self.work()
            self.window.append(time.monotonic_ns())


def rests(pid: int) -> bool:
    """It waits for its client."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] == EPOLL_WAIT


class Perf:
    """perf stat of one process; counts between go() and stop() only, and says when it does."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.out = folder / "perf.csv"
        to_perf, self.said = os.pipe(), os.pipe()
        self.ask = to_perf[1]
        events = ["raw_syscalls:sys_exit", *(f"syscalls:sys_exit_{name}" for name in COUNTED)]
        control = f"fd:{to_perf[0]},{self.said[1]}"
        command = ["perf", "stat", "-x", ";", "-o", self.out, "--delay=-1", "--control", control, "-p", str(pid), "-e", ",".join(events)]
        self.process = subprocess.Popen(command, pass_fds=(to_perf[0], self.said[1]), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _tell(self, what: bytes) -> None:
        os.write(self.ask, what)
        assert os.read(self.said[0], 16).startswith(b"ack\n")

    def go(self) -> None:
        self._tell(b"enable\n")

    def stop(self) -> dict[str, int]:
        self._tell(b"disable\n")
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        rows = [line.split(";") for line in self.out.read_text().splitlines() if ";" in line]
        return {row[2].removeprefix("syscalls:sys_exit_"): int(row[0]) for row in rows}


@needs_bpf
@needs_perf
def test_calls_of_a_session_are_those_that_perf_counts(servers: Callable[[int], Server], tmp_path: Path) -> None:
    if shutil.which("perf") is None:
        no_oracle("no perf")
    server = servers(18)
    counted: dict[str, int] = {}
    with server.connect() as session:
        session.execute("create table counted_calls (n int)")
        [pid] = session.execute("select pg_backend_pid()").fetchone()
        perf = Perf(pid, tmp_path)

        def work() -> None:
            perf.go()
            wait_until(lambda: rests(pid), what="a session that rests")
            for i in range(ROUNDS):
                session.execute("select %s", (i,))
            for _ in range(50):
                session.execute("insert into counted_calls select generate_series(1, 1000)")  # grows the table, and flushes the log
            wait_until(lambda: rests(pid), what="a session that rests")
            counted.update(perf.stop())

        between = Between(work)
        stat = Path(f"/proc/{pid}/schedstat")
        left_out, before = left_out_ns(), int(stat.read_text().split()[0])
        path = take(dsn=server.dsn, for_s=3, out=tmp_path / "c.leadline", probes=["kernel"], progress=between)
        by_scheduler, left_out = int(stat.read_text().split()[0]) - before, left_out_ns() - left_out + 10_000_000
        session.execute("drop table counted_calls")
    with closing(open_capture(path)) as capture:
        begin, end = between.window
        rows = capture.rows(f"select call, count(*) as n from call where pid = {pid} and ts between {begin} and {end} group by call")
        found = report(capture, pid)
        lost = capture.manifest.probe("kernel").loss["records_lost"]
    traced = {row["call"]: row["n"] for row in rows}
    assert lost == 0
    assert {name: traced.get(name, 0) for name in COUNTED} == {name: counted[name] for name in COUNTED}
    assert sum(traced.values()) == counted["raw_syscalls:sys_exit"] > 2 * ROUNDS
    assert found.closes_ns == 0
    for call in found.calls:
        assert call["sleep_ns"] + call["runq_ns"] + call["cpu_ns"] + call["unknown_ns"] == call["elapsed_ns"], call
    ran, unknown = found.time["user_ns"] + found.time["system_ns"], found.time["unknown_ns"]
    allowed = next(check["allowed_ns"] for check in found.checks if check["what"] == "on a CPU")
    assert abs(ran - by_scheduler) <= allowed + left_out, (ran, by_scheduler, allowed, left_out, unknown)


@contextmanager
def file_system(folder: Path) -> Iterator[tuple[Path, str]]:
    """A file system that nobody else uses, and its device."""
    disk = folder / "disk"
    disk.write_bytes(bytes(64 << 20))
    with loop_device(disk) as device:
        # All at once: otherwise the kernel writes the rest some time after it is mounted.
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device], check=True)
        point = Path(tempfile.mkdtemp(prefix="leadline-disk-"))  # pytest's own folders are closed to the user of the server
        point.chmod(0o755)
        subprocess.run(["mount", device, point], check=True)
        try:
            yield point, device
        finally:
            subprocess.run(["umount", point], check=True)
            point.rmdir()


@needs_bpf
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file system")
def test_requests_of_a_server_are_those_that_diskstats_counts(tmp_path: Path) -> None:
    """Its whole cluster lies on a disk of its own. Before and after what is counted, all is written and the disk rests."""
    if shutil.which("mkfs.ext4") is None:
        no_oracle("no mkfs.ext4")
    binaries = fetched_or_skip(18)
    with file_system(tmp_path) as (point, device):
        data = point / "data"
        data.mkdir(mode=0o700)
        os.chown(data, server_user().uid, server_user().gid)
        settings: dict[str, Any] = {"autovacuum": False, "shared_buffers": "512kB", "max_wal_size": "64MB"}
        with PrivateServer(binaries.bin_dir, data, settings) as server, psycopg.connect(server.dsn, autocommit=True) as session:
            session.execute("create table rows_to_read (n int, filler text) with (fillfactor = 50)")
            [table] = session.execute("select pg_relation_filepath('rows_to_read')").fetchone() or ()
            counters: list[dict[str, tuple[int, int]]] = []
            moments: list[int] = []

            def rest() -> None:
                session.execute("checkpoint")
                subprocess.run(["sync", "-f", point], check=True)
                counters.append(disk_counters(device))
                moments.append(time.monotonic_ns())

            def work() -> None:
                rest()
                for _ in range(40):
                    session.execute("insert into rows_to_read select i, repeat('x', 200) from generate_series(1, 100) i")
                session.execute("checkpoint")
                file = os.open(data / table, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)  # so that it is read from the disk
                os.close(file)
                session.execute("select count(*) from rows_to_read").fetchall()
                rest()

            path = take(dsn=server.dsn, for_s=3, out=tmp_path / "d.leadline", probes=["kernel"], progress=Between(work))
    with closing(open_capture(path)) as capture:
        rows = capture.rows(
            f"""
            select operation, count(*) as n, sum(bytes)::bigint as bytes from block_io
            where device = '{Path(device).name}' and ts between {moments[0]} and {moments[1]} group by operation
            """
        )
        assert capture.manifest.probe("kernel").loss["requests_lost"] == 0
    counted = {name: (counters[1][name][0] - counters[0][name][0], counters[1][name][1] - counters[0][name][1]) for name in counters[0]}
    assert {row["operation"]: (row["n"], row["bytes"]) for row in rows} == {name: both for name, both in counted.items() if both != (0, 0)}
    assert counted["read"][0] > 0 and counted["write"][0] > 40 and counted["flush"][0] > 40


@needs_bpf
def test_the_run_queue_of_sessions_is_what_the_trace_counts(servers: Callable[[int], Server], tmp_path: Path) -> None:
    """More sessions than CPUs: most of their wait for a CPU comes while the server still calls them idle."""
    server, clients = servers(16), 16
    server.pgbench_init()
    connected = "select count(*) = %s from pg_stat_activity where application_name = 'pgbench'"
    with server.pgbench("-S", "-c", clients, "-T", 120):
        wait_until(lambda: server.sql(connected, [clients])[0][0], what="clients that are all connected")
        path = take(dsn=server.dsn, for_s=3, out=tmp_path / "q.leadline", probes=["sessions", "kernel"], kernel_detail="sums")
    with closing(open_capture(path, hold=True)) as capture:
        split, window = where.cpu_split(capture), where.window(capture)
        clients_only = "select pid from session where backend_type = 'client backend' and application_name = 'pgbench'"
        counted = capture.rows(f"select sum(cpu_queue_ns) as queue, sum(dt_ns) as time from session_delta where pid in ({clients_only})")[0]
        traced = capture.rows(
            f"""
            select sum(runq_wake_ns + runq_preempt_ns) as queue, sum(traced_ns) as time
            from thread_time where thread_id in (select thread_id from thread_name where tid in ({clients_only}))
            """
        )[0]
    assert counted["time"] / 1e9 == pytest.approx(clients * window.window_s, rel=0.1)
    assert counted["queue"] / counted["time"] == pytest.approx(traced["queue"] / traced["time"], rel=0.05)
    assert split.queue_s >= counted["queue"] / 1e9 * 0.999
    assert split.after_wake_s and split.after_preempt_s
    assert split.after_wake_s + split.after_preempt_s == pytest.approx(split.queue_s)
    assert window.active_s < window.db_time_s
