-- id: FSYNC-STALL
-- title: Forcing data to disk takes long
-- question: Which programs waited in fsync and its kin, how long did the slow ones take, and what did the disk do meanwhile?
-- domain: kernel
-- needs: call
-- unit: seconds in fsync, fdatasync, sync_file_range, syncfs, sync and msync
-- cost: wall time
-- threshold: fsync_min_s = 1 (seconds in the window, of all threads of a program: less is ordinary)
-- threshold: fsync_slow_ms = 20 (milliseconds that one of 100 takes at least: a commit that waits for it is felt)
-- threshold: confident_syncs = 100 (calls)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from syscall where nr in (select nr from syscall_name where is_sync_call(name)))
-- wrong when: only a checkpoint or a backup forces data to disk, and nobody waits for it
with sync as (
  select * from call where is_sync_call(call) and not partial
), disk as (
  select s.comm, s.call, sum(b.queue_ns) / 1e9 as queue_s, sum(b.service_ns) / 1e9 as service_s, count(*) as requests,
         mode(b.device) as device
  from sync s join block_io b on b.thread_id = s.thread_id and b.ts between s.ts_from and s.ts group by s.comm, s.call
), total as (
  select comm, call, count(*) as calls, count(distinct pid) as processes, count(distinct thread_id) as threads, any_value(pid) as pid,
         sum(duration_ns) / 1e9 as seconds, quantile_disc(duration_ns, 0.5) / 1e6 as p50_ms, quantile_disc(duration_ns, 0.99) / 1e6 as p99_ms,
         max(duration_ns) / 1e6 as max_ms, min(ts_from) as ts_from, max(ts) as ts_to
  from sync group by comm, call
)
select 'FSYNC-STALL' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when calls >= getvariable('confident_syncs') then 'high' else 'medium' end as confidence,
       format('{} of {}', f.call, f.comm) as subject,
       format('{} of {} took {:.1f} s in {} calls: half of them up to {:.1f} ms, one of 100 {:.1f} ms or more, the longest {:.1f} ms{}',
              f.call, program(f.comm, processes, pid), seconds, calls, p50_ms, p99_ms, max_ms,
              coalesce(format('. Its {} requests were {:.3f} s in the queue of {} and {:.3f} s in the disk', d.requests, d.queue_s, d.device, d.service_s), '')) as statement,
       seconds as cost_s, null::double as share_of_db_time, calls as samples, f.ts_from, f.ts_to,
       to_json([{call: f.call, calls: calls, seconds: round(seconds, 6), p50_ms: round(p50_ms, 3), p99_ms: round(p99_ms, 3), max_ms: round(max_ms, 3),
                 requests: d.requests, queue_s: round(d.queue_s, 6), device_s: round(d.service_s, 6), device: d.device}]) as evidence
from total f left join disk d on (d.comm, d.call) = (f.comm, f.call) cross join capture w
where seconds >= getvariable('fsync_min_s') and p99_ms >= getvariable('fsync_slow_ms')
order by cost_s desc, subject
