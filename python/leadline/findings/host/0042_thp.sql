-- id: THP
-- title: Transparent huge pages make allocations wait for compaction
-- question: Can every page fault stall to compact memory (enabled and defrag both 'always'), and did it happen in the window?
-- domain: host
-- needs: host_fact
-- unit: compaction stalls per second
-- cost: none
-- threshold: compact_stalls_per_s = 1 (one per second; such a stall takes milliseconds)
-- threshold: compact_stalls_high_per_s = 100 (at milliseconds each this is a tenth of each second or more)
-- threshold: confident_readings = 10 (readings of the counters; with fewer, a single burst determines the rate)
-- evaluable when: exists (from host_fact where name = 'thp.enabled') | this kernel has no transparent huge pages
-- silent unless: exists (from host_fact where name = 'thp.enabled' and value like '%always%' and value not like '%[madvise]%' and value not like '%[never]%')
-- wrong when: measurements showed that huge pages speed up the server's sorts and hashes, and there were no stalls
with fact as (
  select max(value) filter (where name = 'thp.enabled') as enabled, max(value) filter (where name = 'thp.defrag') as defrag from host_fact
),
counter as (
  select metric, arg_max(value, ts) - arg_min(value, ts) as grown, (max(ts) - min(ts)) / 1e9 as span_s, count(*) as readings
  from host_stat
  where metric in ('vmstat.compact_stall', 'vmstat.thp_fault_alloc', 'vmstat.thp_fault_fallback', 'vmstat.thp_collapse_alloc')
  group by metric
),
stall as (select max(grown) as stalls, max(span_s) as span_s, coalesce(max(readings), 0) as readings from counter where metric = 'vmstat.compact_stall'),
row_of_proof as (
  select name, value from host_fact where name like 'thp.%'
  union all
  select metric || ' in the window', grown::varchar from counter
),
proof as (select to_json(list({name: name, value: value} order by name)) as evidence from row_of_proof)
select 'THP' as id,
       case when stalls >= getvariable('compact_stalls_high_per_s') * span_s then 'high' when stalls >= getvariable('compact_stalls_per_s') * span_s and stalls > 0 then 'medium' else 'low' end as severity,
       case when readings >= getvariable('confident_readings') then 'high' else 'medium' end as confidence,
       'transparent huge pages' as subject,
       format('Transparent huge pages are {} with defrag {}: {}', enabled, defrag,
              case when stalls > 0 then format('processes stopped {} times to compact memory ({:.1f} a second)', stalls, stalls / span_s)
                   when readings > 1 then 'a page fault may stop to compact memory, though none did in the window'
                   else 'a page fault may stop to compact memory' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, greatest(readings, 1) as samples, c.ts_from, c.ts_to, evidence
from fact cross join stall cross join proof cross join capture c
where enabled like '%always%' and enabled not like '%[madvise]%' and enabled not like '%[never]%'
  and (defrag = 'always' or defrag like '%[always]%')
order by subject
