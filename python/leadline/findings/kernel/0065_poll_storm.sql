-- id: POLL-STORM
-- title: A program asks over and over whether something has happened
-- question: Which programs poll without waiting, how often in vain, and what does it cost?
-- domain: kernel
-- needs: call
-- unit: calls a second that return at once with nothing; seconds in them
-- cost: CPU
-- threshold: poll_per_s = 2000 (calls a second in vain; LinuxKI warns of Oracle processes from 10,000 calls in its 20 s with a mean below 2 us)
-- threshold: poll_min = 10000 (calls in vain in the window)
-- threshold: poll_share = 0.5 (of these calls of the program: most of them are in vain)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from syscall where nr in (select nr from syscall_name where is_poll_call(name)))
-- wrong when: the program trades a CPU for the shortest delay on purpose
with polls as (
  select comm, call, count(*) as calls, count(*) filter (ret = 0 and sleeps = 0) as in_vain, count(distinct pid) as processes, any_value(pid) as pid,
         count(distinct thread_id) as threads, sum(duration_ns) filter (ret = 0 and sleeps = 0) / 1e9 as seconds, min(ts_from) as ts_from, max(ts) as ts_to
  from call where is_poll_call(call) and not partial
  group by comm, call
)
select 'POLL-STORM' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity, 'high' as confidence,
       format('{} of {}', call, f.comm) as subject,
       format('{} of {} returned at once with nothing {} times ({:.0f} a second), {:.0f} % of its calls: {:.3f} s in them',
              call, program(f.comm, processes, pid),
              in_vain, in_vain / w.window_s, 100.0 * in_vain / calls, seconds) as statement,
       seconds as cost_s, null::double as share_of_db_time, in_vain as samples, f.ts_from, f.ts_to,
       to_json([{call: call, calls: calls, in_vain: in_vain, seconds: round(seconds, 6), processes: processes, threads: threads}]) as evidence
from polls f cross join capture w
where in_vain >= greatest(getvariable('poll_min'), getvariable('poll_per_s') * w.window_s) and in_vain >= getvariable('poll_share') * calls
order by cost_s desc, subject
