-- id: SEMAPHORE-CONTENTION
-- title: Processes wait for each other's System V semaphores
-- question: Which sets of System V semaphores do threads wait for again and again, for how long, and who wakes them?
-- domain: kernel
-- needs: semaphore_wait
-- unit: waits a second; seconds asleep or waiting for a CPU
-- cost: wall time
-- threshold: semop_per_s = 200 (waits a second for one set: less is work that is handed over)
-- threshold: semop_min_s = 1 (seconds in the window, of all threads)
-- threshold: semop_mean_ms = 20 (milliseconds of a wait at most: longer ones are mostly idle workers)
-- threshold: confident_semop = 5000 (waits)
-- threshold: named_wakers = 3 (names told in the sentence; the evidence has more)
-- threshold: named_programs = 3 (programs told in the sentence)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from syscall where nr in (select nr from syscall_name where name in ('semop', 'semtimedop')) and sleeps > 0)
-- wrong when: the processes are workers that have nothing to do between two short pieces of work
with part as (  -- there may be millions of waits: from here on, few groups of them
  select semid, key, comm, thread_id, waker_tid, waker, waker_pid, count(*) as waits, sum(sleep_ns) as sleep_ns, sum(runq_ns) as runq_ns,
         max(sleep_ns + runq_ns) as max_ns, min(ts_from) as ts_from, max(ts) as ts_to
  from semaphore_wait group by all
), waits as (
  select semid, any_value(key) as key, array_to_string(list_sort(list(distinct comm))[:getvariable('named_programs')::int], ', ') as programs, sum(waits)::bigint as waits, count(distinct thread_id) as threads,
         sum(sleep_ns + runq_ns) / 1e9 as seconds, max(max_ns) / 1e6 as max_ms, min(ts_from) as ts_from, max(ts_to) as ts_to
  from part group by semid
), woke as (
  select semid, waker_tid, coalesce(waker || ' (pid ' || waker_pid || ')', case when waker_tid = 0 then 'an interrupt' else 'thread ' || waker_tid end) as name,
         sum(waits)::bigint as wakings, sum(sleep_ns) / 1e9 as sleep_s
  from part group by all
)
select 'SEMAPHORE-CONTENTION' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when waits >= getvariable('confident_semop') then 'high' else 'medium' end as confidence,
       case when key > 0 then format('semaphores {}', printf('0x%08x', key))
            when key = 0 then format('private semaphores of {}', programs) else format('semaphores with id {} of {}', semid, programs) end as subject,
       format('{} thread{} of {} waited {} times ({:.0f} a second) for {}: {:.3f} s asleep or waiting for a CPU, {:.1f} us each, the longest {:.1f} ms; woken by {}',
              threads, case when threads = 1 then '' else 's' end, programs, waits, waits / w.window_s,
              case when key > 0 then format('the semaphores with the key {} (id {})', printf('0x%08x', key), semid)
                   when key = 0 then format('the private semaphores with the id {}', semid) else format('the semaphores with the id {}', semid) end,
              seconds, seconds / waits * 1e6, max_ms,
              (select string_agg(format('{} {} times', name, wakings), ', ' order by wakings desc, name)
               from (from woke k where k.semid = f.semid order by wakings desc, name limit getvariable('named_wakers')::int))) as statement,
       seconds as cost_s, null::double as share_of_db_time, waits as samples, f.ts_from, f.ts_to,
       to_json((select list({semid: semid, key: printf('0x%08x', f.key), waker: name, waker_tid: waker_tid, wakings: wakings, sleep_s: round(sleep_s, 6)}
                            order by wakings desc, name)[:20] from woke k where k.semid = f.semid)) as evidence
from waits f cross join capture w
where waits >= getvariable('semop_per_s') * w.window_s and seconds >= getvariable('semop_min_s') and seconds / waits * 1e3 <= getvariable('semop_mean_ms')
order by cost_s desc, subject
