-- id: SWAP
-- title: The host swaps
-- question: Were pages read back from swap, or written to it, during the window?
-- domain: host
-- needs: host_stat
-- unit: pages per second
-- cost: none
-- threshold: swap_in_per_s = 10 (for each page read back, a process waits for the disk in the middle of its work)
-- threshold: swap_out_per_s = 100 (a slow trickle of unused pages to swap is normal)
-- threshold: swap_in_high_per_s = 1000 (at 0.1 ms each this is a tenth of each second)
-- evaluable when: (select count(distinct ts) from host_stat where metric in ('vmstat.pswpin', 'vmstat.pswpout')) >= 3 | fewer than three readings of the kernel's swap counters
-- silent unless: exists (select 1 from host_stat where metric in ('vmstat.pswpin', 'vmstat.pswpout') group by metric having max(value) > min(value))
-- wrong when: swap is compressed memory (zram, zswap), or the pages belong to another process that nobody waits for
with reading as (
  select metric, ts, (ts - ts_from) // 1000000000 as second, value - lag(value) over (partition by metric order by ts) as grown
  from (select h.metric, h.ts, h.value, c.ts_from from host_stat h cross join capture c)
  where metric in ('vmstat.pswpin', 'vmstat.pswpout', 'vmstat.pgmajfault', 'vmstat.oom_kill')
),
span as (select (max(ts) - min(ts)) / 1e9 as span_s, count(distinct ts) as readings, min(ts) as ts_from, max(ts) as ts_to from reading),
step as (
  select second, min(ts) as ts_from,
         coalesce(sum(grown) filter (where metric = 'vmstat.pswpin'), 0)::bigint as pages_in,
         coalesce(sum(grown) filter (where metric = 'vmstat.pswpout'), 0)::bigint as pages_out,
         coalesce(sum(grown) filter (where metric = 'vmstat.oom_kill'), 0)::bigint as oom_kills
  from reading group by second
),
found as (
  select sum(pages_in)::bigint as pages_in, sum(pages_out)::bigint as pages_out, sum(oom_kills)::bigint as oom_kills,
         to_json(list({ts_from: ts_from, pages_in: pages_in, pages_out: pages_out} order by pages_in + pages_out desc, ts_from)
                 filter (where pages_in + pages_out > 0)[:20]) as evidence
  from step
),
fault as (select coalesce(sum(majflt), 0)::bigint as session_faults from session_delta),
fact as (
  select max(value) filter (where name = 'vm.swappiness') as swappiness, max(try_cast(value as double)) filter (where name = 'swap.total_bytes') as swap_bytes
  from host_fact
)
select 'SWAP' as id,
       case when pages_in >= getvariable('swap_in_high_per_s') * span_s then 'high' when pages_in >= getvariable('swap_in_per_s') * span_s then 'medium' else 'low' end as severity,
       case when session_faults > 0 then 'high' else 'medium' end as confidence,
       'memory of the host' as subject,
       format('{} pages ({:.0f} a second) were read back from swap and {} ({:.0f} a second) pushed out to it; the sessions had {} page faults with I/O{}{}',
              pages_in, pages_in / span_s, pages_out, pages_out / span_s, session_faults,
              case when swappiness is not null then '; vm.swappiness is ' || swappiness else '' end,
              case when oom_kills > 0 then format('; the kernel killed {} process{} for lack of memory', oom_kills, case when oom_kills = 1 then '' else 'es' end)
                   else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, readings as samples, ts_from, ts_to, evidence
from found cross join span cross join fault cross join fact
where pages_in >= getvariable('swap_in_per_s') * span_s or pages_out >= getvariable('swap_out_per_s') * span_s
order by subject
