-- id: LARGE-IO
-- title: Small requests wait behind large ones
-- question: On which disk did small requests take longer because large ones were there, and who asked for those?
-- domain: kernel
-- needs: block_io
-- unit: seconds that small requests took longer
-- cost: wall time
-- threshold: large_bytes = 1048576 (bytes: 1 MB, at which a disk is busy for milliseconds)
-- threshold: small_request_bytes = 65536 (bytes: pages and writes of WAL)
-- threshold: behind_large_min = 20 (small requests beside large ones, and as many without: fewer say nothing)
-- threshold: behind_large_min_s = 0.5 (seconds in the window: less is a burst)
-- threshold: behind_large_times = 2 (times as long as without them at the median)
-- threshold: confident_behind_large = 200 (small requests)
-- silent unless: exists (from block_io where bytes >= getvariable('large_bytes'))
-- wrong when: a backup or load is meant to have the disk, and the small requests can wait
with small as (
  select device, ts, queue_ns + service_ns as took_ns from block_io where bytes between 1 and getvariable('small_request_bytes')
), large as (
  select device, comm, bytes, ts - service_ns as ts_from, ts as ts_to from block_io where bytes >= getvariable('large_bytes')
), busy as (  -- spans with large requests in the device, joined where they overlap
  select device, min(ts_from) as ts_from, max(ts_to) as ts_to
  from (select *, sum(case when ts_from > reached then 1 else 0 end) over (partition by device order by ts_from) as span
        from (select *, coalesce(max(ts_to) over (partition by device order by ts_from rows between unbounded preceding and 1 preceding), 0) as reached
              from large))
  group by device, span
), seen as (  -- the last span that began before the small request was done
  select s.device, s.ts, s.took_ns, coalesce(b.ts_to > s.ts - s.took_ns, false) as behind
  from small s asof left join busy b on s.device = b.device and s.ts >= b.ts_from
), usual as (
  select device, median(took_ns) as took_ns, count(*) as requests from seen where not behind group by device
), total as (
  select s.device, count(*) as requests, median(s.took_ns) / 1e6 as behind_ms, any_value(u.took_ns) / 1e6 as usual_ms,
         sum(greatest(s.took_ns - u.took_ns, 0)) / 1e9 as longer_s, any_value(u.requests) as others, min(s.ts) as ts_from, max(s.ts) as ts_to
  from seen s join usual u using (device) where s.behind group by s.device
), asked as (
  select device, comm, count(*) as requests, sum(bytes)::bigint as bytes from large group by device, comm
)
select 'LARGE-IO' as id, severity_of(longer_s / w.window_s, longer_s, w.window_s) as severity,
       case when requests >= getvariable('confident_behind_large') then 'high' else 'medium' end as confidence,
       device as subject,
       format('{} small requests of {} took {:.2f} ms at the median while it had requests of 1 MB and more, and {:.2f} ms otherwise: {:.1f} s longer; {}',
              requests, device, behind_ms, usual_ms, longer_s,
              (select format('{} asked for most of the large ones ({}, {:.0f} MB)', arg_max(a.comm, a.bytes), arg_max(a.requests, a.bytes), max(a.bytes) / 1048576.0)
               from asked a where a.device = f.device)) as statement,
       longer_s as cost_s, null::double as share_of_db_time, requests as samples, f.ts_from, f.ts_to,
       to_json((select list({command: a.comm, requests: a.requests, bytes: a.bytes} order by a.bytes desc, a.comm)[:20]
                from asked a where a.device = f.device)) as evidence
from total f cross join capture w
where least(requests, others) >= getvariable('behind_large_min') and longer_s >= getvariable('behind_large_min_s')
  and behind_ms >= getvariable('behind_large_times') * usual_ms
order by cost_s desc, subject
