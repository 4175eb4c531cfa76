-- id: TIMEOUT-REPEATED
-- title: A timeout ends the same statement again and again
-- question: Which statement is ended by a timeout and then sent again, and how much work is thrown away?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds of runs that ended at the same age without a result
-- cost: database time
-- threshold: timeout_min_s = 0.3 (seconds; samples do not tell shorter runs apart)
-- threshold: timeout_runs = 3 (runs that ended at one age: not by chance)
-- threshold: timeout_late_s = 0.1 (seconds: so late a server under load ends a statement)
-- threshold: timeout_slack = 0.02 (of the age, where that is more)
-- threshold: timeout_part = 0.5 (of the runs: most of them end so)
-- threshold: timeout_undone = 0.8 (of these runs: so many transactions were rolled back, or so many were last seen waiting for a lock; a session hands its counts over late)
-- threshold: timeout_others = 1.5 (rollbacks of the database for each of these runs; with more, others fail too and nobody knows which)
-- threshold: timeout_min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- minimum: tick 30
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where in_db_time and backend_type = 'client backend')
-- wrong when: the statement tries for a lock for a short time on purpose, and the next try succeeds
with about as (select window_s, tier, ts_to, (select 1.0 * median(period_ns) / 1e9 from tick) as period_s from capture),
base as (select sum(weight_s) as db_time_s from db_time),
limits as (
  select name, try_cast(setting as double) / 1e3 as limit_s from setting
  where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'deadlock_timeout') and unit = 'ms' and try_cast(setting as double) > 0
),
run as (  -- one statement from its beginning to the last sample that saw it at work
  select session_id, state_change, any_value(pid) as pid, any_value(datname) as datname, any_value(application_name) as application_name,
         mode(statement_id order by statement_id) as statement_id, max(state_age_s) as age_s, min(ts) as first_ts, max(ts) as last_ts, sum(weight_s) as seconds, count(*) as samples,
         arg_max(wait_class = 'Lock', ts) as is_lock
  from session_sample where state = 'active' and in_db_time and backend_type = 'client backend' and state_change is not null
  group by session_id, state_change
),
ended as materialized (
  select r.* from run r cross join about a
  where r.statement_id is not null and r.last_ts < a.ts_to - 2 * a.period_s * 1e9
),
failed as (  -- what the session was next seen in
  select e.session_id, e.state_change, s.state = 'idle in transaction (aborted)' as is_aborted
  from ended e asof join (select session_id, ts, state from session_sample where backend_type = 'client backend') s on s.session_id = e.session_id and s.ts > e.last_ts
),
longest as (select statement_id, datname, max(age_s) as limit_s, count(*) as runs from ended group by all),
cut as (  -- runs as long as the longest: something ends them
  select l.statement_id, l.datname, any_value(l.limit_s) as limit_s, any_value(l.runs) as runs, count(*) as cuts, sum(e.seconds) as cost_s, sum(e.samples)::bigint as samples, count(distinct e.session_id) as sessions,
         avg(coalesce(f.is_aborted, false)::int) as aborted_part, avg(e.is_lock::int) as lock_part, min(e.first_ts) as ts_from, max(e.last_ts) as ts_to, max(e.pid) as pid,
         mode(e.application_name order by e.application_name) as application_name,
         to_json(list({pid: e.pid, ended_after_s: round(e.age_s, 3), waited_for_lock: e.is_lock, application_name: e.application_name} order by e.first_ts, e.pid)[:20]) as evidence
  from longest l join ended e on e.statement_id = l.statement_id and e.datname is not distinct from l.datname cross join about a
  left join failed f on f.session_id = e.session_id and f.state_change = e.state_change
  where e.age_s >= l.limit_s - greatest(getvariable('timeout_late_s') + a.period_s, getvariable('timeout_slack') * l.limit_s)
  group by l.statement_id, l.datname
),
undone as (  -- a run that is ended rolls its transaction back
  select object as datname, max(delta) filter (metric = 'xact_rollback') as rollbacks, max(delta) filter (metric = 'deadlocks') as deadlocks
  from server_stat_delta where view = 'pg_stat_database' and metric in ('xact_rollback', 'deadlocks') group by object
),
named as (  -- the setting that it is, if it is one of those that hold for all. After deadlock_timeout a worker of autovacuum gives way
  select c.*, l.name as setting, l.limit_s as setting_s, coalesce(l.name <> 'deadlock_timeout', false) as is_known, l.name is not distinct from 'deadlock_timeout' as is_deadlock_timeout, u.rollbacks, u.deadlocks, s.calls
  from cut c cross join about a
  left join limits l on abs(c.limit_s - l.limit_s) <= greatest(getvariable('timeout_late_s') + a.period_s, getvariable('timeout_slack') * l.limit_s)
    and (l.name not in ('lock_timeout', 'deadlock_timeout') or c.lock_part >= getvariable('timeout_undone'))
  left join undone u using (datname) left join statement_stat s using (statement_id)
  qualify row_number() over (partition by c.statement_id, c.datname order by l.name = 'deadlock_timeout', abs(c.limit_s - l.limit_s), l.name) = 1
),
found as (
  select n.*, n.cost_s / b.db_time_s as share, left(regexp_replace(q.query, '\s+', ' ', 'g'), 160) as query, c.tier, c.window_s
  from named n cross join base b cross join about c left join statement q using (statement_id)
  where cuts >= getvariable('timeout_runs') and n.limit_s >= getvariable('timeout_min_s') and cuts >= getvariable('timeout_part') * runs
    -- what comes to its end is counted as a call, however long it takes
    and (calls is null or calls <= runs - cuts)
    and case
      -- seen until the very limit that is set; the server keeps the rollbacks of a session that touches no table to itself
      when is_known and n.limit_s >= setting_s - 2 * c.period_s then true
      when rollbacks < getvariable('timeout_undone') * cuts then false
      else calls is not null or aborted_part >= getvariable('timeout_part') or (is_known and rollbacks is not null)
        -- who waits for a lock in vain each time, and nearly all rollbacks of the database are these
        or (not is_deadlock_timeout and lock_part >= getvariable('timeout_undone') and rollbacks <= getvariable('timeout_others') * cuts) end
    and not (is_deadlock_timeout and coalesce(deadlocks, 1) > 0)
)
select 'TIMEOUT-REPEATED' as id,
       severity_of(share, cost_s, window_s) as severity,
       case when is_known and tier = 'shm' then 'high' when is_known then 'medium' else 'low' end as confidence,
       'statement ' || statement_id as subject,
       format('{} runs of one statement in {} session{} ended without a result after {:.1f} s each, {} ({:.1f} s and {:.1f} % of database time thrown away){}{}', cuts, sessions, if(sessions = 1, '', 's'), limit_s,
              case when is_known then format('which is {} ({:.1f} s)', setting, setting_s) else 'perhaps because of a timeout that the session or its client has set, or of the same error' end,
              cost_s, 100 * share,
              case when lock_part >= getvariable('timeout_part') then '; they waited for a lock when they ended' else '' end
              || case when application_name <> '' then '; application ' || application_name else '' end,
              coalesce('; ' || query, '')) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({is_lock: lock_part >= getvariable('timeout_part'), is_work: lock_part < getvariable('timeout_part'), is_known: is_known,
                application: case when application_name <> '' then application_name end, seconds: round(limit_s, 1)}) as facts
from found
where share >= getvariable('timeout_min_share')
order by cost_s desc, subject
