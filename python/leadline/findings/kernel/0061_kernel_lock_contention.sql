-- id: KERNEL-LOCK-CONTENTION
-- title: Threads wait for a lock of the kernel
-- question: Which system calls slept on mutexes and semaphores of the kernel, for how long, and in which part of the kernel?
-- domain: kernel
-- needs: off_cpu
-- unit: seconds asleep on locks of the kernel
-- cost: wall time
-- threshold: kernel_lock_min_s = 0.5 (seconds in the window, of all threads of a program in one call: less is ordinary sharing)
-- threshold: kernel_lock_share = 0.02 (of the window: a fiftieth of one thread's time)
-- threshold: confident_sleeps = 500 (sleeps that were seen)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from kernel_stack where is_kernel_lock(wait_function))
-- wrong when: the threads have nothing else to do, as workers that take turns by design
with waits as (
  select n.comm, count(distinct n.pid) as processes, coalesce(c.name, 'page faults') as call, k.wait_function,
         list_filter(k.functions, f -> not is_kernel_lock(f) and not regexp_matches(f, '^(__?percpu|schedule|__schedule)'))[1] as place,
         count(*) as sleeps, sum(o.sleep_ns) / 1e9 as seconds, max(o.sleep_ns) / 1e6 as max_ms, count(distinct o.thread_id) as threads,
         min(o.ts - o.duration_ns) as ts_from, max(o.ts) as ts_to, any_value(n.pid) as pid
  from off_cpu o join kernel_stack k using (stack_id) join thread_name n using (thread_id) left join syscall_name c using (nr)
  where is_kernel_lock(k.wait_function)
  group by n.comm, call, k.wait_function, place
)
select 'KERNEL-LOCK-CONTENTION' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when sleeps >= getvariable('confident_sleeps') then 'high' else 'medium' end as confidence,
       format('{} of {} in {}', call, f.comm, coalesce(place, wait_function)) as subject,
       format('{} thread{} of {} slept {:.3f} s on a lock of the kernel, {} times in {}: in {}, called by {}; the longest {:.1f} ms',
              threads, case when threads > 1 then 's' else '' end, program(f.comm, processes, pid),
              seconds, sleeps, call, wait_function, coalesce(place, 'nobody that is known'), max_ms) as statement,
       seconds as cost_s, null::double as share_of_db_time, sleeps as samples, f.ts_from, f.ts_to,
       to_json([{call: call, wait_function: wait_function, place: place, sleeps: sleeps, seconds: round(seconds, 6), max_ms: round(max_ms, 3),
                 threads: threads, processes: processes}]) as evidence
from waits f cross join capture w
where seconds >= greatest(getvariable('kernel_lock_min_s'), getvariable('kernel_lock_share') * w.window_s)
order by cost_s desc, subject
