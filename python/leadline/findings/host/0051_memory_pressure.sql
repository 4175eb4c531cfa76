-- id: MEMORY-PRESSURE
-- title: Processes stand still for memory
-- question: How long did processes stand still because memory had to be freed or read back first, and who uses the memory?
-- domain: host
-- needs: host_stat
-- unit: part of the time in which some process stood still for memory; limits of control groups reached
-- cost: wall time
-- threshold: stalled_part = 0.05 (of the time some process stood still for memory: less is hard to notice)
-- threshold: stalled_part_high = 0.2 (of the time: without it a fifth more gets done)
-- threshold: limit_hits_per_s = 10 (times a second that a control group reached its limit: at some 1 ms each, 1 % of a second)
-- threshold: confident_readings = 10 (readings of the counters: with fewer a single burst makes the rate)
-- threshold: named_processes = 3 (names told in the sentence; the evidence has more)
-- evaluable when: (select count(distinct ts) from host_stat where metric = 'pressure.memory_some_ns') >= 2 or exists (from cgroup_delta where memory_limit_hits is not null) | this kernel counts neither pressure (/proc/pressure) nor limits reached by control groups
-- silent unless: (select 2 * (max(value) - min(value)) >= getvariable('stalled_part') * (max(ts) - min(ts)) from host_stat where metric = 'pressure.memory_some_ns') or exists (from cgroup_delta where memory_limit_hits > 0 or oom_kills > 0) or getvariable('limit_hits_per_s') <= 0
-- wrong when: a control group has its limit so that a batch or a backup does not fill the page cache, and nobody waits for it
with process_memory as (
  select process_id, any_value(pid) as pid, any_value(comm) as comm, any_value(cgroup) as cgroup, max(rss_bytes) as rss_bytes, sum(majflt) as majflt,
         sum(read_bytes) as read_bytes
  from process_use where process_id is not null and not kernel group by process_id
),
host_found as (
  select sum(grown) filter (where metric = 'pressure.memory_some_ns') / 1e9 as stalled_s,
         sum(grown) filter (where metric = 'pressure.memory_full_ns') / 1e9 as all_stalled_s,
         coalesce(sum(grown) filter (where metric like 'vmstat.allocstall%'), 0)::bigint as stalls,
         coalesce(sum(grown) filter (where metric like 'vmstat.workingset_refault%'), 0)::bigint as refaults,
         coalesce(sum(grown) filter (where metric in ('vmstat.pswpin', 'vmstat.pswpout')), 0)::bigint as swapped,
         coalesce(sum(grown) filter (where metric = 'vmstat.oom_kill'), 0)::bigint as oom_kills,
         -- of the whole host: reclaim for the limit of a group is not counted here (mm/vmscan.c, cgroup_reclaim)
         coalesce(sum(grown) filter (where metric in ('vmstat.pgscan_kswapd', 'vmstat.pgscan_direct') or metric like 'vmstat.allocstall%'), 1) > 0 as host_is_short,
         count(distinct ts) as readings, min(ts - dt_ns) as ts_from, max(ts) as ts_to, (max(ts) - min(ts - dt_ns)) / 1e9 as span_s
  from host_rate
),
group_found as (
  select cgroup, sum(memory_limit_hits)::bigint as hits, coalesce(sum(oom_kills), 0)::bigint as oom_kills, max(memory_bytes) as memory_bytes,
         max(memory_max_bytes) as memory_max_bytes, sum(memory_pressure_ns) / 1e9 as stalled_s,
         count(*) as readings, min(ts - dt_ns) as ts_from, max(ts) as ts_to
  from cgroup_delta group by cgroup
),
cause as (  -- where only groups at their limit had to free memory, the host's time of stalls is theirs
  select h.stalled_s >= getvariable('stalled_part') * h.span_s as is_stalled, h.host_is_short or not exists (from group_found where hits > 0) as of_host from host_found h
),
limited as (  -- the groups of version 1 have no time of stalls; that of the host is the group's where no other reached its limit
  select g.*, h.span_s, coalesce(g.stalled_s, case when count(*) over () = 1 then h.stalled_s end) as lost_s,
         case when g.stalled_s is null and h.stalled_s is not null
              then format('; some process of the host stood still for memory during {:.1f} s', h.stalled_s) else '' end as of_the_host
  from group_found g cross join host_found h cross join cause
  where (g.hits >= getvariable('limit_hits_per_s') * h.span_s or g.oom_kills > 0 or (g.hits > 0 and is_stalled and not of_host))
    -- groups of version 2 count the hits of those below them, too
    and not exists (from group_found below where starts_with(below.cgroup, rtrim(g.cgroup, '/') || '/') and below.hits >= g.hits and below.oom_kills >= g.oom_kills)
),
found as (
  select 'memory of the host' as subject, stalled_s as cost_s, stalled_s >= getvariable('stalled_part_high') * span_s as is_high, readings, ts_from, ts_to,
         null as cgroup,
         format('Some process stood still for memory during {:.1f} s of {:.0f} s, all at once during {:.1f} s; {} entries into direct reclaim, {} pages read back, {} swapped{}',
                stalled_s, span_s, coalesce(all_stalled_s, 0), stalls, refaults, swapped,
                case when oom_kills > 0 then format(', {} killed for lack of memory', oom_kills) else '' end) as statement
  from host_found cross join cause where is_stalled and of_host
  union all
  select 'memory of control group ' || cgroup, case when g.lost_s > 0 then g.lost_s end, g.oom_kills > 0 or coalesce(g.lost_s, 0) >= getvariable('stalled_part_high') * g.span_s, g.readings, g.ts_from, g.ts_to, cgroup,
         format('The group reached its limit of memory {} times ({:.0f} a second){}{}{}', hits, hits / g.span_s,
                case when g.memory_max_bytes is not null then format(', {:.0f} MB used of {:.0f} MB', g.memory_bytes / 1048576.0, g.memory_max_bytes / 1048576.0) else '' end,
                case when g.oom_kills > 0 then format(', and {} of its processes killed for lack of memory', g.oom_kills) else '' end, g.of_the_host)
  from limited g
),
named as (
  select f.subject,
         string_agg(format('{} (pid {}) {:.0f} MB', m.comm, m.pid, m.rss_bytes / 1048576.0), ', ' order by m.rss_bytes desc, m.pid)
           filter (where m.place <= getvariable('named_processes')) as processes,
         to_json(list({command: m.comm, pid: m.pid, rss_bytes: m.rss_bytes, faults_with_io: m.majflt, read_bytes: m.read_bytes} order by m.place)[:20]) as evidence
  from found f left join lateral (
    select *, row_number() over (order by rss_bytes desc, pid) as place from process_memory p
    where f.cgroup is null or p.cgroup = f.cgroup or starts_with(p.cgroup, rtrim(f.cgroup, '/') || '/')
  ) m on true
  group by f.subject
)
select 'MEMORY-PRESSURE' as id, case when is_high then 'high' else 'medium' end as severity,
       case when readings >= getvariable('confident_readings') then 'high' else 'medium' end as confidence, f.subject,
       f.statement || case when n.processes is not null then '; largest: ' || n.processes else '' end as statement,
       f.cost_s, null::double as share_of_db_time, f.readings as samples, f.ts_from, f.ts_to, n.evidence
from found f join named n using (subject)
order by subject
