-- id: AUTOVACUUM-BLOCKED
-- title: Vacuum comes to a table but may not remove its dead rows, or cannot lock it
-- question: Which tables keep their dead rows although autovacuum is on, and who is in its way?
-- domain: postgres
-- needs: server_stat, session_sample, tick
-- unit: bytes of dead rows (an estimate); seconds that workers waited for a lock
-- cost: none
-- threshold: blocked_dead_rows = 10000 (dead rows; they fill some hundred pages)
-- threshold: blocked_lock_s = 60 (seconds that a transaction with the lock is open: autovacuum_naptime, so that a worker came by)
-- threshold: blocked_medium_bytes = 100000000 (bytes of dead rows; scans then read 95 MB more than they need)
-- threshold: blocked_high_bytes = 1000000000 (bytes of dead rows)
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from server_stat where view in ('pg_stat_user_tables', 'pg_stat_toast_tables') and metric = 'n_dead_tup' and value >= getvariable('blocked_dead_rows'))
-- wrong when: the holder ended shortly after the capture; the next vacuum then removes the rows
with due as (  -- one row for each relation: its TOAST table is vacuumed with it
  select table_name, any_value(datname) as datname, any_value(relid) filter (not is_toast) as relid, sum(dead) as dead, sum(dead_bytes) as dead_bytes, sum(live) as live,
         sum(dead_growth) as growth, min(vacuumed_s) as vacuumed_s, sum(vacuums) as vacuums, max(dt_s) as dt_s
  from table_stat where not is_catalog and not is_partitioned and not is_off and dead >= greatest(getvariable('blocked_dead_rows'), vacuum_at)
  group by table_name
),
holder as (  -- the oldest snapshot or transaction of each session at the end
  select pid, any_value(datname) as datname, any_value(application_name) as application_name, arg_max(coalesce(state, backend_type), ts) as state,
         -- as old as when the tables were read, a moment after the last sample
         arg_max(case when backend_xid is not null or state <> 'active' then xact_age_s else query_age_s end, ts)
           + greatest((select max(ts) from server_stat where view = 'pg_stat_user_tables' and phase = 'after') - max(ts), 0) / 1e9 as age_s, arg_max(statement_id, ts) as statement_id, max(ts) as last_ts
  from session_sample
  where (backend_xmin is not null or backend_xid is not null) and backend_type not in ('autovacuum worker', 'walsender')
  group by pid, session_id having max(ts) >= (select max(ts) from tick) - 1e9
),
by_horizon as (  -- a vacuum ended while the holder was there, and the rows are still there
  select d.*, h.pid, h.application_name, h.state, h.age_s, h.statement_id, 'horizon' as kind, null::double as wait_s, null::varchar as mode
  from due d join holder h on h.datname = d.datname and h.age_s > d.vacuumed_s and d.vacuumed_s is not null
  left join statement q using (statement_id) where coalesce(q.query not ilike 'vacuum%', true)
),
locked as (  -- held by the same process at both readings
  select regexp_extract(object, '^([0-9]+)/([0-9]+)/', ['relid', 'pid']) as key, split_part(object, '/', 3) as mode, max(value) filter (metric = 'xact_age_s' and phase = 'after') as age_s
  from server_stat where view = 'pg_locks' group by object having count(distinct phase) = 2
),
by_lock as (
  select d.*, l.key.pid::int as pid, s.application_name, s.state, l.age_s, s.statement_id, 'lock' as kind, null::double as wait_s, l.mode
  from due d join locked l on l.key.relid::bigint = d.relid
  left join (select pid, any_value(application_name) as application_name, arg_max(state, ts) as state, arg_max(statement_id, ts) as statement_id from session_sample group by pid) s
    on s.pid = l.key.pid::int
  where l.age_s >= getvariable('blocked_lock_s') and (d.vacuumed_s is null or d.vacuumed_s > l.age_s)
),
ranked as (
  select *, row_number() over (partition by table_name order by kind = 'lock' desc, age_s desc, pid) as place, count(*) over (partition by table_name) as holders
  from (select * from by_horizon union all by name select * from by_lock)
)
select 'AUTOVACUUM-BLOCKED' as id,
       case when dead_bytes >= getvariable('blocked_high_bytes') then 'high' when dead_bytes >= getvariable('blocked_medium_bytes') or dead >= live then 'medium' else 'low' end as severity,
       case when kind = 'lock' then 'medium' else 'high' end as confidence, 'table ' || table_name as subject,
       case when kind = 'horizon'
            then format('The vacuum of {} that ended {:.0f} s before the end left {:.0f} dead rows, about {:.1f} MB: the transaction of pid {} ({}{}) has been open for {:.0f} s',
                        table_name, vacuumed_s, dead, coalesce(dead_bytes, 0) / 1048576.0, pid, state, if(application_name = '', '', ', application ' || application_name), age_s)
            else format('{:.0f} dead rows, about {:.1f} MB, wait in {}: autovacuum passes over it while pid {}{} holds {}, for {:.0f} s by now',
                        dead, coalesce(dead_bytes, 0) / 1048576.0, table_name, pid, coalesce(' (' || state || if(application_name = '', '', ', application ' || application_name) || ')', ''), mode, age_s) end
       || case when growth > 0 then format('; {:.0f} more dead rows than {:.0f} s before', growth, dt_s) else '' end
       || case when holders > 1 then format('; {} more are in the way', holders - 1) else '' end
       || case when q.query is not null then '; it runs or last ran: ' || left(regexp_replace(q.query, '\s+', ' ', 'g'), 120) else '' end as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, c.ts_from, c.ts_to,
       to_json([{relation: table_name, dead_rows: dead, dead_rows_growth: growth, dead_bytes_estimate: dead_bytes, vacuumed_s: round(vacuumed_s, 1), pid: pid, state: state, kind: kind,
                 mode: mode, open_s: round(age_s, 1)}]) as evidence,
       to_json({relation: table_name, pid: pid}) as facts
from ranked left join statement q using (statement_id) cross join capture c
where place = 1
order by dead_bytes desc, subject
