"""Findings over a capture of a host alone: each planted defect gives its row with the process and the seconds, a quiet host none."""

from __future__ import annotations

from pathlib import Path

import pytest
from host_synthetic import GiB, HostCapture
from leadline.findings import Evaluation, Finding, evaluate

MS = 1_000_000


def evaluated(cap: HostCapture) -> Evaluation:
    with cap.open() as capture:
        return evaluate(capture)


def only(cap: HostCapture, rule: str) -> Finding:
    """The finding of a rule, which is the only one but for `info`."""
    found = [f for f in evaluated(cap).findings if f.severity != "info"]
    assert [f.id for f in found] == [rule]
    return found[0]


def quiet(tmp_path: Path, **options: float) -> HostCapture:
    cap = HostCapture(tmp_path, **options)  # type: ignore[arg-type]
    cap.quiet()
    return cap


def test_a_quiet_host_has_no_finding(tmp_path: Path) -> None:
    result = evaluated(quiet(tmp_path))
    assert result.findings == []
    pressure = {"RUNQ-PRESSURE", "MEMORY-PRESSURE", "DEVICE-SATURATED", "DIRTY-THROTTLED", "RECLAIM-STALL", "SWAP"}
    assert pressure | {"TCP-RETRANSMITS", "PROCESS-CHURN", "CGROUP-THROTTLED"} <= set(result.clean)
    assert {rule for rule, _ in result.not_applicable} >= {"BLOCK-CHAIN", "TOP-WAIT"}


def test_eight_spinners_on_two_cpus(tmp_path: Path) -> None:
    cap = quiet(tmp_path, cpu_count=2)
    cap.use(cap.process("spin", 4711), threads=8, cpu_run_ns=1950 * MS, cpu_queue_ns=6000 * MS)
    found = only(cap, "RUNQ-PRESSURE")
    assert found.severity == "high" and found.cost_s == pytest.approx(20 * 6, rel=0.01)
    assert "spin (pid 4711) 39.0 s" in found.statement and "120.0 s for one of 2 CPUs" in found.statement
    assert found.cost_base == "CPU" and found.share_of_db_time is None


def test_busy_cpus_without_a_queue_are_no_finding(tmp_path: Path) -> None:
    cap = quiet(tmp_path, cpu_count=2)
    for _ in range(2):
        cap.use(cap.process("worker"), cpu_run_ns=990 * MS, cpu_queue_ns=10 * MS)
    assert evaluated(cap).findings == []


def test_dd_saturates_a_device(tmp_path: Path) -> None:
    cap = quiet(tmp_path)
    took = {"read_ns": 985 * MS, "busy_ns": 985 * MS, "queue_ns": 990 * MS}
    cap.each_second("device_delta", 5, 15, device="sdb", reads=120, read_bytes=120 << 20, **took)
    cap.use(cap.process("dd", 4711), 5, 15, state="D", read_bytes=120 << 20, cpu_run_ns=50 * MS)
    found = only(cap, "DEVICE-SATURATED")
    assert found.subject == "device sdb" and found.cost_s == pytest.approx(9.9)
    assert "by dd (pid 4711) 1200 MB, waited 10.0 s" in found.statement


def test_one_reader_that_works_between_its_requests_keeps_a_device_busy(tmp_path: Path) -> None:
    cap = quiet(tmp_path)
    cap.each_second("device_delta", device="sdb", reads=700, read_bytes=700 << 20, read_ns=700 * MS, busy_ns=700 * MS, queue_ns=700 * MS)
    cap.use(cap.process("dd", 4711), read_bytes=700 << 20, cpu_run_ns=300 * MS)
    found = only(cap, "DEVICE-SATURATED")
    assert found.severity == "low"
    assert "sdb was busy 70 % of the time in 20 s of 20 s" in found.statement and "by dd (pid 4711)" in found.statement


def test_a_device_with_many_short_requests_in_parallel_is_busy_and_fast(tmp_path: Path) -> None:
    """Half the time a request is there: whatever else, there is room."""
    cap = quiet(tmp_path)
    cap.each_second("device_delta", device="nvme0n1", reads=9000, read_bytes=1 << 27, read_ns=700 * MS, busy_ns=500 * MS, queue_ns=700 * MS)
    assert evaluated(cap).findings == []


def test_memory_hog_in_a_control_group(tmp_path: Path) -> None:
    cap = quiet(tmp_path)
    cap.use(cap.process("hog", 4711, cgroup="/jobs"), majflt=900, rss_bytes=60 << 20, cpu_run_ns=300 * MS)
    cap.use(cap.process("big", 4712), rss_bytes=8 * GiB, cpu_run_ns=MS)
    cap.each_second("cgroup_delta", cgroup="/jobs", memory_limit_hits=400, oom_kills=0, memory_bytes=64 << 20, memory_max_bytes=64 << 20)
    found = only(cap, "MEMORY-PRESSURE")
    assert found.subject == "memory of control group /jobs"
    assert "8000 times" in found.statement and "largest: hog (pid 4711) 60 MB" in found.statement and "big" not in found.statement


def test_a_full_group_is_not_the_host(tmp_path: Path) -> None:
    """Processes stood still, but only the group had to free memory: neither the host nor a process outside is named."""
    cap = HostCapture(tmp_path)
    cap.counter("vmstat.allocstall_normal", 1000)
    cap.use(cap.process("hog", 4711, cgroup="/jobs/batch"), rss_bytes=60 << 20, cpu_run_ns=300 * MS)
    cap.use(cap.process("big", 4712), rss_bytes=8 * GiB, cpu_run_ns=MS)
    cap.counter("pressure.memory_some_ns", 0, 3e8)
    for cgroup, most in (("/", None), ("/jobs", 64 << 20)):  # a few hits, far fewer than the threshold
        cap.each_second("cgroup_delta", cgroup=cgroup, memory_limit_hits=2, memory_bytes=64 << 20, memory_max_bytes=most)
    found = only(cap, "MEMORY-PRESSURE")
    assert (found.subject, found.severity, found.cost_s) == ("memory of control group /jobs", "high", pytest.approx(6, rel=0.01))
    assert "largest: hog (pid 4711)" in found.statement and "big" not in found.statement


def test_a_host_without_memory_is_named_beside_a_full_group(tmp_path: Path) -> None:
    cap = HostCapture(tmp_path)
    cap.counter("vmstat.allocstall_normal", 1000)
    cap.use(cap.process("big", 4712), rss_bytes=8 * GiB, cpu_run_ns=MS)
    cap.counter("pressure.memory_some_ns", 0, 3e8)
    cap.counter("vmstat.pgscan_kswapd", 0, 5000)
    cap.each_second("cgroup_delta", cgroup="/jobs", memory_limit_hits=2, memory_bytes=64 << 20, memory_max_bytes=64 << 20)
    assert only(cap, "MEMORY-PRESSURE").subject == "memory of the host"


@pytest.mark.parametrize(("groups", "own_ns", "cost_s"), [(1, None, 0.4), (2, None, None), (2, 15 * MS, 0.3)])
def test_what_a_limit_costs(groups: int, own_ns: int | None, cost_s: float | None, tmp_path: Path) -> None:
    """Without a time of its own (groups of version 1) a group has that of the host, if no other reached its limit."""
    cap = HostCapture(tmp_path)
    cap.counter("pressure.memory_some_ns", 0, 20 * MS)
    for group in range(groups):
        cap.each_second("cgroup_delta", cgroup=f"/jobs{group}", memory_limit_hits=400, oom_kills=0, memory_pressure_ns=own_ns)
    found = [f for f in evaluated(cap).findings if f.id == "MEMORY-PRESSURE"]
    assert [f.cost_s for f in found] == [cost_s and pytest.approx(cost_s, rel=0.01)] * groups
    assert [("of the host stood still for memory during 0.4 s" in f.statement) for f in found] == [own_ns is None] * groups


def test_the_whole_host_stands_still_for_memory(tmp_path: Path) -> None:
    cap = HostCapture(tmp_path)
    cap.use(cap.process("java", 4711), rss_bytes=30 * GiB, cpu_run_ns=MS)
    cap.counter("pressure.memory_some_ns", 0, 3e8)
    cap.counter("pressure.memory_full_ns", 0, 1e8)
    found = only(cap, "MEMORY-PRESSURE")
    assert found.cost_s == pytest.approx(6, rel=0.01) and found.severity == "high"
    assert "java (pid 4711) 30720 MB" in found.statement


def test_short_processes_are_found_with_their_parent(tmp_path: Path) -> None:
    cap = quiet(tmp_path)
    cap.process("poll.sh", 4711)
    cap.each_second(
        "process_exit", ppid=4711, parent_process_id=3, parent_comm="poll.sh", comm="true", processes=500, unseen=499,
        cpu_run_ns=400 * MS, cpu_queue_ns=0, lifetime_ns=600 * MS,
    )  # fmt: skip
    found = only(cap, "PROCESS-CHURN")
    assert found.subject == "short processes of poll.sh" and found.cost_s == pytest.approx(8) and found.severity == "high"
    assert "poll.sh (pid 4711) started 10000 processes that ended (500 a second), 9980 of them between two readings" in found.statement
    assert "true 10000" in found.statement


def test_each_parent_that_starts_enough_stands_for_itself(tmp_path: Path) -> None:
    """Of three servers two start many processes. Of many shells none does, but all together do."""
    cap = quiet(tmp_path)
    started = {(4711, "postgres"): 300, (4712, "postgres"): 100, (4713, "postgres"): 10, **{(5000 + n, "sh"): 10 for n in range(20)}}
    for (pid, parent), processes in started.items():
        used = {"processes": processes, "unseen": 0, "cpu_run_ns": processes * MS, "lifetime_ns": MS}
        cap.each_second("process_exit", ppid=pid, parent_comm=parent, comm=parent, **used)
    found = {f.subject: f for f in evaluated(cap).findings if f.id == "PROCESS-CHURN"}
    assert {subject: f.cost_s for subject, f in found.items()} == {
        "short processes of postgres (pid 4711)": pytest.approx(6),
        "short processes of postgres (pid 4712)": pytest.approx(2),
        "short processes of sh": pytest.approx(4),
    }
    assert "sh (20 processes of this name) started 4000 processes" in found["short processes of sh"].statement


def test_without_the_ends_of_processes_only_their_number_is_told(tmp_path: Path) -> None:
    cap = HostCapture(tmp_path)
    cap.counter("stat.processes", 0, 500)
    found = only(cap, "PROCESS-CHURN")
    assert (found.severity, found.cost_s) == ("low", None) and "could not be read" in found.statement


def test_retransmits_have_a_lower_bound_in_seconds(tmp_path: Path) -> None:
    cap = HostCapture(tmp_path)
    for metric, per_s in (("segments_out", 1000), ("segments_retransmitted", 30), ("timeouts", 5), ("syn_retransmits", 0)):
        cap.counter(f"tcp.{metric}", 7, per_s)
    found = only(cap, "TCP-RETRANSMITS")
    assert found.cost_s == pytest.approx(5 * 20 * 0.2) and "(3.0 %)" in found.statement


def test_writers_are_held_back_at_the_limit_of_dirty_pages(tmp_path: Path) -> None:
    cap = HostCapture(tmp_path)
    cap.dirty(650_000, 20_000)
    cap.use(cap.process("dd", 4711), 4, 10, state="D", wchan="balance_dirty_pages_ratelimited_flags", write_bytes=50 << 20)
    found = only(cap, "DIRTY-THROTTLED")
    assert found.cost_s == pytest.approx(6) and found.severity == "high"
    assert "dd (pid 4711) 300 MB" in found.statement and "held back for 6.0 s (6 sightings)" in found.statement


def test_a_throttled_group_names_who_used_its_quota(tmp_path: Path) -> None:
    cap = quiet(tmp_path)
    cap.use(cap.process("java", 4711, cgroup="/pod"), cpu_run_ns=500 * MS)
    throttled = {"cpu_periods": 10, "throttled_periods": 8, "throttled_ns": 700 * MS}
    cap.each_second("cgroup_delta", cgroup="/pod", cpu_ns=500 * MS, cpu_max_milli=500, **throttled)
    found = only(cap, "CGROUP-THROTTLED")
    assert found.cost_s == pytest.approx(14) and "160 of 200 periods" in found.statement and "java (pid 4711) 10.0 s" in found.statement


def test_what_a_process_used_counts_once(tmp_path: Path) -> None:
    """Intervals of a process, and its rest told at its end."""
    cap = HostCapture(tmp_path)
    cap.use(cap.process("job", 4711), 0, 5, cpu_run_ns=100 * MS)
    cap.add("process_exit", ts=cap.ts(6), dt_ns=10**9, comm="job", processes=1, unseen=0, cpu_run_ns=40 * MS)
    with cap.open() as capture:
        assert capture.scalar("select sum(cpu_ns) from process_use where comm = 'job'") == 540 * MS


def cpus(cap: HostCapture, **seconds_per_s: float) -> HostCapture:
    """CPU time of the host by kind; what is not named is 0."""
    for kind in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"):
        cap.counter(f"stat.cpu_{kind}_ns", 10**12, seconds_per_s.get(kind, 0) * 1e9)
    return cap


def test_stolen_cpu_time(tmp_path: Path) -> None:
    found = only(cpus(quiet(tmp_path), user=1.5, system=0.5, idle=1.5, steal=0.5), "CPU-STEAL")
    assert found.severity == "high" and found.cost_s == pytest.approx(10)
    assert "took 10.0 s of the 50.0 CPU seconds that this host wanted in 20 s (20 %)" in found.statement


def test_a_little_stolen_time_is_no_finding(tmp_path: Path) -> None:
    assert evaluated(cpus(quiet(tmp_path), user=1.5, system=0.5, idle=1.95, steal=0.05)).findings == []


def test_interrupts_that_take_much_time(tmp_path: Path) -> None:
    cap = cpus(quiet(tmp_path), user=1.0, system=0.6, idle=1.9, softirq=0.4, irq=0.1)
    cap.counter("softirq.NET_RX", 5, 90_000)
    cap.counter("softirq.TIMER", 5, 500)
    found = only(cap, "INTERRUPT-LOAD")
    assert found.severity == "medium" and found.cost_s == pytest.approx(10)
    assert "Interrupts took 10.0 s of the 42.0 CPU seconds" in found.statement
    assert "NET_RX 90000 a second, TIMER 500 a second" in found.statement


def test_ordinary_interrupts_are_no_finding(tmp_path: Path) -> None:
    assert evaluated(cpus(quiet(tmp_path), user=1.4, system=0.6, idle=1.8, softirq=0.2)).findings == []


@pytest.mark.parametrize(
    ("governor", "khz", "times"), [("powersave", 1_200_000, 1), ("powersave", 2_900_000, 0), ("performance", 1_200_000, 0)]
)
def test_slow_cpus(tmp_path: Path, governor: str, khz: int, times: int) -> None:
    cap = quiet(tmp_path)
    for name, value in (("governor", governor), ("frequency_khz", khz), ("max_frequency_khz", 3_000_000)):
        cap.add("host_fact", name=f"cpu.{name}", value=str(value))
    found = evaluated(cap).findings
    said = [f.statement for f in found if f.id == "CPU-FREQUENCY"]
    assert said == [f"The frequency governor is powersave, and the first CPU ran at {khz / 1e6:.2f} of at most 3.00 GHz"] * times
