-- id: CPU-STEAL
-- title: The hypervisor gives this host less CPU than it asks for
-- question: How much CPU time did other virtual machines take from this one while it had work?
-- domain: host
-- needs: host_rate
-- unit: CPU seconds stolen
-- cost: CPU
-- threshold: steal_share = 0.05 (of the CPU time this host wanted: a twentieth makes every statement slower by as much)
-- threshold: steal_high_share = 0.2 (of the CPU time this host wanted: a fifth)
-- threshold: steal_min_s = 1 (CPU seconds in the window)
-- threshold: worst_readings = 3 (readings of the counters: fewer say nothing of how it comes and goes)
-- evaluable when: exists (from host_rate where metric = 'stat.cpu_steal_ns') | the kernel does not count stolen time
-- silent unless: (select 2 * sum(grown) / 1e9 >= getvariable('steal_min_s') from host_rate where metric = 'stat.cpu_steal_ns')
-- wrong when: the virtual machine is meant to have a limit, and the limit is what it pays for
with step as (
  select ts, sum(grown) filter (metric = 'stat.cpu_steal_ns') / 1e9 as stolen_s,
         sum(grown) filter (metric not in ('stat.cpu_idle_ns', 'stat.cpu_iowait_ns')) / 1e9 as wanted_s
  from host_rate where starts_with(metric, 'stat.cpu_') group by ts
),
total as (
  select sum(stolen_s) as stolen_s, sum(wanted_s) as wanted_s, max(stolen_s / nullif(wanted_s, 0)) as worst, count(*) as readings,
         min(ts) as ts_from, max(ts) as ts_to
  from step
)
select 'CPU-STEAL' as id, case when stolen_s >= getvariable('steal_high_share') * wanted_s then 'high' else 'medium' end as severity,
       case when readings >= getvariable('worst_readings') then 'high' else 'medium' end as confidence,
       'CPUs of the host' as subject,
       format('The hypervisor took {:.1f} s of the {:.1f} CPU seconds that this host wanted in {:.0f} s ({:.0f} %), up to {:.0f} % in one interval',
              stolen_s, wanted_s, w.window_s, 100 * stolen_s / wanted_s, 100 * worst) as statement,
       stolen_s as cost_s, null::double as share_of_db_time, readings as samples, t.ts_from, t.ts_to,
       to_json([{stolen_s: round(stolen_s, 3), wanted_s: round(wanted_s, 3), worst_share: round(worst, 4)}]) as evidence
from total t cross join capture w
where stolen_s >= getvariable('steal_min_s') and stolen_s >= getvariable('steal_share') * wanted_s
