-- id: AUTOVACUUM-CANCELLED
-- title: Requests for locks cancel autovacuum before it is done
-- question: On which tables does autovacuum end early because a session asked for a lock, and begin anew later?
-- domain: postgres
-- needs: lock_wait, session_sample, tick
-- unit: seconds that sessions waited for locks of workers that then gave way; seconds of work thrown away are in the sentence
-- cost: database time
-- threshold: cancel_slack_s = 0.1 (seconds: between the last sample of a wait and its end, over SQL)
-- threshold: cancel_end_s = 0.5 (seconds: the worker leaves the table so soon after the wait)
-- threshold: cancel_default_s = 1 (seconds: the default of deadlock_timeout, where it was not read)
-- threshold: cancel_again = 2 (times in the window: not by chance)
-- threshold: cancel_old_s = 600 (seconds since the last vacuum of a table that is due: ten times the default of autovacuum_naptime)
-- threshold: cancel_medium_bytes = 100000000 (bytes of dead rows that wait in the table)
-- evaluable when: (select coarse_s is null from capture) or not exists (from lock_wait) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where backend_type = 'autovacuum worker') and exists (from lock_wait where blocker_kind = 'holder')
-- wrong when: a migration ran once, and the next autovacuum comes to its end
with about as (
  select c.window_s, c.tier, c.ts_to as window_to, c.wall_offset_ns,
         coalesce((select max(try_cast(setting as double)) / 1e3 from setting where name = 'deadlock_timeout'), getvariable('cancel_default_s')) as timeout_s
  from capture c
),
work as materialized (  -- each table has a transaction of its own
  select s.ts, s.session_id, s.pid, s.xact_start, s.xact_age_s, q.query
  from session_sample s join statement q using (statement_id)
  where s.backend_type = 'autovacuum worker' and s.xact_start is not null and starts_with(q.query, 'autovacuum:')
),
task as (
  select session_id, xact_start, any_value(pid) as pid, any_value(query) as query, max(ts) as last_ts, max(xact_age_s) as age_s from work
  group by session_id, xact_start having not bool_or(contains(query, '(to prevent wraparound)'))  -- it gives way to nobody
),
wait as (  -- who asked for a lock that conflicts with the worker's, and for how long
  select w.blocker_session_id as session_id, k.xact_start, w.session_id as waiter_id, any_value(w.pid) as waiter_pid, any_value(w.datid) as datid, any_value(w.relid) as relid,
         mode(w.mode order by w.mode) as mode, max(w.ts) as last_ts, min(w.ts) as first_ts, min(nullif(w.wait_start, 0)) as wait_start, count(*) as looks
  from lock_wait w join work k on k.ts = w.ts and k.session_id = w.blocker_session_id
  where w.blocker_kind = 'holder' and w.locktype = 'relation' and w.relid <> 0
  group by all
),
spell as (  -- looks at locks may be a second apart: the samples of the waiter see when its wait begins and ends
  select session_id, min(ts) as from_ts, max(ts) as to_ts
  from (
    select session_id, ts, is_wait, count(*) filter (not is_wait) over (partition by session_id order by ts) as place
    from (select session_id, ts, coalesce(wait_class = 'Lock' and wait_event = 'relation', false) as is_wait from session_sample where session_id in (select waiter_id from wait))
  ) where is_wait group by session_id, place
),
whole as (
  select w.* replace (least(w.first_ts, coalesce(s.from_ts, w.first_ts)) as first_ts, greatest(w.last_ts, coalesce(s.to_ts, w.last_ts)) as last_ts)
  from wait w left join spell s on s.session_id = w.waiter_id and w.last_ts between s.from_ts and s.to_ts
),
cancelled as (  -- the wait reached deadlock_timeout, and the worker left the table at once
  select t.*, w.* exclude (session_id, xact_start, last_ts), (w.last_ts - coalesce(w.wait_start * 1000 - a.wall_offset_ns, w.first_ts)) / 1e9 as waited_s, w.last_ts as wait_to
  from task t join whole w using (session_id, xact_start) cross join about a
  where waited_s >= a.timeout_s - getvariable('cancel_slack_s') and abs(t.last_ts - w.last_ts) / 1e9 <= getvariable('cancel_end_s')
    and t.last_ts / 1e9 <= a.window_to / 1e9 - getvariable('cancel_end_s')
  qualify row_number() over (partition by session_id, xact_start order by waited_s desc, waiter_pid) = 1
),
lost as (  -- all that waited for the worker until it gave way
  select c.session_id, c.xact_start, sum(l.wait_s) as lost_s, count(*) as samples
  from cancelled c join lock_chain l on l.root_session_id = c.session_id and l.ts between c.first_ts and c.wait_to
  group by all
),
asked as (  -- with the statement that waited
  select c.*, l.lost_s, l.samples, s.statement_id, s.application_name, r.nspname, r.relname, coalesce(r.table_relid, c.relid) as table_relid
  from cancelled c left join lost l using (session_id, xact_start)
  left join session_sample s on s.session_id = c.waiter_id and s.ts = c.wait_to
  left join relation r on r.datid = c.datid and r.relid = c.relid
),
found as (
  select datid, table_relid, count(*) as cancels, coalesce(sum(lost_s), sum(waited_s)) as cost_s, coalesce(sum(samples), sum(looks))::bigint as samples, sum(age_s) as thrown_s,
         min(first_ts) as ts_from, max(wait_to) as ts_to, arg_max(waiter_pid, wait_to) as waiter_pid, arg_max(pid, wait_to) as worker_pid, mode(mode order by mode) as mode,
         mode(statement_id order by statement_id) as statement_id, mode(application_name order by application_name) as application_name, mode(query order by query) as task,
         to_json(list({worker_pid: pid, task: query, ran_s: round(age_s, 2), waiter_pid: waiter_pid, application_name: application_name, mode: mode, waited_s: round(waited_s, 2)} order by wait_to)[:20]) as evidence
  from asked group by all
),
named as (
  select f.*, pg_ident(r.nspname) || '.' || pg_ident(r.relname) as relation, t.dead, t.dead_bytes, t.vacuumed_s, t.vacuum_at, t.vacuums,
         f.cost_s / (select sum(weight_s) from db_time) as share, left(regexp_replace(q.query, '\s+', ' ', 'g'), 120) as query
  from found f left join relation r on r.datid = f.datid and r.relid = f.table_relid
  left join table_stat t on not t.is_toast and t.relid = f.table_relid and t.relname = r.relname
  left join statement q on q.statement_id = f.statement_id
)
select 'AUTOVACUUM-CANCELLED' as id,
       case when severity_of(share, cost_s, a.window_s) = 'low' and cancels >= getvariable('cancel_again') and dead_bytes >= getvariable('cancel_medium_bytes') then 'medium'
            else severity_of(share, cost_s, a.window_s) end as severity,
       case when cancels >= getvariable('cancel_again') and a.tier = 'shm' then 'high' else 'medium' end as confidence,
       'table ' || coalesce(relation, datid || '/' || table_relid) as subject,
       format('{} gave way {} after {:.1f} s of work: {} waited {:.1f} s for its locks ({}, deadlock_timeout is {:.1f} s){}{}{}',
              task, case when cancels = 1 then 'once' else format('{} times', cancels) end, thrown_s,
              case when application_name is null or application_name = '' then 'sessions' else 'application ' || application_name end, cost_s, mode, a.timeout_s,
              case when dead > 0 then format('; {:.0f} dead rows wait, about {:.1f} MB', dead, coalesce(dead_bytes, 0) / 1048576.0) else '' end,
              case when dead is null then '' when vacuumed_s is null then '; no vacuum of it has come to its end' else format('; the last vacuum that came to its end is {:.0f} s old', vacuumed_s) end,
              coalesce('; pid ' || waiter_pid || ' asked with: ' || query, '')) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({relation: relation, waiter_pid: waiter_pid, application: case when application_name <> '' then application_name end, mode: mode}) as facts
from named cross join about a
where cancels >= getvariable('cancel_again') or (dead >= vacuum_at and coalesce(vacuumed_s, getvariable('cancel_old_s')) >= getvariable('cancel_old_s'))
order by cost_s desc, subject
