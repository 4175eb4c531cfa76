-- id: RECLAIM-STALL
-- title: Processes had to free memory themselves before they could continue
-- question: Did processes on the host stall in direct memory reclaim, and was a checkpoint running then?
-- domain: host
-- needs: host_stat
-- unit: stalls (entries into direct reclaim) per second
-- cost: none
-- threshold: stalls_per_s = 10 (at about 1 ms each this is 1 % of each second; a healthy host has none for hours)
-- threshold: stalls_min = 50 (stalls in the window; fewer may be a single burst)
-- threshold: pressure_high_part = 0.2 (share of the time in which at least one process was stalled for memory; the same share of database time is high)
-- threshold: pressure_medium_part = 0.05 (share of the time in which at least one process was stalled for memory)
-- threshold: stalls_medium_per_s = 100 (at about 1 ms each this is a tenth of each second)
-- threshold: checkpointer_busy_part = 0.5 (share of the samples in a second; above it the checkpointer worked for most of that second)
-- threshold: confident_readings = 10 (readings of the counters; with fewer, a single burst determines the rate)
-- evaluable when: (select count(distinct ts) from host_stat where metric like 'vmstat.allocstall%') >= 3 | fewer than three readings of the kernel's reclaim counters
-- silent unless: exists (select 1 from host_stat where metric like 'vmstat.allocstall%' group by metric having max(value) > min(value))
-- wrong when: another process of the host filled the memory for a moment, such as a build or a backup
with reading as (
  select h.metric, h.ts, (h.ts - c.ts_from) // 1000000000 as second, h.value - lag(h.value) over (partition by h.metric order by h.ts) as grown
  from host_stat h cross join capture c
  where h.metric like 'vmstat.allocstall%'
     or h.metric in ('vmstat.pgscan_direct', 'vmstat.pgsteal_direct', 'vmstat.pgscan_kswapd', 'pressure.memory_some_ns', 'pressure.memory_full_ns')
),
step as (
  select second, min(ts) as ts_from, max(ts) as ts_to,
         coalesce(sum(grown) filter (where metric like 'vmstat.allocstall%'), 0)::bigint as stalls,
         coalesce(sum(grown) filter (where metric = 'vmstat.pgscan_direct'), 0)::bigint as pages_scanned,
         coalesce(sum(grown) filter (where metric = 'vmstat.pgsteal_direct'), 0)::bigint as pages_freed,
         sum(grown) filter (where metric = 'pressure.memory_some_ns') / 1e9 as pressure_s
  from reading group by second
),
checkpointing as (  -- seconds in which the checkpointer mostly worked
  select (s.ts - c.ts_from) // 1000000000 as second
  from session_sample s cross join capture c
  where s.backend_type = 'checkpointer'
  group by second having avg((s.wait_class <> 'Activity')::int) >= getvariable('checkpointer_busy_part')
),
marked as (select s.*, s.second in (select second from checkpointing) as in_checkpoint from step s),
span as (select (max(ts) - min(ts)) / 1e9 as span_s, count(distinct ts) as readings, min(ts) as ts_from, max(ts) as ts_to from reading),
found as (
  select sum(stalls)::bigint as stalls, sum(pages_scanned)::bigint as pages_scanned, sum(pages_freed)::bigint as pages_freed,
         sum(pressure_s) as pressure_s, coalesce(sum(stalls) filter (where in_checkpoint), 0)::bigint as checkpoint_stalls,
         count(*) filter (where in_checkpoint) as checkpoint_seconds,
         to_json(list({ts_from: ts_from, stalls: stalls, pages_scanned: pages_scanned, pages_freed: pages_freed,
                       memory_pressure_s: round(pressure_s, 3), in_checkpoint: in_checkpoint} order by stalls desc, ts_from)
                 filter (where stalls > 0)[:20]) as evidence
  from marked
)
select 'RECLAIM-STALL' as id,
       case when pressure_s >= getvariable('pressure_high_part') * span_s then 'high'
            when pressure_s >= getvariable('pressure_medium_part') * span_s or stalls >= getvariable('stalls_medium_per_s') * span_s then 'medium' else 'low' end as severity,
       case when readings >= getvariable('confident_readings') then 'high' else 'medium' end as confidence,
       'memory of the host' as subject,
       format('Processes of the host entered direct reclaim {} times ({:.0f} a second), {} pages scanned and {} freed{}{}', stalls, stalls / span_s,
              pages_scanned, pages_freed,
              case when pressure_s is not null then format('; some process stood still for memory during {:.1f} s of {:.0f} s', pressure_s, span_s) else '' end,
              case when checkpoint_seconds > 0 then format('; {:.0f} % of it in the {} s of checkpoints', 100.0 * checkpoint_stalls / stalls, checkpoint_seconds)
                   else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, readings as samples, ts_from, ts_to, evidence
from found cross join span
where stalls >= greatest(getvariable('stalls_min'), getvariable('stalls_per_s') * span_s)
order by subject
