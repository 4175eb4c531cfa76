-- id: BARRIER-WRITES
-- title: A disk spends its time on flushes
-- question: Which disk was asked to empty its cache many times, who asked, and how long did it take?
-- domain: kernel
-- needs: block_io, call_sum
-- unit: seconds of flushes in a disk
-- cost: wall time
-- threshold: flush_min_s = 1 (seconds in the window: less is a burst)
-- threshold: flush_share = 0.3 (of the window: for a third of it the disk had a flush to do)
-- threshold: confident_flushes = 100 (requests)
-- threshold: named_flushers = 3 (names told in the sentence; the evidence has more)
-- silent unless: exists (from block_io where is_barrier(operation, flags))
-- wrong when: the commits have to be on disk one by one, and the disk is what it is
with flush as (
  select * from block_io where is_barrier(operation, flags)
), asked as (  -- a flush that the kernel makes of several requests is of nobody
  select device, coalesce(nullif(comm, ''), 'the kernel') as comm, count(*) as requests, sum(service_ns) / 1e9 as seconds from flush group by all
), synced as (
  select format('{} called {} {} times', comm, call, sum(calls)) as told, sum(calls) as calls from call_sum where is_sync_call(call) group by comm, call
), total as (
  select device, count(*) as requests, sum(service_ns) / 1e9 as seconds, median(service_ns) / 1e6 as median_ms,
         quantile_disc(service_ns, 0.99) / 1e6 as p99_ms, min(ts) as ts_from, max(ts) as ts_to
  from flush group by device
)
select 'BARRIER-WRITES' as id, severity_of(seconds / w.window_s, seconds, w.window_s) as severity,
       case when requests >= getvariable('confident_flushes') then 'high' else 'medium' end as confidence,
       device as subject,
       format('{} did {} flushes and writes through its cache ({:.0f} a second): {:.1f} s, {:.2f} ms at the median, 1 of 100 longer than {:.1f} ms; asked for by {}{}',
              device, requests, requests / w.window_s, seconds, median_ms, p99_ms,
              (select string_agg(format('{} {} times', a.comm, a.requests), ', ' order by a.seconds desc, a.comm)
               from (select * from asked a where a.device = f.device order by a.seconds desc, a.comm limit getvariable('named_flushers')::int) a),
              coalesce('; ' || (select string_agg(told, ', ' order by calls desc, told)
                                from (from synced order by calls desc, told limit getvariable('named_flushers')::int)), '')) as statement,
       seconds as cost_s, null::double as share_of_db_time, requests as samples, f.ts_from, f.ts_to,
       to_json((select list({command: a.comm, requests: a.requests, seconds: round(a.seconds, 6)} order by a.seconds desc, a.comm)[:20]
                from asked a where a.device = f.device)) as evidence
from total f cross join capture w
where seconds >= getvariable('flush_min_s') and seconds >= getvariable('flush_share') * w.window_s
order by cost_s desc, subject
