"""Threads of a trace: what they did with their time, call by call. One set of numbers for the terminal, JSON and later views.

Times are seconds, shares are of the traced time. A thread's parts sum to its traced time; a call's sleep, run queue and CPU to
its elapsed time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leadline.capture.reader import Capture
from leadline.errors import LeadlineError

# Columns of thread_time whose sum is traced_ns, with the name of each for people.
PARTS = (
    ("user_ns", "user"),
    ("system_ns", "system"),
    ("runq_preempt_ns", "run queue, preempted"),
    ("runq_wake_ns", "run queue, woken"),
    ("sleep_ns", "sleep"),
    ("sleep_d_ns", "sleep, uninterruptible"),
    ("stopped_ns", "stopped"),
    ("unknown_ns", "unknown (an event was missed)"),
)
_SUMS = ", ".join(f"sum({name})::bigint as {name}" for name, _ in PARTS)
_COUNTS = (
    "calls", "failed_calls", "sleeps", "preemptions", "migrations", "node_moves", "minor_faults", "major_faults", "lost_records",
    "interrupt_ns",
)  # fmt: skip
_STATS = ("traced_ns", "stat_run_ns", "stat_runq_ns", "stat_slices")
_ALL = _SUMS + "".join(f", sum({name})::bigint as {name}" for name in (*_COUNTS, *_STATS))


def thread_list(capture: Capture) -> list[dict[str, Any]]:
    """Every traced thread with its sums, in ns; those that did most come first."""
    _need(capture)
    return capture.rows(
        f"""
        select n.pid, n.tid, n.comm, bool_or(t.exited) as exited, arg_max(t.policy, t.ts) as policy,
               arg_max(t.priority, t.ts) as priority, {_ALL}
        from thread_time t join thread_name n using (thread_id) group by n.pid, n.tid, n.comm, t.thread_id
        order by sum(user_ns + system_ns + runq_preempt_ns + runq_wake_ns) desc, sum(calls) desc, n.pid, n.tid
        """
    )


@dataclass(frozen=True)
class Report:
    """What the threads of one process, or one thread, did. Rows are in the order of their cost."""

    pid: int
    threads: list[dict[str, Any]]  # tid, comm
    time: dict[str, int]  # the sums of thread_time
    # call, count, per_s, failed, elapsed_ns, p50_ns, p99_ns, max_ns, bytes, sleep_ns, sleeps, runq_ns, cpu_ns, unknown_ns, errors, waits;
    # bytes: read or written, None of calls that do neither and of calls that were summed
    calls: list[dict[str, Any]]
    waits: list[dict[str, Any]]  # wait_function, call, sleeps, sleep_ns, max_ns
    # call, error, count, elapsed_ns, frames (the most frequent stack, innermost first), lines (of source, where known), samples, of_samples
    failures: list[dict[str, Any]]
    wakers: list[dict[str, Any]]  # tid, comm, wakings, sleep_ns
    woken: list[dict[str, Any]]  # threads that these woke
    files: list[dict[str, Any]]  # file, kind, calls, failed, read_bytes, written_bytes, elapsed_ns, sleep_ns, p50_ns, p99_ns, max_ns
    disks: list[dict[str, Any]]  # device, operation, requests, bytes, queue_ns, service_ns, p99_ns, max_ns (of both together)
    window_s: float
    last_cpu: int | None  # of the thread that left a CPU last
    policies: list[dict[str, Any]]  # policy, priority (of fifo and rr; else the nice value), threads; as they were at the end
    numa_nodes: int | None  # of the host
    checks: list[dict[str, Any]]  # what, trace_ns, kernel_ns, allowed_ns, holds: against the scheduler's own counters

    @property
    def closes_ns(self) -> int:
        """Traced time less its parts: 0 when the accounting closes."""
        return self.time["traced_ns"] - sum(self.time[name] for name, _ in PARTS)


def report(capture: Capture, pid: int) -> Report:
    """The report of a process, or of a thread when `pid` is one. Raises LeadlineError('not_found')."""
    _need(capture)
    threads = capture.rows(
        f"select thread_id, tid, pid, comm from thread_name where pid = {pid} or tid = {pid} order by pid <> {pid}, ts_from, thread_id"
    )
    if not threads:
        known = capture.rows("select distinct pid from thread_name order by pid limit 12")
        hint = "traced processes: " + ", ".join(str(row["pid"]) for row in known)
        raise LeadlineError("not_found", f"no process or thread {pid} in this trace", hint=hint)
    if threads[0]["pid"] == pid:
        threads = [t for t in threads if t["pid"] == pid]
    mine = f"thread_id in ({', '.join(str(t['thread_id']) for t in threads)})"
    [sums] = capture.rows(f"select {_ALL} from thread_time where {mine}")
    time = {name: value or 0 for name, value in sums.items()}
    summed, waits = _summed(capture, mine), _waits(capture, mine)
    window_s = capture.scalar("select window_s from capture") or 0.0
    [counted] = capture.rows(f"select {_ALL} from thread_time where {mine} and stat_run_ns is not null")
    return Report(
        threads[0]["pid"],
        [{"tid": t["tid"], "comm": t["comm"]} for t in threads],
        time,
        _calls(capture, mine, summed, waits, window_s),
        _by_function(waits),
        _failures(capture, mine, summed),
        _wakers(capture, mine),
        _woken(capture, threads),
        _files(capture, mine),
        _disks(capture, mine),
        window_s,
        capture.scalar(f"select arg_max(cpu, ts) from off_cpu where cpu >= 0 and {mine}"),
        _policies(capture, mine),
        capture.manifest.probe("kernel").detail.get("numa_nodes"),
        _checks(counted, capture.manifest.probe("kernel").detail),
    )


def _policies(capture: Capture, mine: str) -> list[dict[str, Any]]:
    return capture.rows(
        f"""
        select policy, priority, count(*) as threads
        from (select arg_max(policy, ts) as policy, arg_max(priority, ts) as priority from thread_time where {mine} group by thread_id)
        where policy is not null group by all order by threads desc, policy, priority
        """
    )


def _checks(time: dict[str, int | None], detail: dict[str, Any]) -> list[dict[str, Any]]:
    """What the scheduler itself counted, beside the trace, of the threads of which that is known. Both look at the clock at
    different places of a waking: for each, as much is allowed as the probe measured at its start; 1 % or 2 ms for interrupts, which the
    scheduler leaves out; and unknown time."""
    pairs = (
        ("on a CPU", ("user_ns", "system_ns"), "stat_run_ns", "waking_run_ns"),
        ("in the run queue", ("runq_preempt_ns", "runq_wake_ns"), "stat_runq_ns", "waking_runq_ns"),
    )
    checks = []
    known = {name: value for name, value in time.items() if value is not None}
    for what, parts, counter, calibrated in pairs if known else ():
        traced, counted = sum(known[part] for part in parts), known[counter]
        allowed = max(counted // 100, 2_000_000) + detail.get(calibrated, 0) * known["sleeps"] + known["unknown_ns"]
        checks.append(
            {"what": what, "trace_ns": traced, "kernel_ns": counted, "allowed_ns": allowed, "holds": abs(traced - counted) <= allowed}
        )
    return checks


def _need(capture: Capture) -> None:
    if why := capture.unavailable("thread_time"):
        raise LeadlineError("not_found", "this capture has no trace of threads", detail=why, hint="leadline trace -p PID --for 20s")


def _summed(capture: Capture, mine: str) -> list[dict[str, Any]]:
    """Sums of the calls with one name and error; what the parts of the report about calls are made of."""
    return capture.rows(
        f"""
        select call, nr, errno, error, sum(calls)::bigint as count, sum(duration_ns)::bigint as elapsed_ns, max(max_ns) as max_ns,
               sum(sleep_ns)::bigint as sleep_ns, sum(sleeps)::bigint as sleeps, sum(runq_ns)::bigint as runq_ns,
               sum(cpu_ns)::bigint as cpu_ns, sum(unknown_ns)::bigint as unknown_ns
        from call_sum where {mine} group by all order by count desc, call, error
        """
    )


def _calls(
    capture: Capture, mine: str, summed: list[dict[str, Any]], waits: list[dict[str, Any]], window_s: float
) -> list[dict[str, Any]]:
    quantiles = {
        row["nr"]: row["durations"]
        for row in capture.rows(f"select nr, quantile_disc(duration_ns, [0.5, 0.99]) as durations from syscall where {mine} group by nr")
    }
    moved = {
        row["call"]: row["bytes"]
        for row in capture.rows(
            f"select call, sum(ret) filter (ret > 0)::bigint as bytes from call"
            f" where {mine} and (is_read_call(call) or is_write_call(call)) group by call"
        )
    }
    calls = []
    added = ("count", "elapsed_ns", "sleep_ns", "sleeps", "runq_ns", "cpu_ns", "unknown_ns")
    for name in {row["call"]: None for row in summed}:
        parts = [row for row in summed if row["call"] == name]
        total = {key: sum(row[key] for row in parts) for key in added}
        failed = {row["error"]: row["count"] for row in parts if row["errno"] is not None}
        p50, p99 = quantiles.get(parts[0]["nr"], (None, None))
        calls.append(
            {
                "call": name, "count": total["count"], "per_s": total["count"] / window_s if window_s else None,
                "failed": sum(failed.values()), "elapsed_ns": total["elapsed_ns"],
                "p50_ns": p50, "p99_ns": p99, "max_ns": max(row["max_ns"] for row in parts),
                "bytes": moved.get(name), "sleep_ns": total["sleep_ns"],
                "sleeps": total["sleeps"], "runq_ns": total["runq_ns"], "cpu_ns": total["cpu_ns"], "unknown_ns": total["unknown_ns"],
                "errors": failed,
                "waits": [{k: v for k, v in row.items() if k != "call"} for row in waits if row["call"] == name],
            }
        )  # fmt: skip
    return sorted(calls, key=lambda call: (-call["elapsed_ns"], call["call"]))


def call_list(capture: Capture) -> list[dict[str, Any]]:
    """The system calls of all traced threads: call, calls, failed, per_s, elapsed_ns, sleep_ns, runq_ns, cpu_ns, max_ns."""
    _need(capture)
    return capture.rows(
        """
        select call, sum(calls)::bigint as calls, coalesce(sum(calls) filter (errno is not null), 0)::bigint as failed,
               sum(calls) / any_value(w.window_s) as per_s, sum(duration_ns)::bigint as elapsed_ns, sum(sleep_ns)::bigint as sleep_ns,
               sum(runq_ns)::bigint as runq_ns, sum(cpu_ns)::bigint as cpu_ns, max(max_ns) as max_ns
        from call_sum cross join capture w group by call order by elapsed_ns desc, call
        """
    )


def _waits(capture: Capture, mine: str) -> list[dict[str, Any]]:
    """Sleeps by call and the function of the kernel they were in; '' for those shorter than the threshold of the trace. Of a trace with
    sums, sleeps and max_ns are null."""
    return capture.rows(
        f"""
        select call, wait_function, sum(sleeps)::bigint as sleeps, sum(sleep_ns)::bigint as sleep_ns, max(max_ns) as max_ns
        from (select * replace (coalesce(wait_function, '') as wait_function, coalesce(call, '') as call) from sleep_sum where {mine})
        group by call, wait_function order by sleep_ns desc, call, wait_function
        """
    )


def _by_function(waits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sleeps of all calls together."""
    together: dict[str, dict[str, Any]] = {}
    for wait in waits:
        name = wait["wait_function"]
        known = together.setdefault(name, {"wait_function": name, "sleeps": None, "sleep_ns": 0, "max_ns": None})
        known["sleep_ns"] += wait["sleep_ns"]
        if wait["sleeps"] is not None:
            known["sleeps"] = (known["sleeps"] or 0) + wait["sleeps"]
            known["max_ns"] = max(known["max_ns"] or 0, wait["max_ns"])
    return sorted(together.values(), key=lambda wait: (-wait["sleep_ns"], wait["wait_function"]))


def _failures(capture: Capture, mine: str, summed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Failed calls, and from where most of them were made as far as stacks were taken."""
    stacks = capture.rows(
        f"""
        select nr, errno, arg_max(frames, samples) as frames, arg_max(lines, samples) as lines, max(samples) as samples,
               sum(samples)::bigint as of_samples
        from (select s.nr, s.errno, u.frames, min(u.lines) as lines, count(*) as samples
              from stack_sample s join user_frames u using (user_stack_id) where s.kind = 'failed' and {mine} group by all) group by all
        """
    )
    known = {(row["nr"], row["errno"]): row for row in stacks}
    none = {"frames": [], "lines": [], "samples": 0, "of_samples": 0}
    failures = []
    for row in summed:
        if row["errno"] is not None:
            stack = known.get((row["nr"], row["errno"]), none)
            said = {key: row[key] for key in ("call", "error", "count", "elapsed_ns")}
            failures.append(said | {key: stack[key] for key in none})
    return failures


def _wakers(capture: Capture, mine: str) -> list[dict[str, Any]]:
    return capture.rows(
        f"""
        select waker_tid as tid, coalesce(any_value(n.comm), case when waker_tid = 0 then 'interrupt' else '' end) as comm,
               count(*) as wakings, sum(sleep_ns)::bigint as sleep_ns
        from off_cpu o left join task_name n on n.tid = o.waker_tid
        where o.state <> 0 and {mine} group by waker_tid order by sleep_ns desc, tid
        """
    )


def _woken(capture: Capture, threads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tids = ", ".join(str(t["tid"]) for t in threads)
    return capture.rows(
        f"""
        select n.tid, n.comm, count(*) as wakings, sum(o.sleep_ns)::bigint as sleep_ns
        from off_cpu o join thread_name n using (thread_id) where o.state <> 0 and o.waker_tid in ({tids})
        group by n.tid, n.comm order by wakings desc, n.tid
        """
    )


def _files(capture: Capture, mine: str) -> list[dict[str, Any]]:
    """Calls by what their descriptor stands for; those that took longest come first."""
    return capture.rows(
        f"""
        select any_value(file) as file, any_value(file_kind) as kind, count(*) as calls, count(error) as failed,
               coalesce(sum(ret) filter (is_read_call(call) and ret > 0), 0)::bigint as read_bytes,
               coalesce(sum(ret) filter (is_write_call(call) and ret > 0), 0)::bigint as written_bytes,
               sum(duration_ns)::bigint as elapsed_ns, sum(sleep_ns)::bigint as sleep_ns, quantile_disc(duration_ns, 0.5) as p50_ns,
               quantile_disc(duration_ns, 0.99) as p99_ns, max(duration_ns) as max_ns
        from call where {mine} and file_id > 0 and file is not null group by coalesce(nullif(file, ''), file_id::text)
        order by sum(duration_ns) desc, 1
        """
    )


def _disks(capture: Capture, mine: str) -> list[dict[str, Any]]:
    return capture.rows(
        f"""
        select device, operation, count(*) as requests, sum(bytes)::bigint as bytes, sum(queue_ns)::bigint as queue_ns,
               sum(service_ns)::bigint as service_ns, quantile_disc(queue_ns + service_ns, 0.99) as p99_ns,
               max(queue_ns + service_ns) as max_ns
        from block_io where {mine} group by device, operation order by sum(queue_ns + service_ns) desc, device, operation
        """
    )
