-- id: FUTEX-CONTENTION
-- title: Threads of a program wait for each other's locks
-- question: Which locks of user space (futexes) do many threads wait for again and again, and for how long?
-- domain: kernel
-- needs: call
-- unit: waits a second; seconds asleep
-- cost: wall time
-- threshold: futex_per_s = 200 (waits a second at one address: less is work that is handed over)
-- threshold: futex_min_s = 1 (seconds asleep in the window, of all threads)
-- threshold: futex_mean_ms = 20 (milliseconds of a wait at most: longer ones are mostly idle workers)
-- threshold: futex_threads = 3 (threads that wait at the same address)
-- threshold: confident_futex = 5000 (waits)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from syscall where nr in (select nr from syscall_name where name = 'futex') and sleeps > 0)
-- wrong when: the threads are workers that have nothing to do between two short pieces of work
with waits as (
  select comm, pid, arg0 as address, count(*) as waits, count(distinct thread_id) as threads, sum(sleep_ns + runq_ns) / 1e9 as seconds,
         max(duration_ns) / 1e6 as max_ms, min(ts_from) as ts_from, max(ts) as ts_to
  from call where call = 'futex' and sleeps > 0 and not partial and arg1 & 127 in (0, 6, 9, 13)  -- FUTEX_WAIT, LOCK_PI, WAIT_BITSET, LOCK_PI2
  group by comm, pid, arg0
)
select 'FUTEX-CONTENTION' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when waits >= getvariable('confident_futex') then 'high' else 'medium' end as confidence,
       format('{} of {} (pid {})', printf('0x%x', address), comm, pid) as subject,
       format('{} threads of {} (pid {}) waited {} times ({:.0f} a second) for the lock at {}: {:.3f} s asleep or waiting for a CPU, {:.1f} us each, the longest {:.1f} ms',
              threads, comm, pid, waits, waits / w.window_s, printf('0x%x', address), seconds, seconds / waits * 1e6, max_ms) as statement,
       seconds as cost_s, null::double as share_of_db_time, waits as samples, f.ts_from, f.ts_to,
       to_json([{pid: pid, address: printf('0x%x', address), waits: waits, threads: threads, seconds: round(seconds, 6), max_ms: round(max_ms, 3)}]) as evidence
from waits f cross join capture w
where waits >= getvariable('futex_per_s') * w.window_s and seconds >= getvariable('futex_min_s') and threads >= getvariable('futex_threads')
  and seconds / waits * 1e3 <= getvariable('futex_mean_ms')
order by cost_s desc, subject
