-- id: INTERRUPT-LOAD
-- title: Interrupts take much CPU time
-- question: How much CPU time went to interrupts and soft interrupts, and which kind of them grew most?
-- domain: host
-- needs: host_rate
-- unit: CPU seconds in interrupts
-- cost: CPU
-- threshold: interrupt_share = 0.15 (of the CPU time that was used: what programs do not get)
-- threshold: interrupt_high_share = 0.35 (of the CPU time that was used: a third)
-- threshold: interrupt_min_s = 1 (CPU seconds in the window)
-- threshold: named_kinds = 3 (kinds told in the sentence; the evidence has more)
-- silent unless: (select 2 * sum(grown) / 1e9 >= getvariable('interrupt_min_s') from host_rate where metric in ('stat.cpu_softirq_ns', 'stat.cpu_irq_ns'))
-- wrong when: the host is a router, a load balancer or a storage server, whose work this is
with total as (
  select sum(grown) filter (metric in ('stat.cpu_softirq_ns', 'stat.cpu_irq_ns')) / 1e9 as interrupts_s,
         sum(grown) filter (metric not in ('stat.cpu_idle_ns', 'stat.cpu_iowait_ns', 'stat.cpu_steal_ns')) / 1e9 as used_s,
         count(distinct ts) as readings, min(ts) as ts_from, max(ts) as ts_to
  from host_rate where starts_with(metric, 'stat.cpu_')
),
kind as (
  select split_part(metric, '.', 2) as name, sum(grown)::bigint as times, sum(grown) / any_value(c.window_s) as per_s
  from host_rate cross join capture c where starts_with(metric, 'softirq.') group by name having sum(grown) > 0
)
select 'INTERRUPT-LOAD' as id, case when interrupts_s >= getvariable('interrupt_high_share') * used_s then 'high' else 'medium' end as severity,
       'high' as confidence, 'CPUs of the host' as subject,
       format('Interrupts took {:.1f} s of the {:.1f} CPU seconds that were used in {:.0f} s ({:.0f} %){}', interrupts_s, used_s, w.window_s,
              100 * interrupts_s / used_s,
              coalesce('; most frequent soft interrupts: ' ||
                (select string_agg(format('{} {:.0f} a second', name, per_s), ', ' order by per_s desc, name)
                 from (from kind order by per_s desc, name limit getvariable('named_kinds')::int)), '')) as statement,
       interrupts_s as cost_s, null::double as share_of_db_time, readings as samples, t.ts_from, t.ts_to,
       coalesce(to_json((select list({kind: name, times: times, per_second: round(per_s, 1)} order by per_s desc, name) from kind)), '[]') as evidence
from total t cross join capture w
where interrupts_s >= getvariable('interrupt_min_s') and interrupts_s >= getvariable('interrupt_share') * used_s
