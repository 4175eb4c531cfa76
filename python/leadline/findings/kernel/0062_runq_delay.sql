-- id: RUNQ-DELAY
-- title: Threads waited while others had the CPU
-- question: Which programs were ready to run and waited, and who ran on the CPU meanwhile?
-- domain: kernel
-- needs: off_cpu
-- unit: seconds ready to run while another thread ran on the same CPU
-- cost: wall time
-- threshold: runq_delay_min_s = 1 (seconds in the window, of all threads of a program: less is a burst)
-- threshold: runq_delay_share = 0.25 (of the time the program wanted a CPU: a quarter of its speed)
-- threshold: confident_waits = 500 (waits that were seen)
-- threshold: named_threads = 3 (names told in the sentence; the evidence has more)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from off_cpu where before_tid <> 0 and duration_ns > sleep_ns)
-- wrong when: the program runs at low priority on purpose
with waits as (
  select n.comm, n.pid, o.thread_id, o.before_tid, (o.duration_ns - o.sleep_ns) / 1e9 as seconds, o.ts
  from off_cpu o join thread_name n using (thread_id)
  where o.before_tid <> 0 and o.before_tid <> n.tid and o.duration_ns > o.sleep_ns
), names as (
  select tid, arg_max(comm, ts_from) as comm from thread_name group by tid
), behind as (
  select w.comm, coalesce(b.comm, 'threads that are not traced') as before, sum(seconds) as seconds
  from waits w left join names b on b.tid = w.before_tid group by all
), ran as (
  select n.comm, sum(t.user_ns + t.system_ns) / 1e9 as cpu_s from thread_time t join thread_name n using (thread_id) group by n.comm
), total as (
  select comm, count(distinct pid) as processes, count(distinct thread_id) as threads, count(*) as waits, sum(seconds) as seconds,
         max(seconds) * 1e3 as max_ms, min(ts) as ts_from, max(ts) as ts_to, any_value(pid) as pid
  from waits group by comm
)
select 'RUNQ-DELAY' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when waits >= getvariable('confident_waits') then 'high' else 'medium' end as confidence,
       f.comm as subject,
       format('{} was ready to run for {:.1f} s while other threads had its CPU, and ran for {:.1f} s; it waited behind {}; the longest wait {:.1f} ms',
              program(f.comm, processes, pid), seconds, cpu_s,
              (select string_agg(format('{} {:.1f} s', before, b.seconds), ', ' order by b.seconds desc, before)
               from (select * from behind b where b.comm = f.comm order by b.seconds desc, before limit getvariable('named_threads')::int) b),
              max_ms) as statement,
       seconds as cost_s, null::double as share_of_db_time, waits as samples, f.ts_from, f.ts_to,
       to_json((select list({behind: before, seconds: round(b.seconds, 6)} order by b.seconds desc, before)[:10] from behind b where b.comm = f.comm)) as evidence
from total f join ran using (comm) cross join capture w
where seconds >= getvariable('runq_delay_min_s') and seconds >= getvariable('runq_delay_share') * (seconds + cpu_s)
order by cost_s desc, subject
