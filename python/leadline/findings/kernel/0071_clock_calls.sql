-- id: CLOCK-CALLS
-- title: Reading the clock takes a system call
-- question: Which programs enter the kernel to read the time, how often, and what does it cost?
-- domain: kernel
-- needs: call
-- unit: calls a second; seconds in them
-- cost: CPU
-- threshold: clock_per_s = 1000 (calls a second of a program: with a fast clock source there is hardly any)
-- threshold: confident_clocks = 20000 (calls)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from syscall where nr in (select nr from syscall_name where is_clock_call(name)))
-- wrong when: the program asks for a clock that always needs the kernel, such as the CPU time of a process
with reads as (
  select comm, call, arg0 as clock, count(*) as calls, count(distinct pid) as processes, count(distinct thread_id) as threads,
         any_value(pid) as pid, sum(duration_ns) / 1e9 as seconds, min(ts_from) as ts_from, max(ts) as ts_to
  from call
  where is_clock_call(call) and not partial
    and (call <> 'clock_gettime' or arg0 in (0, 1, 4, 5, 6, 7, 11))  -- those that need no system call where the clock source is fast
  group by comm, call, arg0
)
select 'CLOCK-CALLS' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when calls >= getvariable('confident_clocks') then 'high' else 'medium' end as confidence,
       format('{} of {}', call, f.comm) as subject,
       format('{} called {} {} times ({:.0f} a second), {:.0f} ns each: {:.3f} s; with a fast clock source reading the time is no system call',
              program(f.comm, processes, pid), call, calls, calls / w.window_s, seconds / calls * 1e9, seconds) as statement,
       seconds as cost_s, null::double as share_of_db_time, calls as samples, f.ts_from, f.ts_to,
       to_json([{call: call, clock: clock, calls: calls, seconds: round(seconds, 6), processes: processes}]) as evidence
from reads f cross join capture w
where calls >= getvariable('clock_per_s') * w.window_s
order by cost_s desc, subject
