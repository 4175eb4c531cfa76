-- id: ZONE-RECLAIM
-- title: The kernel frees memory of one node before it uses another
-- question: Is vm.zone_reclaim_mode on, so that the kernel throws away page cache while other memory is free?
-- domain: host
-- needs: host_fact
-- unit: kernel setting; reclaims counted in the window
-- cost: none
-- threshold: zone_reclaim_off = 0 (kernel documentation: 0 is the default, and the right value for file servers and databases)
-- evaluable when: exists (from host_fact where name = 'vm.zone_reclaim_mode') | this kernel has no vm.zone_reclaim_mode (built without NUMA)
-- silent unless: exists (from host_fact where name = 'vm.zone_reclaim_mode' and try_cast(value as int) <> getvariable('zone_reclaim_off'))
-- wrong when: each server is bound to one node on purpose and fits into it
with fact as (
  select max(value) filter (where name = 'vm.zone_reclaim_mode') as mode,
         coalesce(max(try_cast(value as int)) filter (where name = 'numa.nodes'), 1) as nodes
  from host_fact
),
counter as (
  select metric, arg_max(value, ts) - arg_min(value, ts) as grown, count(*) as readings
  from host_stat
  where metric in ('vmstat.zone_reclaim_success', 'vmstat.zone_reclaim_failed', 'vmstat.pgscan_direct', 'vmstat.pgscan_kswapd')
  group by metric
),
reclaim as (
  select sum(grown) filter (where metric like 'vmstat.zone\_reclaim\_%' escape '\') as reclaims, coalesce(max(readings), 0) as readings from counter
),
row_of_proof as (
  select name, value from host_fact
  where name in ('vm.zone_reclaim_mode', 'vm.min_free_kbytes', 'memory.total_bytes') or name like 'numa.%'
  union all
  select metric || ' in the window', grown::varchar from counter
),
proof as (select to_json(list({name: name, value: value} order by name)) as evidence from row_of_proof)
select 'ZONE-RECLAIM' as id,
       case when reclaims > 0 then 'high' when nodes > 1 then 'medium' else 'low' end as severity,
       'high' as confidence, 'vm.zone_reclaim_mode' as subject,
       format('vm.zone_reclaim_mode is {} on a host with {} memory node{}{}', mode, nodes, case when nodes = 1 then '' else 's' end,
              case when reclaims > 0 then format(': the kernel went into zone reclaim {} times in the window', reclaims::bigint)
                   when readings > 1 then '; no zone reclaim happened in the window' else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, greatest(readings, 1) as samples, c.ts_from, c.ts_to, evidence
from fact cross join reclaim cross join proof cross join capture c
where try_cast(mode as int) <> getvariable('zone_reclaim_off')
order by subject
