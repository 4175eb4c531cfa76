"""Sections of a trace of threads: where their time went, in which calls, and in what they slept."""

from __future__ import annotations

import shlex
from dataclasses import replace

from leadline.figures import percent, quantity, seconds
from leadline.views.grid import Column, Grid
from leadline.views.sections import Context, Section, Tile

MOST = 12


def _threads(of: Context) -> Grid:
    """Threads of one process and name together: a process starts many."""
    rows = of.capture.rows(
        """
        select n.comm, n.pid, count(distinct thread_id) as threads, sum(user_ns) / 1e9 as user_s,
               sum(system_ns) / 1e9 as system_s, sum(runq_preempt_ns + runq_wake_ns) / 1e9 as runq_s,
               sum(sleep_ns + stopped_ns) / 1e9 as sleep_s, sum(sleep_d_ns) / 1e9 as disk_s,
               sum(unknown_ns) / 1e9 as unknown_s, sum(calls)::bigint as calls, sum(failed_calls)::bigint as failed
        from thread_time join thread_name n using (thread_id) group by n.comm, n.pid
        order by sum(user_ns + system_ns + runq_preempt_ns + runq_wake_ns) desc, sum(calls) desc, n.pid
        """
    )
    columns = (
        Column("comm", "process", "text"),
        Column("pid", "pid", "text"),
        Column("threads", "threads", minor=True),
        Column("user_s", "user, s", "seconds"),
        Column("system_s", "system, s", "seconds"),
        Column("runq_s", "run queue, s", "seconds"),
        Column("sleep_s", "sleep, s", "seconds"),
        Column("disk_s", "sleep in D, s", "seconds", minor=True),
        Column("unknown_s", "unknown, s", "seconds", minor=True),
        Column("calls", "calls", "rate"),
        Column("failed", "failed", "rate"),
    )
    note = "Each thread's parts sum to the time it was traced."
    path = shlex.quote(str(of.capture.path))
    left = len(rows) - MOST
    more = f"{left:,} more: leadline threads {path}" if left > 0 else f"one process: leadline threads {path} PID"
    return replace(of.grid(columns, rows, MOST, "thread_time", note, "no thread was traced"), rest=more)


def _tiles(of: Context, grid: Grid) -> list[Tile]:
    [sums] = of.capture.rows(
        """
        select sum(user_ns + system_ns) / 1e9 as cpu_s, sum(runq_preempt_ns + runq_wake_ns) / 1e9 as runq_s, sum(calls)::bigint as calls,
               sum(failed_calls) / greatest(sum(calls), 1) as failed
        from thread_time
        """
    )
    return [
        Tile("On a CPU", seconds(sums["cpu_s"] or 0), "of all traced threads", " s"),
        Tile("In the run queue", seconds(sums["runq_s"] or 0), "ready, without a CPU", " s"),
        Tile("System calls", quantity(sums["calls"] or 0), f"{percent(sums['failed'] or 0)} of them failed"),
    ]


def _calls(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        with part as (select call, quantile_disc(duration_ns, 0.99) / 1e6 as p99_ms from call group by call)
        select call, sum(calls)::bigint as calls, coalesce(sum(calls) filter (errno is not null), 0)::bigint as failed,
               sum(duration_ns) / 1e9 as elapsed_s, sum(sleep_ns) / 1e9 as sleep_s, sum(runq_ns) / 1e9 as runq_s,
               sum(cpu_ns) / 1e9 as cpu_s, any_value(p99_ms) as p99_ms, max(max_ns) / 1e6 as max_ms, arg_max(error, calls) as error
        from call_sum left join part using (call) group by call order by elapsed_s desc, call
        """
    )
    columns = (
        Column("call", "call", "text"),
        Column("calls", "calls", "rate"),
        Column("failed", "failed", "rate"),
        Column("elapsed_s", "elapsed, s", "seconds"),
        Column("sleep_s", "sleep, s", "seconds"),
        Column("runq_s", "run queue, s", "seconds"),
        Column("cpu_s", "CPU, s", "seconds"),
        Column("p99_ms", "p99, ms", "seconds", minor=True),
        Column("max_ms", "longest, ms", "seconds", minor=True),
        Column("error", "most often", "text", minor=True),
    )
    note = "Elapsed time is sleep, run queue and CPU together."
    return of.grid(columns, rows, MOST, "call_sum", note, "no call returned")


def _has_failures(of: Context) -> bool:
    return bool(of.capture.scalar("select exists (from call_sum where errno is not null)"))


def _failures(of: Context) -> Grid:
    """Failed calls by program, and from where most of them were made as far as stacks were taken."""
    rows = of.capture.rows(
        """
        with stack as (
          select n.comm, s.nr, s.errno, u.frames, min(u.lines) as lines, count(*) as samples
          from stack_sample s join thread_name n using (thread_id) join user_frames u using (user_stack_id)
          where s.kind = 'failed' group by n.comm, s.nr, s.errno, u.frames
        ), caller as (
          select comm, nr, errno, arg_max(list_zip(frames, lines)[:6], samples) as places from stack group by comm, nr, errno
        )
        select s.comm, s.call, s.error, sum(s.calls)::bigint as calls, sum(s.duration_ns) / 1e9 as elapsed_s,
               array_to_string(list_transform(any_value(c.places), p -> placed_function(p[1], p[2])), ' < ') as caller
        from call_sum s left join caller c on (c.comm, c.nr, c.errno) = (s.comm, s.nr, s.errno)
        where s.errno is not null group by s.comm, s.call, s.error order by calls desc, 1, 2, 3
        """
    )
    columns = (
        Column("comm", "process", "text"),
        Column("call", "call", "text"),
        Column("error", "error", "text"),
        Column("calls", "failed", "rate"),
        Column("elapsed_s", "elapsed, s", "seconds"),
        Column("caller", "top caller", "text", minor=True),
    )
    note = "The caller stands on the right of <, with file and line where there is debugging information."
    return of.grid(columns, rows, MOST, "call_sum where errno > 0", note, "no call failed")


def _files(of: Context) -> Grid:
    """Where calls name a file: which one, how often, how much, and how long."""
    rows = of.capture.rows(
        """
        select any_value(file) as file, any_value(file_kind) as kind, count(*) as calls, count(error) as failed,
               (sum(ret) filter (is_read_call(call) and ret > 0))::bigint as read_bytes,
               (sum(ret) filter (is_write_call(call) and ret > 0))::bigint as written_bytes,
               sum(duration_ns) / 1e9 as elapsed_s, sum(sleep_ns) / 1e9 as sleep_s, quantile_disc(duration_ns, 0.99) / 1e6 as p99_ms,
               arg_max(call, duration_ns) as longest
        from call where file is not null group by coalesce(nullif(file, ''), file_id::text) order by sum(duration_ns) desc, 1
        """
    )
    columns = (
        Column("file", "file or socket", "path"),
        Column("kind", "kind", "text", minor=True),
        Column("calls", "calls", "rate"),
        Column("failed", "failed", "rate", minor=True),
        Column("read_bytes", "read", "bytes"),
        Column("written_bytes", "written", "bytes"),
        Column("elapsed_s", "elapsed, s", "seconds"),
        Column("sleep_s", "sleep, s", "seconds", minor=True),
        Column("p99_ms", "p99, ms", "seconds", minor=True),
        Column("longest", "longest in", "text", minor=True),
    )
    note = "Calls by what their file descriptor stands for. Of a socket, the local address comes first."
    return of.grid(columns, rows, MOST, "call where file_id > 0", note, "no call with a descriptor returned")


def _sleeps(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select coalesce(wait_function, '(short sleeps)') as wait_function, coalesce(call, '(no call)') as call,
               sum(sleeps)::bigint as sleeps, sum(sleep_ns) / 1e9 as sleep_s, max(max_ns) / 1e6 as max_ms, any_value(below) as below
        from sleep_sum group by 1, 2 order by sleep_s desc, 1, 2
        """
    )
    columns = (
        Column("wait_function", "slept in", "text"),
        Column("call", "call", "text"),
        Column("sleeps", "sleeps", "rate"),
        Column("sleep_s", "seconds", "seconds"),
        Column("max_ms", "longest, ms", "seconds"),
        Column("below", "called by", "text", minor=True),
    )
    note = "Functions of the kernel. Without a call, a thread mostly waits for a page to be read."
    if any(row["sleeps"] is None for row in rows):
        note += " Calls were summed in the kernel: this is from samples of stacks, one for each 100 ms of sleep."
    return of.grid(columns, rows, MOST, "sleep_sum", note, "no thread slept")


def _disks(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select device, operation, count(*) as requests, sum(bytes)::bigint as bytes, sum(queue_ns) / 1e9 as queue_s,
               sum(service_ns) / 1e9 as device_s, quantile_disc(queue_ns + service_ns, 0.99) / 1e6 as p99_ms, mode(comm) as most_by
        from block_io group by device, operation order by sum(queue_ns + service_ns) desc, device, operation
        """
    )
    columns = (
        Column("device", "device", "text"),
        Column("operation", "operation", "text"),
        Column("requests", "requests", "rate"),
        Column("bytes", "bytes", "bytes"),
        Column("queue_s", "queued, s", "seconds"),
        Column("device_s", "in the device, s", "seconds"),
        Column("p99_ms", "p99, ms", "seconds"),
        Column("most_by", "most often by", "text", minor=True),
    )
    note = "Of the whole host. The 99th percentile is of queue and device together."
    return of.grid(columns, rows, MOST, "block_io", note, "no request was made")


def _uses_io_uring(of: Context) -> bool:
    return bool(of.capture.scalar("select exists (from io_uring_op)"))


def _io_uring(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select operation, coalesce(nullif(f.name, ''), '(none)') as file, count(*) as operations, count(*) filter (result < 0) as failed,
               coalesce(sum(result) filter (result > 0 and operation[:4] in ('read', 'writ', 'recv', 'send')), 0)::bigint as bytes,
               sum(duration_ns) / 1e9 as seconds, quantile_disc(duration_ns, 0.99) / 1e6 as p99_ms,
               count(*) filter (by_worker) as by_worker
        from io_uring_op left join file_name f using (file_id) group by 1, 2 order by seconds desc, 1, 2
        """
    )
    columns = (
        Column("operation", "operation", "text"),
        Column("file", "file or socket", "path"),
        Column("operations", "operations", "rate"),
        Column("failed", "failed", "rate"),
        Column("bytes", "bytes", "bytes"),
        Column("seconds", "seconds", "seconds"),
        Column("p99_ms", "p99, ms", "seconds"),
        Column("by_worker", "by a worker", "rate", minor=True),
    )
    note = "From the moment a thread hands an operation over until it is completed; the thread need not wait for it."
    return of.grid(columns, rows, MOST, "io_uring_op", note, "no operation was completed")


def _interrupts(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select kind, sum(count)::bigint as count, sum(time_ns) / 1e9 as seconds, sum(time_ns) / sum(count) / 1e3 as each_us,
               arg_max(cpu, time_ns) as cpu, max(time_ns) / sum(time_ns) as share
        from interrupt_sum group by kind order by seconds desc, kind
        """
    )
    columns = (
        Column("kind", "kind", "text"),
        Column("count", "interrupts", "rate"),
        Column("seconds", "seconds", "seconds"),
        Column("each_us", "each, us", "seconds"),
        Column("cpu", "most on CPU"),
        Column("share", "share of it", "share", minor=True),
    )
    note = "Of the whole host. Their time is part of the user and system time of the threads they interrupt."
    return Grid.of(columns, rows, note, empty="no interrupt was seen")


def _sessions(of: Context) -> Grid:
    """What the kernel saw while sessions waited: time by wait event, and the requests of disks made by those calls."""
    rows = of.capture.rows(
        """
        with requests as (
          select event, sum(b.queue_ns) / 1e9 as queue_s, sum(b.service_ns) / 1e9 as device_s
          from (select distinct event, thread_id, call_from, call_to from session_in_kernel where in_db_time and call_from is not null) c
          join block_io b on b.thread_id = c.thread_id and b.ts between c.call_from and c.call_to
          group by event
        )
        select wait_class, event, sum(weight_s) as seconds, sum(weight_s) filter (doing = 'on CPU') as cpu_s,
               sum(weight_s) filter (doing = 'run queue') as runq_s, sum(weight_s) filter (doing = 'asleep') as sleep_s,
               mode(call) as call, mode(wait_function) as wait_function, any_value(r.queue_s) as queue_s, any_value(r.device_s) as device_s
        from session_in_kernel left join requests r using (event) where in_db_time group by wait_class, event order by seconds desc, event
        """
    )
    columns = (
        Column("event", "wait event", "text"),
        Column("seconds", "seconds", "seconds"),
        Column("cpu_s", "on CPU, s", "seconds"),
        Column("runq_s", "run queue, s", "seconds"),
        Column("sleep_s", "asleep, s", "seconds"),
        Column("call", "top call", "text"),
        Column("wait_function", "slept in", "text", minor=True),
        Column("queue_s", "disk queue, s", "seconds", minor=True),
        Column("device_s", "in the disk, s", "seconds", minor=True),
    )
    note = "Database time, and what the kernel saw the processes do at the same moments. Disk: requests of the calls that were seen."
    return of.grid(columns, rows, MOST, "session_in_kernel", note, "no session was sampled")


SECTIONS = (
    Section("sessions_in_kernel", "Wait events in the kernel", ("session_in_kernel",), _sessions),
    Section("threads", "Threads", ("thread_time",), _threads, tiles=_tiles),
    Section("calls", "System calls", ("call_sum",), _calls),
    Section("failed_calls", "Failed calls", ("call_sum", "user_stack"), _failures, applies=_has_failures),
    Section("files", "Files and sockets", ("call", "open_file"), _files),
    Section("kernel_sleeps", "Sleeps in the kernel", ("sleep_sum",), _sleeps),
    Section("disk_requests", "Requests of disks", ("block_io",), _disks),
    Section("io_uring", "Operations of io_uring", ("io_uring_op", "open_file"), _io_uring, applies=_uses_io_uring),
    Section("interrupts", "Interrupts", ("interrupt_sum",), _interrupts),
)
