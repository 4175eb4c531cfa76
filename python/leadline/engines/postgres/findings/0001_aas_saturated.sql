-- id: AAS-SATURATED
-- title: More active sessions than CPUs
-- question: For how long were more sessions active than the host has CPUs, and were they running, waiting for a CPU, or waiting for something else?
-- domain: postgres
-- needs: session_sample, tick
-- unit: active sessions (database time per second)
-- cost: none
-- threshold: aas_per_cpu = 1.0 (one active session per CPU; above it some sessions must be waiting)
-- threshold: aas_min_s = 30 (seconds of excess; less is a burst. In a capture under a minute, half of the capture is enough)
-- threshold: aas_least_s = 5 (with less than five seconds of excess nothing is reported, even in a short capture)
-- threshold: samples_high = 1000 (a sampling error of 3 %; every active session counts, so there are many samples)
-- threshold: samples_medium = 100 (a sampling error of 10 %)
-- threshold: aas_high = 4 (active sessions per CPU; three of four must wait)
-- threshold: aas_medium = 2 (active sessions per CPU; every other one must wait)
-- minimum: tick 30
-- evaluable when: (select coalesce(coarse_s, 1) <= 1 from capture) | it looks at single seconds, and the capture is coarser
-- evaluable when: (select cpu_count from capture) > 0 | the number of CPUs the server may use is not known
-- wrong when: the extra sessions wait on purpose (pg_sleep, a throttled vacuum) or for another machine (foreign tables, synchronous standby)
with about as (select window_s, tier, cpu_count from capture),
whole as (  -- what is left after the last whole second belongs to it: a few passes alone are no second
  select ts_from, greatest(floor(window_s)::bigint - 1, 0) as last_second from capture
),
seen as (
  select least((t.ts - c.ts_from) // 1000000000, c.last_second) as second, min(t.ts) as ts_from, max(t.ts + t.period_ns) as ts_to, sum(t.period_ns) / 1e9 as seen_s
  from tick t cross join whole c group by second
),
active as (
  select least((d.ts - c.ts_from) // 1000000000, c.last_second) as second, sum(d.samples)::bigint as samples, sum(weight_s) as db_s,
         coalesce(sum(weight_s) filter (where wait_class = 'CPU'), 0) as cpu_s, sum(cpu_run_s) as run_s, sum(cpu_queue_s) as queue_s
  from db_time d cross join whole c
  group by second
),
excess as (
  select s.*, a.* exclude (second)
  from seen s join active a using (second) cross join capture c
  where a.db_s / s.seen_s > getvariable('aas_per_cpu') * c.cpu_count
),
found as (
  select sum(seen_s) as over_s, sum(db_s) / sum(seen_s) as aas, max(db_s / seen_s) as aas_peak, sum(cpu_s) / sum(seen_s) as cpu_aas,
         sum(run_s) / sum(seen_s) as run_aas, sum(queue_s) / sum(seen_s) as queue_aas, sum(samples)::bigint as samples,
         min(ts_from) as ts_from, max(ts_to) as ts_to
  from excess
),
by_class as (
  select d.wait_class, d.event, sum(d.weight_s) as seconds, sum(d.samples)::bigint as samples
  from db_time d cross join whole c
  where least((d.ts - c.ts_from) // 1000000000, c.last_second) in (select second from excess)
  group by all
),
proof as (
  select to_json(list({wait_class: wait_class, event: event, seconds: round(seconds, 3), samples: samples}
                      order by seconds desc, wait_class, event)[:20]) as evidence
  from by_class
)
select 'AAS-SATURATED' as id,
       case when aas >= getvariable('aas_high') * c.cpu_count then 'high' when aas >= getvariable('aas_medium') * c.cpu_count then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples, high := getvariable('samples_high'), medium := getvariable('samples_medium')) as confidence,
       'server' as subject,
       format('{:.1f} sessions were active on average (at most {:.1f} in one second) on {} CPU{} for {:.0f} s of {:.0f} s: {}, {:.1f} in waits',
              aas, aas_peak, c.cpu_count, case when c.cpu_count = 1 then '' else 's' end, over_s,
              (select sum(period_ns) / 1e9 from tick),
              case when run_aas is null then format('{:.1f} on a CPU or waiting for one (not split: no scheduler times)', cpu_aas)
                   else format('{:.1f} running, {:.1f} waiting to run', run_aas, queue_aas) end,
              aas - cpu_aas) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples, ts_from, ts_to, evidence
from found cross join about c cross join proof
where over_s >= greatest(getvariable('aas_least_s'), least(getvariable('aas_min_s'), 0.5 * (select sum(period_ns) / 1e9 from tick)))
order by subject
