-- id: IO-QUEUE
-- title: Requests wait longer for the disk than the disk takes
-- question: On which disk did requests wait in the queue, and who filled it?
-- domain: kernel
-- needs: block_io
-- unit: seconds in the queue of a disk
-- cost: wall time
-- threshold: io_queue_min_s = 1 (seconds in the window, of all requests: less is a burst)
-- threshold: io_queue_times = 1 (times the time in the disk itself: at 1 a request takes twice as long as it has to)
-- threshold: confident_requests = 500 (requests)
-- threshold: named_askers = 3 (names told in the sentence; the evidence has more)
-- silent unless: exists (from block_io where queue_ns > service_ns)
-- wrong when: a worker of the kernel writes back much at once, and nobody waits for it
with asked as (
  select device, comm, count(*) as requests, sum(bytes)::bigint as bytes, sum(queue_ns) / 1e9 as queue_s from block_io group by device, comm
), total as (
  select device, count(*) as requests, sum(queue_ns) / 1e9 as queue_s, sum(service_ns) / 1e9 as service_s, sum(bytes)::bigint as bytes,
         quantile_disc(queue_ns, 0.99) / 1e6 as p99_ms, min(ts) as ts_from, max(ts) as ts_to
  from block_io group by device
)
select 'IO-QUEUE' as id, severity_of(queue_s / w.window_s, queue_s, w.window_s) as severity,
       case when requests >= getvariable('confident_requests') then 'high' else 'medium' end as confidence,
       device as subject,
       format('{} requests waited {:.1f} s in the queue of {} ({:.2f} ms each) and were {:.1f} s in the disk ({:.2f} ms each); 99 of 100 waited at most {:.1f} ms; made by {}',
              requests, queue_s, device, queue_s / requests * 1e3, service_s, service_s / requests * 1e3, p99_ms,
              (select string_agg(format('{} {} times', a.comm, a.requests), ', ' order by a.queue_s desc, a.comm)
               from (select * from asked a where a.device = f.device order by a.queue_s desc, a.comm limit getvariable('named_askers')::int) a)) as statement,
       queue_s as cost_s, null::double as share_of_db_time, requests as samples, f.ts_from, f.ts_to,
       to_json((select list({command: a.comm, requests: a.requests, bytes: a.bytes, queue_s: round(a.queue_s, 6)} order by a.queue_s desc, a.comm)[:20]
                from asked a where a.device = f.device)) as evidence
from total f cross join capture w
where queue_s >= getvariable('io_queue_min_s') and queue_s >= getvariable('io_queue_times') * service_s
order by cost_s desc, subject
