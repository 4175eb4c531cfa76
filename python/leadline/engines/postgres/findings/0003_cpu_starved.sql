-- id: CPU-STARVED
-- title: Sessions are ready to run but wait for a CPU
-- question: How much of the time without a wait event did sessions spend waiting for a CPU?
-- domain: postgres
-- needs: session_sample, session_delta, tick
-- unit: seconds ready to run but waiting for a CPU
-- cost: database time
-- threshold: queue_share = 0.2 (a fifth of runnable time in the run queue; every CPU-bound step takes a quarter longer)
-- threshold: queue_sessions = 0.2 (sessions in the run queue on average; fewer have no visible effect on response times)
-- threshold: queue_db_share = 0.05 (5 % of database time)
-- threshold: samples_high = 1000 (a sampling error of 3 %; every active session counts, so there are many samples)
-- threshold: samples_medium = 100 (a sampling error of 10 %)
-- threshold: steal_part = 0.05 (share of CPU time taken by the hypervisor; below it steal time does not explain a queue and is not mentioned)
-- minimum: tick 30
-- evaluable when: exists (from session_delta where cpu_queue_ns is not null) | the scheduler times of the sessions could not be read (/proc/PID/schedstat), so CPU cannot be split into running and waiting to run
-- wrong when: another process on the host used the CPUs only during the capture
with about as (select window_s, tier, cpu_count from capture),
observed as (select sum(period_ns) / 1e9 as observed_s, min(ts) as first_ts from tick),
base as (select sum(weight_s) as db_time_s from db_time),
runnable as (select * from db_time where cpu_queue_s is not null),
found as (
  select (select sum(run_s) from session_queue where session_id in (select session_id from runnable)) as run_s,
         sum(cpu_queue_s) as queue_s, sum(samples)::bigint as samples, min(ts) as ts_from, max(ts) as ts_to
  from runnable
),
used as (select sum(cpu_run_ns) / 1e9 as sessions_cpu_s from session_delta),
counter as (  -- of the whole host
  select metric, (arg_max(value, ts) - arg_min(value, ts)) / 1e9 as seconds
  from host_stat where metric like 'stat.cpu\_%\_ns' escape '\'
  group by metric
),
host as (
  select sum(seconds) filter (where metric not in ('stat.cpu_idle_ns', 'stat.cpu_iowait_ns', 'stat.cpu_steal_ns')) as busy_s,
         sum(seconds) filter (where metric = 'stat.cpu_steal_ns') as steal_s
  from counter
),
spender as (
  select application_name, backend_type, statement_id, sum(cpu_run_s) as run_s, sum(cpu_queue_s) as queue_s, sum(samples)::bigint as samples
  from runnable group by all
),
proof as (
  select to_json(list({application_name: application_name, backend_type: backend_type, statement_id: statement_id,
                       query: left(regexp_replace(q.query, '\s+', ' ', 'g'), 200),
                       running_s: round(run_s, 3), waiting_to_run_s: round(queue_s, 3), samples: samples}
                      order by queue_s desc, application_name, backend_type, statement_id)[:20]) as evidence
  from spender left join statement q using (statement_id)
),
named as (select *, queue_s / db_time_s as share from found cross join base)
select 'CPU-STARVED' as id,
       severity_of(share, queue_s, c.window_s) as severity,
       confidence_of(c.tier, samples, high := getvariable('samples_high'), medium := getvariable('samples_medium')) as confidence,
       'CPUs of the host' as subject,
       format('Sessions were ready to run but waited for a CPU for {:.1f} s ({:.0f} % of the time they could have run, {:.1f} % of database time), {:.1f} sessions on average{}{}{}',
              queue_s, 100 * queue_s / (run_s + queue_s), 100 * share, queue_s / observed_s,
              case when c.cpu_count > 0 then format(', on {} CPU{}', c.cpu_count, case when c.cpu_count = 1 then '' else 's' end) else '' end,
              case when busy_s is not null then format('; the sessions used {:.1f} s of the {:.1f} CPU seconds that were busy on the host', sessions_cpu_s, busy_s)
                   else '' end,
              case when steal_s >= getvariable('steal_part') * (busy_s + steal_s) then format('; the hypervisor took {:.1f} s away', steal_s) else '' end) as statement,
       queue_s as cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from named cross join observed cross join used cross join host cross join about c cross join proof
where queue_s >= getvariable('queue_share') * (run_s + queue_s)
  and queue_s >= getvariable('queue_sessions') * observed_s
  and share >= getvariable('queue_db_share')
order by subject
