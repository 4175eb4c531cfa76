-- id: CGROUP-THROTTLED
-- title: The kernel stops a control group for its CPU quota
-- question: Which control group used up its CPU quota, for how long was it stopped, and which of its processes used it?
-- domain: host
-- needs: cgroup_delta
-- unit: part of the quota's periods in which the group was stopped
-- cost: CPU
-- threshold: throttled_part = 0.1 (of its periods: in one of ten the group stood still)
-- threshold: throttled_part_high = 0.5 (of its periods: the quota is the limit of its work)
-- threshold: throttled_min_s = 1 (seconds stopped in the window, added up over CPUs: less is a burst)
-- threshold: confident_readings = 10 (intervals with something counted)
-- threshold: named_processes = 3 (names told in the sentence; the evidence has more)
-- evaluable when: exists (from cgroup_delta where cpu_periods is not null) | no control group with a CPU quota was seen
-- silent unless: exists (select 1 from cgroup_delta group by cgroup having 2 * sum(throttled_ns) / 1e9 >= getvariable('throttled_min_s'))
-- wrong when: the quota is there on purpose, for a batch that nobody waits for
with found as (
  select cgroup, sum(cpu_periods) as periods, sum(throttled_periods) as throttled, sum(throttled_ns) / 1e9 as throttled_s, sum(cpu_ns) / 1e9 as cpu_s,
         max(cpu_max_milli) / 1000.0 as cpus, count(*) as readings, min(ts - dt_ns) as ts_from, max(ts) as ts_to,
         to_json(list({ts_to: ts, periods: cpu_periods, throttled: throttled_periods, throttled_s: round(throttled_ns / 1e9, 3)} order by throttled_ns desc, ts)
                 filter (where throttled_periods > 0)[:20]) as evidence
  from cgroup_delta group by cgroup
),
user_of as (
  select cgroup, comm, count(distinct process_id) as processes, min(pid) as pid, sum(cpu_ns) / 1e9 as cpu_s,
         row_number() over (partition by cgroup order by sum(cpu_ns) desc, comm) as place
  from process_use where cgroup is not null group by cgroup, comm
),
named as (
  select cgroup, string_agg(program(comm, processes, pid) || format(' {:.1f} s', cpu_s),
                            ', ' order by place) as processes
  from user_of where place <= getvariable('named_processes') group by cgroup
)
select 'CGROUP-THROTTLED' as id, case when throttled >= getvariable('throttled_part_high') * periods then 'high' else 'medium' end as severity,
       case when readings >= getvariable('confident_readings') then 'high' else 'medium' end as confidence,
       'CPU quota of control group ' || cgroup as subject,
       format('The kernel stopped the group in {} of {} periods, for {:.1f} s added up over CPUs{}; most CPU: {}', throttled::bigint, periods::bigint, throttled_s,
              case when cpus is not null then format('; its quota is {:.2f} CPUs', cpus) else '' end, coalesce(processes, 'not known')) as statement,
       throttled_s as cost_s, null::double as share_of_db_time, readings as samples, ts_from, ts_to, evidence
from found left join named using (cgroup)
where throttled_s >= getvariable('throttled_min_s') and throttled >= getvariable('throttled_part') * periods
order by subject
