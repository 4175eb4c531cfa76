-- id: DEVICE-SATURATED
-- title: A block device is busy most of the time
-- question: Which device was busy most of the time, how long did its requests take, and which processes made them?
-- domain: host
-- needs: device_delta
-- unit: part of the time with a request at the device; requests at it
-- cost: bytes
-- threshold: busy_part = 0.6 (of an interval with a request at the device; Gregg, Systems Performance, 2.3: an average above it hides bursts of 100 % in which requests queue)
-- threshold: full_part = 0.9 (of an interval: the device had next to no rest)
-- threshold: busy_queue = 0.5 (requests at the device on average: one process that asks for one after the other is at 1 less its own work between them)
-- threshold: busy_min_s = 3 (seconds in such intervals: less is a burst)
-- threshold: busy_share = 0.3 (of the window)
-- threshold: queue_high = 4 (requests at the device on average: three wait while one is served, or it does several at once and is slow)
-- threshold: service_high_ms = 10 (a request takes as long as a seek of a disk)
-- threshold: confident_readings = 10 (intervals: with fewer a single burst makes the figure)
-- threshold: named_processes = 3 (names told in the sentence; the evidence has more)
-- silent unless: exists (select 1 from device_delta where dt_ns > 0 and busy_ns / dt_ns >= getvariable('busy_part') and queue_ns / dt_ns >= getvariable('busy_queue') group by device having 2 * sum(dt_ns) / 1e9 >= getvariable('busy_min_s'))
-- wrong when: the device does many requests at once (NVMe, arrays, cloud volumes): all the time one request is then far from its limit, so look at the time a request takes
with step as (
  select device, ts, dt_ns, busy_ns / dt_ns as busy, queue_ns / dt_ns as queue, queue_ns, reads + writes as requests, read_bytes, write_bytes,
         read_ns + write_ns as request_ns, flushes
  from device_delta where dt_ns > 0
),
full_step as (from step where busy >= getvariable('busy_part') and queue >= getvariable('busy_queue')),
found as (
  select s.device, sum(s.dt_ns) / 1e9 as busy_s, sum(s.queue_ns) / 1e9 as queued_s, sum(s.queue_ns) / sum(s.dt_ns) as queue, sum(s.busy * s.dt_ns) / sum(s.dt_ns) as busy, sum(s.requests)::bigint as requests,
         sum(s.read_bytes) as read_bytes, sum(s.write_bytes) as write_bytes, sum(s.request_ns) / nullif(sum(s.requests), 0) / 1e6 as request_ms,
         count(*) as readings, min(s.ts - s.dt_ns) as ts_from, max(s.ts) as ts_to,
         to_json(list({ts_to: s.ts, busy: round(s.busy, 3), queue: round(s.queue, 2), requests: s.requests, read_bytes: s.read_bytes, write_bytes: s.write_bytes,
                       flushes: s.flushes} order by s.queue desc, s.ts)[:20]) as evidence
  from full_step s group by s.device
),
user_of as (  -- bytes are counted per process and not per device: those of the same moments
  select f.device, u.comm, count(distinct u.process_id) + coalesce(sum(u.processes) filter (where u.process_id is null), 0) as processes, min(u.pid) as pid,
         sum(u.read_bytes) as read_bytes, sum(u.write_bytes) as write_bytes, sum(u.blkio_delay_ns) / 1e9 as waited_s,
         sum(u.dt_ns) filter (where u.state = 'D') / 1e9 as seen_waiting_s
  from full_step f join process_use u on u.ts = f.ts
  group by f.device, u.comm having sum(u.read_bytes + u.write_bytes) > 0
),
named as (
  select device, string_agg(program(comm, processes, pid)
                            || format(' {:.0f} MB', (read_bytes + write_bytes) / 1048576.0)
                            || case when coalesce(waited_s, seen_waiting_s, 0) > 0 then format(', waited {:.1f} s', coalesce(waited_s, seen_waiting_s)) else '' end,
                            '; ' order by read_bytes + write_bytes desc, comm) as processes
  from (select *, row_number() over (partition by device order by read_bytes + write_bytes desc, comm) as place from user_of)
  where place <= getvariable('named_processes') group by device
)
select 'DEVICE-SATURATED' as id,
       case when queue >= getvariable('queue_high') or request_ms >= getvariable('service_high_ms') then 'high'
            when busy >= getvariable('full_part') then 'medium' else 'low' end as severity,
       case when readings >= getvariable('confident_readings') then 'high' else 'medium' end as confidence,
       'device ' || f.device as subject,
       format('{} was busy {:.0f} % of the time in {:.0f} s of {:.0f} s: {:.0f} requests and {:.0f} MB a second, {:.1f} at the device, {:.2f} ms each; {}',
              f.device, 100 * least(busy, 1), busy_s, c.window_s, requests / busy_s, (read_bytes + write_bytes) / 1048576.0 / busy_s, queue, coalesce(request_ms, 0),
              coalesce('by ' || n.processes, 'no process is known to have read or written storage then')) as statement,
       queued_s as cost_s, null::double as share_of_db_time, readings as samples, f.ts_from, f.ts_to, f.evidence
from found f left join named n using (device) cross join capture c
where busy_s >= greatest(getvariable('busy_min_s'), getvariable('busy_share') * c.window_s)
order by subject
