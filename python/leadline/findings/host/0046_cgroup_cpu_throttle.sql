-- id: CGROUP-CPU-THROTTLE
-- title: The server uses up the CPU quota of its control group
-- question: In how many seconds did the server's processes use nearly all the CPU time that their control group may use?
-- domain: host
-- needs: host_fact, session_delta
-- unit: CPU seconds per second
-- cost: none
-- threshold: quota_use = 0.9 (90 % of the quota of a second; the group was then most likely stopped in some periods of 100 ms)
-- threshold: quota_seconds_share = 0.3 (share of the seconds measured; less is a burst)
-- threshold: quota_min_s = 5 (seconds at the quota, even in a short capture)
-- threshold: quota_high_share = 0.8 (share of the seconds measured; from here on the quota limits the server's work)
-- evaluable when: exists (from host_fact where name = 'cgroup.cpu_max') | the CPU quota of the server's control group could not be read
-- evaluable when: exists (from session_delta where cpu_run_ns is not null) | the CPU times of the sessions could not be read
-- silent unless: exists (from host_fact where name = 'cgroup.cpu_max' and try_cast(split_part(value, ' ', 1) as double) > 0)
-- wrong when: other processes of the same control group use the quota; they are not counted, so nothing is reported
with quota as (
  select value, try_cast(split_part(value, ' ', 1) as double) / nullif(try_cast(split_part(value, ' ', 2) as double), 0) as cpus
  from host_fact where name = 'cgroup.cpu_max'
),
of_session as (  -- an interval belongs to the second it ends in; two of a session in one second are averaged, not added
  select (d.ts - c.ts_from - 1) // 1000000000 as second, max(d.ts) as ts, avg(d.cpu_run_ns / d.dt_ns) as cpus, avg(d.cpu_queue_ns / d.dt_ns) as queued
  from session_delta d cross join capture c
  where d.cpu_run_ns is not null and d.dt_ns > 0 group by second, d.session_id
),
used as (select second, max(ts) as ts, sum(cpus) as cpus, coalesce(sum(queued), 0) as queued from of_session group by second),
found as (
  select q.cpus as quota_cpus, q.value as cpu_max, count(*) as seconds, count(*) filter (where u.cpus >= getvariable('quota_use') * q.cpus) as full_seconds,
         max(u.cpus) as most, avg(u.queued) filter (where u.cpus >= getvariable('quota_use') * q.cpus) as queued,
         min(u.ts) filter (where u.cpus >= getvariable('quota_use') * q.cpus) as ts_from,
         max(u.ts) filter (where u.cpus >= getvariable('quota_use') * q.cpus) as ts_to,
         to_json(list({ts_to: u.ts, cpus_used: round(u.cpus, 3), cpus_waited_for: round(u.queued, 3)} order by u.cpus desc, u.ts)[:20]) as evidence
  from used u cross join quota q
  where q.cpus > 0
  group by q.cpus, q.value
)
select 'CGROUP-CPU-THROTTLE' as id,
       case when full_seconds >= getvariable('quota_high_share') * seconds then 'high' else 'medium' end as severity,
       'medium' as confidence, 'CPU quota of the control group' as subject,
       format('The server used up its quota of {:.2f} CPUs (cpu.max {}) in {} of {} seconds, {:.2f} CPUs at most; {:.1f} processes were ready to run without a CPU in these seconds',
              quota_cpus, cpu_max, full_seconds, seconds, most, queued) as statement,
       null::double as cost_s, null::double as share_of_db_time, full_seconds as samples, ts_from, ts_to, evidence
from found
where full_seconds >= greatest(getvariable('quota_min_s'), getvariable('quota_seconds_share') * seconds)
order by subject
