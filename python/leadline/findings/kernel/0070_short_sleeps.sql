-- id: SHORT-SLEEPS
-- title: A program polls with short sleeps
-- question: Which programs wait by sleeping for a very short time over and over, or by yielding the CPU?
-- domain: kernel
-- needs: call
-- unit: sleeps and yields a second; seconds on a CPU or waiting for one
-- cost: CPU
-- threshold: nap_ms = 1 (milliseconds of a sleep at most, on average)
-- threshold: nap_per_s = 1000 (sleeps and yields a second of a program)
-- threshold: confident_naps = 20000 (calls)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from syscall where nr in (select nr from syscall_name where is_sleep_call(name)))
-- wrong when: the program has to keep an exact rhythm
with naps as (
  select comm, call, count(*) as calls, count(distinct pid) as processes, count(distinct thread_id) as threads, any_value(pid) as pid,
         sum(duration_ns) / 1e9 as seconds, sum(cpu_ns + runq_ns) / 1e9 as cpu_s, min(ts_from) as ts_from, max(ts) as ts_to
  from call where is_sleep_call(call) and not partial group by comm, call
)
select 'SHORT-SLEEPS' as id, severity_of(cpu_s / (threads * w.window_s), cpu_s, w.window_s) as severity,
       case when calls >= getvariable('confident_naps') then 'high' else 'medium' end as confidence,
       format('{} of {}', call, f.comm) as subject,
       format('{} called {} {} times ({:.0f} a second), {:.1f} us each: {:.3f} s on a CPU or waiting for one in these calls alone',
              program(f.comm, processes, pid), call, calls, calls / w.window_s, seconds / calls * 1e6, cpu_s) as statement,
       cpu_s as cost_s, null::double as share_of_db_time, calls as samples, f.ts_from, f.ts_to,
       to_json([{call: call, calls: calls, seconds: round(seconds, 6), cpu_s: round(cpu_s, 6), processes: processes, threads: threads}]) as evidence
from naps f cross join capture w
where calls >= getvariable('nap_per_s') * w.window_s and seconds / calls * 1e3 <= getvariable('nap_ms')
order by cost_s desc, subject
