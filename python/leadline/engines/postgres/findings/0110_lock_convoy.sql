-- id: LOCK-CONVOY
-- title: Many sessions take turns for one lock
-- question: For which advisory, object or table lock do many sessions wait although nobody holds it for long, and what do its holders do meanwhile?
-- domain: postgres
-- needs: lock_wait, session_sample
-- unit: seconds waited for the lock behind transactions that hold it for a short time
-- cost: database time
-- threshold: min_block_s = 1.0 (seconds; waits behind a transaction that blocks for longer belong to BLOCK-CHAIN)
-- threshold: min_share = 0.02 (2 % of database time; an ordinary use of locks costs less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: main_part = 0.5 (share of the looks at its holders; what they did in more than half of them is what makes the lock slow)
-- evaluable when: (select coarse_s is null from capture) or not exists (from lock_wait) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where wait_class = 'Lock' and wait_event not in ('tuple', 'transactionid', 'spectoken', 'extend', 'virtualxid'))
-- wrong when: the lock makes the sessions run one after another on purpose, and the time they wait does not matter
with base as (
  select sum(weight_s) as db_time_s from db_time
),
rate as (select sum(samples) / sum(seconds) as samples_per_s from wait_time where wait_class = 'Lock'),
waiter as (  -- a session waits for one lock at a time; rows are ROW-HOTSPOT's and extension is RELATION-EXTEND's
  select ts, session_id, any_value(locktype) as locktype, any_value(datid) as datid, any_value(relid) as relid, any_value(page) as page,
         any_value(classid) as classid, any_value(objid) as objid, any_value(objsubid) as objsubid, any_value(mode) as mode, any_value(period_ns) as period_ns
  from lock_wait
  where locktype not in ('tuple', 'transactionid', 'spectoken', 'extend', 'virtualxid')
  group by ts, session_id
  having bool_or(blocker_kind = 'holder') or any_value(locktype) <> 'relation'  -- behind a waiting request for a table only: DDL-QUEUE
),
short_part as (  -- of each look at a waiter, the part that no long transaction explains; a circle has no root and is DEADLOCKS'
  select c.ts, c.session_id, avg((h.blocked_s < getvariable('min_block_s') or h.looks < 2)::int) as part
  from lock_chain c join lock_hold h using (ts, root_session_id, root_pid) left join session s on s.session_id = c.root_session_id
  where s.backend_type is distinct from 'autovacuum worker'  -- it gives way after deadlock_timeout: AUTOVACUUM-CANCELLED
  group by c.ts, c.session_id
),
look as materialized (
  select w.*, k.wait_s * p.part as lost_s, hash(w.locktype, w.datid, w.relid, w.page, w.classid, w.objid, w.objsubid) as lock_id
  from waiter w join lock_look k using (ts, session_id)
  join short_part p on p.ts = w.ts and p.session_id = w.session_id
  where p.part > 0
),
one_lock as (
  select lock_id, any_value(locktype) as locktype, any_value(datid) as datid, any_value(relid) as relid, any_value(classid) as classid,
         any_value(objid) as objid, any_value(objsubid) as objsubid, any_value(page) as page, sum(lost_s) as lost_s,
         sum(lost_s) >= getvariable('min_share') * (select db_time_s from base) and sum(lost_s) * (select samples_per_s from rate) >= getvariable('min_samples') as is_own
  from look group by lock_id
),
member as materialized (  -- locks that cost too little to be named one by one count together, by their kind
  select k.*, l.is_own, case when l.is_own then l.lock_id else hash(l.locktype, l.datid) end as convoy
  from look k join one_lock l using (lock_id)
),
found as (
  select convoy, bool_and(is_own) as is_own, any_value(lock_id) as lock_id, count(distinct lock_id) as locks, count(distinct session_id) as sessions,
         sum(lost_s) as cost_s, mode(mode order by mode) as mode, min(ts) as ts_from, max(ts + period_ns) as ts_to
  from member group by convoy
),
holder as (  -- who held the lock at each look, and what it did at that moment
  select distinct m.convoy, m.ts, h.blocker_session_id, h.blocker_pid, h.blocker_mode, s.application_name, s.statement_id, s.xact_age_s,
         case when s.state is null then 'not seen' when s.state <> 'active' then s.state
              when s.wait_class = 'Lock' and w.session_id is null then 'woken but not running yet'  -- the lock was its own before it ran
              when s.wait_class = 'CPU' then 'CPU' else s.wait_class || ':' || s.wait_event end as doing
  from member m
  join lock_wait h on h.ts = m.ts and h.session_id = m.session_id and h.blocker_kind = 'holder'
  left join session_sample s on s.ts = h.ts and s.session_id = h.blocker_session_id
  left join (select distinct ts, session_id from lock_wait) w on w.ts = h.ts and w.session_id = h.blocker_session_id
),
held as (
  select convoy, count(*) as looks, count(distinct (blocker_session_id, blocker_pid)) as holders, max(blocker_pid) as a_pid, mode(blocker_mode order by blocker_mode) as blocker_mode,
         mode(nullif(application_name, '') order by application_name) as application_name, count(distinct nullif(application_name, '')) as applications,
         mode(statement_id order by statement_id) as statement_id, median(xact_age_s) as xact_age_s,
         coalesce(avg((doing like 'idle%')::int), 0) as idle_part,
         coalesce(avg((doing in ('IO:WALSync', 'IO:WalSync', 'IO:WALWrite', 'IO:WalWrite', 'LWLock:WALWrite', 'IPC:SyncRep'))::int), 0) as commit_part
  from holder group by convoy
),
did as (
  select convoy, array_to_string(list(format('{} {:.0f} %', doing, 100.0 * looks / total) order by looks desc, doing)[:3], ', ') as doings,
         to_json(list({held_while: doing, looks: looks, query: query} order by looks desc, doing)[:20]) as evidence
  from (
    select h.convoy, h.doing, count(*) as looks, sum(count(*)) over (partition by h.convoy) as total,
           left(regexp_replace(mode(s.query order by s.query), '\s+', ' ', 'g'), 120) as query
    from holder h left join statement s using (statement_id) group by h.convoy, h.doing
  ) group by convoy
),
keyed as (
  select f.*, h.* exclude (convoy), d.doings, d.evidence, o.locktype, o.datid, o.relid, o.classid, o.objid, o.objsubid, f.cost_s / b.db_time_s as share,
         f.cost_s * (select samples_per_s from rate) as samples,
         case when o.locktype <> 'advisory' then null
              when o.objsubid = 1 then (o.classid::hugeint * 4294967296 + o.objid - case when o.classid >= 2147483648 then 18446744073709551616 else 0 end)::varchar
              else format('({}, {})', o.classid::bigint - case when o.classid >= 2147483648 then 4294967296 else 0 end,
                          o.objid::bigint - case when o.objid >= 2147483648 then 4294967296 else 0 end) end as key,
         o.locktype = 'object' and o.datid = 0 and o.classid = 1262 and o.objid = 0 as is_notify,
         coalesce(r.nspname || '.' || r.relname, o.datid || '/' || o.relid) as relation, pg_literal(pg_ident(r.nspname) || '.' || pg_ident(r.relname)) as regclass,
         left(regexp_replace(s.query, '\s+', ' ', 'g'), 120) as query, db.datname
  from found f cross join base b
  join one_lock o using (lock_id)
  left join held h using (convoy)
  left join did d using (convoy)
  left join statement s using (statement_id)
  left join relation r on r.datid = o.datid and r.relid = o.relid
  left join (select datid, any_value(datname) as datname from database group by datid) db on db.datid = o.datid and o.datid <> 0
),
named as (
  select *,
         case when not is_own then format('{} {} locks', locks, locktype)
              when is_notify then 'lock of NOTIFY'
              when key is not null then 'advisory lock ' || key
              when relid <> 0 then 'table lock of ' || relation
              when locktype = 'object' then format('object {} of {}', objid,
                case classid when 1247 then 'pg_type' when 1255 then 'pg_proc' when 1259 then 'pg_class' when 1260 then 'pg_authid' when 1262 then 'pg_database'
                             when 1213 then 'pg_tablespace' when 2613 then 'pg_largeobject' when 2615 then 'pg_namespace' when 3079 then 'pg_extension'
                             when 6100 then 'pg_subscription' else 'catalog ' || classid end)
              else locktype || ' lock' end || case when relid = 0 then coalesce(' in database ' || datname, '') else '' end as lock
  from keyed
)
select 'LOCK-CONVOY' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of(c.tier, samples) as confidence,
       lock as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) taking turns for the {} ({} wanted{}){}{}{}{}',
              sessions, cost_s, 100 * share, lock, mode, coalesce(', ' || blocker_mode || ' held', ''),
              case when holders is null then '' when holders = 1 and a_pid <> 0 then format('; pid {} was seen to hold it', a_pid)
                   else format('; {} sessions were seen to hold it, none for long', holders) end
                || case when applications = 1 then ', application ' || application_name when applications > 1 then format(', of {} applications, mostly {}', applications, application_name) else '' end,
              coalesce(format(', in transactions {:.0f} ms old at the median', 1000 * xact_age_s), ''),
              coalesce('; while they held it: ' || doings, ''),
              coalesce('; mostly in: ' || query, '')) as statement,
       cost_s, share as share_of_db_time, round(samples)::bigint as samples, ts_from, ts_to, coalesce(evidence, '[]'::json) as evidence,
       to_json({is_advisory: locktype = 'advisory', is_notify: is_notify, is_table: relid <> 0, regclass: regclass,
                is_other_object: locktype = 'object' and not is_notify,
                classid: case when key is not null and is_own then classid end, objid: objid, objsubid: objsubid,
                is_idle: idle_part >= getvariable('main_part'), is_commit: commit_part >= getvariable('main_part'),
                idle_percent: round(100 * idle_part)::int, commit_percent: round(100 * commit_part)::int}) as facts
from named cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples')
order by cost_s desc, subject
