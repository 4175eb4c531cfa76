-- id: REPLAY-CPU-STARVED
-- title: Replay on this standby is ready to run and gets no CPU
-- question: How long did the startup process wait for a CPU while it had WAL to replay?
-- domain: postgres
-- needs: session, replay_cpu, tick
-- unit: seconds that the startup process was ready to run and had no CPU
-- cost: wall time
-- threshold: starved_share = 0.1 (of the time in which it ran, was ready to run or waited for something else than WAL)
-- threshold: starved_part = 0.05 (of the capture; with less, replay catches up by itself)
-- threshold: starved_s = 1.0 (seconds; any process of a busy host waits now and then)
-- threshold: starved_lag_s = 2 (seconds behind at the end: then it is medium)
-- threshold: starved_medium_part = 0.2 (of the capture, where nobody knows how far it is behind)
-- evaluable when: not exists (from session where backend_type = 'startup') or exists (from replay_cpu) | the scheduler times of the startup process could not be read (/proc/PID/schedstat)
-- silent unless: exists (from session where backend_type = 'startup')
-- wrong when: other programs use the CPUs during the capture only
with used as (
  select sum(run_s) as run_s, sum(queue_s) as queue_s, sum(wait_s) as wait_s, count(*) as samples, min(ts_from) as ts_from, max(ts) as ts_to, any_value(pid) as pid from replay_cpu
),
-- A quota of its control group stops it, too: the scheduler counts that time as ready to run.
of_group as (
  select arg_max(cgroup, ts) as name from process where pid = (select pid from used) and not kernel
),
quota as (
  select any_value(g.name) as name, sum(d.throttled_ns) / 1e9 as stopped_s, arg_max(d.cpu_max_milli, d.ts) / 1000.0 as cpus
  from cgroup_delta d join of_group g on d.cgroup = g.name having sum(d.throttled_ns) > 0
),
behind as (select arg_max(lag_s, ts) as lag_s from replication_lag where is_standby and node = 1),
found as (
  select u.*, q.name, q.stopped_s, q.cpus, b.lag_s, c.cpu_count, c.window_s, c.tier, u.queue_s / (u.run_s + u.queue_s + u.wait_s) as share
  from used u left join quota q on true cross join behind b cross join (select cpu_count, window_s, tier from capture) c
)
select 'REPLAY-CPU-STARVED' as id,
       case when coalesce(lag_s >= getvariable('starved_lag_s'), queue_s >= getvariable('starved_medium_part') * window_s) then 'medium' else 'low' end as severity,
       'high' as confidence, 'replay' as subject,
       format('Replay was ready to run and had no CPU for {:.1f} s ({:.0f} % of the time in which it had work; it ran for {:.1f} s){}{}{}', queue_s, 100 * share, run_s,
              case when cpu_count > 0 then format(', on {} CPU{}', cpu_count, if(cpu_count = 1, '', 's')) else '' end,
              case when stopped_s is not null then format('; its control group {}{} was stopped by its quota for {:.1f} s', name, coalesce(format(' ({:.2f} CPUs)', cpus), ''), stopped_s) else '' end,
              case when lag_s is null then '' else format('; at the end this standby was {:.1f} s behind', lag_s) end) as statement,
       queue_s as cost_s, null::double as share_of_db_time, samples::bigint as samples, ts_from, ts_to,
       to_json([{pid: pid, queue_s: round(queue_s, 3), run_s: round(run_s, 3), other_waits_s: round(wait_s, 3), cgroup: name, throttled_s: round(stopped_s, 3), lag_s: round(lag_s, 1)}]) as evidence,
       to_json({is_quota: stopped_s is not null, cgroup: name, pid: pid}) as facts
from found
where queue_s >= getvariable('starved_share') * (run_s + queue_s + wait_s) and queue_s >= getvariable('starved_s') and queue_s >= getvariable('starved_part') * window_s
order by subject
