-- id: DDL-QUEUE
-- title: Sessions queue behind a waiting DDL statement
-- question: Does a waiting request for a strong table lock block later sessions that would otherwise not have to wait?
-- domain: postgres
-- needs: lock_wait, session_sample
-- unit: seconds waited by sessions that only the queue blocked
-- cost: database time
-- threshold: min_queue_s = 1.0 (seconds that the queue lasted: the default of deadlock_timeout, after which the server itself logs a lock wait)
-- threshold: min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- threshold: confident_looks = 20 (scans of the queue; waits between two scans are not seen)
-- threshold: some_looks = 5 (scans and samples; fewer may be a single queue seen by chance)
-- evaluable when: (select coarse_s is null from capture) or not exists (from lock_wait) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from lock_wait where blocker_kind = 'queue' and locktype = 'relation')
-- wrong when: the application takes the strong lock itself (LOCK TABLE) and the queue is intended
with base as (  -- a waiter that is hidden over SQL has no other part in it
  select coalesce((select sum(weight_s) from db_time), 0) + coalesce((select sum(wait_s) from lock_look where in_db_time is null), 0) as db_time_s
),
rate as (select sum(samples) / sum(seconds) as samples_per_s from wait_time where in_db_time and wait_class = 'Lock'),
waiting as (  -- one row per waiter and look
  select ts, session_id, bool_or(blocker_kind = 'holder') as held_up_by_holder from lock_wait group by ts, session_id
),
queued as materialized (  -- waits that only the place in line causes: no holder conflicts, a strong request ahead does
  select q.ts, q.period_ns, q.session_id, q.pid, q.mode, q.datid, q.relid,
         q.blocker_session_id as ddl_session_id, q.blocker_pid as ddl_pid, q.blocker_mode as ddl_mode,
         k.wait_s / count(*) over (partition by q.ts, q.session_id) as wait_s
  from lock_wait q
  join waiting w on w.ts = q.ts and w.session_id = q.session_id and not w.held_up_by_holder
  join lock_look k on k.ts = q.ts and k.session_id = q.session_id and coalesce(k.in_db_time, true)
  where q.blocker_kind = 'queue' and q.locktype = 'relation'
    and q.blocker_mode in ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock')
),
loss as (
  select datid, relid, session_id, any_value(pid) as pid, mode(mode order by mode) as mode, sum(wait_s) as lost_s
  from queued group by datid, relid, session_id
),
look as (
  select datid, relid, ts, max(period_ns) as period_ns, count(distinct session_id) as length from queued group by all
),
line as (  -- how long the queue stood and how long it grew
  select datid, relid, sum(period_ns) / 1e9 as stood_s, max(length) as longest, count(*) as looks,
         min(ts) as ts_from, max(ts + period_ns) as ts_to
  from look group by datid, relid
),
request as (  -- the strong request at the head, and what it runs
  select q.datid, q.relid, q.ddl_pid, q.ddl_session_id, mode(q.ddl_mode order by q.ddl_mode) as ddl_mode, count(*) as rows,
         mode(s.statement_id order by s.statement_id) as statement_id
  from queued q left join session_sample s on s.ts = q.ts and s.session_id = q.ddl_session_id
  group by q.datid, q.relid, q.ddl_pid, q.ddl_session_id
  qualify row_number() over (partition by q.datid, q.relid order by rows desc, q.ddl_pid) = 1
),
holder as (  -- who holds the request up
  select r.datid, r.relid, h.blocker_pid as holder_pid, mode(s.backend_type order by s.backend_type) as holder_type, mode(h.blocker_mode order by h.blocker_mode) as holder_mode, mode(coalesce(s.state, s.backend_type) order by coalesce(s.state, s.backend_type)) as holder_state,
         bool_or(not contains(t.query, '(to prevent wraparound)')) as is_plain,
         mode(s.application_name order by s.application_name) as holder_application
  from request r
  join lock_wait h on h.session_id = r.ddl_session_id and h.datid = r.datid and h.relid = r.relid and h.blocker_kind = 'holder'
  left join session_sample s on s.ts = h.ts and s.session_id = h.blocker_session_id
  left join statement t on t.statement_id = s.statement_id
  group by r.datid, r.relid, h.blocker_pid
  qualify row_number() over (partition by r.datid, r.relid order by count(*) desc, h.blocker_pid) = 1
),
prepared as (  -- the lock of a table does not say which prepared transaction holds it; one alone in the database is it
  select d.datid, count(*) as prepared, any_value(p.object) as gid, string_agg(p.object, ', ' order by p.age_s desc) as listed
  from prepared_xact p join database d on d.datname = split_part(p.object, '/', 1) group by d.datid
),
found as (
  select datid, relid, count(*) as victims, sum(lost_s) as cost_s,
         to_json(list({victim_pid: pid, mode: mode, lost_s: round(lost_s, 3)} order by lost_s desc, pid)[:20]) as evidence
  from loss where lost_s > 0 group by datid, relid
),
named as (
  select f.*, l.* exclude (datid, relid), r.ddl_pid, r.ddl_mode, h.holder_type, h.is_plain, p.prepared, p.gid, p.listed, h.holder_pid, h.holder_mode, h.holder_state, h.holder_application,
         f.cost_s / nullif(b.db_time_s, 0) as share, round(coalesce(f.cost_s * (select samples_per_s from rate), l.looks))::bigint as samples, left(regexp_replace(s.query, '\s+', ' ', 'g'), 120) as query,
         coalesce(n.nspname || '.' || n.relname, f.datid || '/' || f.relid) as object
  from found f
  cross join base b
  join line l using (datid, relid)
  join request r using (datid, relid)
  left join holder h using (datid, relid)
  left join prepared p on h.holder_pid = 0 and p.datid = f.datid
  left join statement s on s.statement_id = r.statement_id
  left join relation n on n.datid = f.datid and n.relid = f.relid
)
select 'DDL-QUEUE' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       case when looks >= getvariable('confident_looks') then confidence_of(c.tier, samples, medium := getvariable('some_looks'))
            when least(looks, samples) >= getvariable('some_looks') then 'medium' else 'low' end as confidence,
       'relation ' || object as subject,
       format('{} session{} queued for {:.1f} s in total ({:.1f} % of database time), up to {} at once, behind pid {} that waits for {} on {}{}{}',
              victims, case when victims = 1 then '' else 's' end, cost_s, 100 * share, longest, ddl_pid, ddl_mode, object,
              case when query is not null then ' (' || query || ')' else '' end,
              case when holder_pid is null then ''
                   when holder_pid = 0 then format('; {} holds it up with {}', case when prepared = 1 then 'prepared transaction ' || gid
                                                   else 'a prepared transaction' || coalesce(' (listed: ' || listed || ')', '') end, holder_mode)
                   else format('; pid {} ({}{}) holds it up with {}', holder_pid, coalesce(holder_state, 'state not seen'),
                               case when holder_application <> '' then ', application ' || holder_application else '' end,
                               holder_mode) end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({ddl_pid: nullif(ddl_pid, 0), holder_pid: case when holder_type <> 'autovacuum worker' then nullif(holder_pid, 0) end,
                vacuum_pid: case when holder_type = 'autovacuum worker' and is_plain is not true then holder_pid end,
                plain_vacuum_pid: case when holder_type = 'autovacuum worker' and is_plain then holder_pid end, is_prepared: holder_pid = 0,
                gid: case when prepared = 1 then pg_literal(regexp_extract(gid, '^[^/]*/(.*)$', 1)) end,
                gid_database: case when prepared = 1 then split_part(gid, '/', 1) end}) as facts
from named cross join (select tier, window_s from capture) c
where stood_s >= getvariable('min_queue_s') and looks >= 2 and share >= getvariable('min_share')
order by cost_s desc, subject
