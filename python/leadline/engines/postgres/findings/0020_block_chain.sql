-- id: BLOCK-CHAIN
-- title: A session blocks others for a long time
-- question: Which session is at the root of a chain of lock waits, in which state, for which lock, and how much time did the blocked sessions lose?
-- domain: postgres
-- needs: lock_wait, session_sample
-- unit: seconds that other sessions waited for locks behind this root
-- cost: database time
-- threshold: min_block_s = 1.0 (seconds that one transaction of the root blocked others: the default of deadlock_timeout, after which the server itself logs a lock wait)
-- threshold: min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- threshold: confident_looks = 20 (scans of the queue; waits between two scans are not seen)
-- threshold: some_looks = 5 (scans and samples; fewer may be a single queue seen by chance)
-- evaluable when: (select coarse_s is null from capture) or not exists (from lock_wait) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from lock_chain)
-- wrong when: planned maintenance took the lock, or the server broke the chain after deadlock_timeout (a cycle has no root)
with base as (  -- a waiter that is hidden over SQL has no other part in it
  select coalesce((select sum(weight_s) from db_time), 0) + coalesce((select sum(wait_s) from lock_look where in_db_time is null), 0) as db_time_s
),
rate as (select sum(samples) / sum(seconds) as samples_per_s from wait_time where in_db_time and wait_class = 'Lock'),
chain as materialized (  -- each look at a victim, shared equally between its roots; with the root as it was at that moment
  select l.ts, l.period_ns, l.session_id, l.pid, l.depth, l.root_session_id, l.root_pid, l.wait_s,
         r.state, r.application_name, r.usename, r.backend_type, r.statement_id, r.xact_age_s
  from lock_chain l join lock_look k using (ts, session_id, pid)
  left join session_sample r on r.ts = l.ts and r.session_id = l.root_session_id
  where coalesce(k.in_db_time, true)
),
held as materialized (  -- only transactions that block for long: many short ones on the same rows are ROW-HOTSPOT
  select c.* from chain c join lock_hold h using (ts, root_session_id, root_pid)
  where h.blocked_s >= getvariable('min_block_s') and h.looks >= 2
),
loss as (
  select root_session_id, root_pid, session_id, any_value(pid) as pid, max(depth) as depth, sum(wait_s) as lost_s
  from held group by root_session_id, root_pid, session_id
),
root as (
  select root_session_id, root_pid, mode(backend_type order by backend_type) as backend_type, mode(coalesce(state, backend_type) order by coalesce(state, backend_type)) as state, mode(application_name order by application_name) as application_name,
         mode(usename order by usename) as usename, mode(statement_id order by statement_id) as statement_id, max(xact_age_s) as xact_age_s,
         count(distinct ts) as looks, min(ts) as ts_from, max(ts + period_ns) as ts_to
  from held group by root_session_id, root_pid
),
blocked as (  -- what the victims of a root waited for, the lock right behind the root first
  select h.root_session_id, h.root_pid, w.locktype, w.mode, w.blocker_mode, w.datid, w.relid, w.transactionid, count(*) as rows,
         max(w.blocker_session_id = h.root_session_id and w.blocker_pid = h.root_pid) as direct
  from held h join lock_wait w on w.ts = h.ts and w.session_id = h.session_id
  group by all
),
lock_at_root as (
  select root_session_id, root_pid, arg_max(locktype, rows order by locktype) as locktype, arg_max(mode, rows order by mode) as mode,
         arg_max(blocker_mode, rows order by blocker_mode) as blocker_mode
  from blocked where direct group by root_session_id, root_pid
),
first_victim as (  -- who waits right behind the root, the strongest request first
  select h.root_session_id, h.root_pid, arg_max(h.pid, case w.mode when 'AccessExclusiveLock' then 3 when 'ExclusiveLock' then 2 else 1 end order by h.pid) as victim_pid
  from held h join lock_wait w on w.ts = h.ts and w.session_id = h.session_id
  where h.depth = 1 group by h.root_session_id, h.root_pid
),
object_of_root as (  -- a transaction lock names no relation: a tuple or relation lock further down the chain does
  select b.root_session_id, b.root_pid, b.datid, b.relid, r.relkind, pg_ident(r.nspname) || '.' || pg_ident(r.relname) as object_ident,
         coalesce(r.nspname || '.' || r.relname, 'relation ' || b.datid || '/' || b.relid) as object
  from (select root_session_id, root_pid, datid, relid, sum(rows) as rows from blocked where relid <> 0 group by all) b
  left join relation r on r.datid = b.datid and r.relid = b.relid
  qualify row_number() over (partition by b.root_session_id, b.root_pid order by b.rows desc, b.relid) = 1
),
found as (
  select root_session_id, root_pid, count(*) as victims, max(depth) as deepest, sum(lost_s) as cost_s,
         to_json(list({victim_pid: pid, depth: depth, lost_s: round(lost_s, 3)} order by lost_s desc, pid)[:20]) as evidence
  from loss where lost_s > 0 group by root_session_id, root_pid
),
prepared as (  -- a lock of its transaction tells which one it is; of others only what the server listed is known
  select case when count(distinct coalesce(p.object, '')) = 1 then any_value(p.object) end as gid,
         (select string_agg(format('{}, prepared {:.0f} s before', object, age_s), '; ' order by age_s desc)
          from (from prepared_xact order by age_s desc limit 3)) as listed
  from blocked b left join prepared_xact p on b.locktype = 'transactionid' and p.transactionid = b.transactionid
  where b.root_pid = 0 and b.direct
),
progress as (  -- how far a command that still ran after the window was: a function may hide it, but the server knows
  select regexp_extract(object, '(\d+)$', 1)::int as progress_pid, max(view) as view,
         max(value) filter (metric in ('blocks_done', 'heap_blks_scanned')) as done, max(value) filter (metric in ('blocks_total', 'heap_blks_total')) as total
  from server_stat where phase = 'after' and view in ('pg_stat_progress_create_index', 'pg_stat_progress_cluster') group by 1
),
named as (
  select f.*, r.* exclude (root_session_id, root_pid), v.victim_pid, l.locktype, l.mode, l.blocker_mode, o.object, o.object_ident, o.relkind, f.cost_s / nullif(b.db_time_s, 0) as share,
         round(coalesce(f.cost_s * (select samples_per_s from rate), r.looks))::bigint as samples,
         left(regexp_replace(s.query, '\s+', ' ', 'g'), 120) as query, r.backend_type = 'autovacuum worker' as is_vacuum,
         f.root_pid <> 0 and r.state = 'idle' and l.locktype is not distinct from 'advisory' as is_kept,  -- by the session, not by a transaction
         coalesce(not contains(s.query, '(to prevent wraparound)'), false) as is_plain,  -- so the server reports the one that does not give way
         case when f.root_pid <> 0 and (r.state = 'active' or starts_with(r.state, 'idle'))
              then coalesce(blocking_command(s.query), case g.view when 'pg_stat_progress_create_index' then 'CREATE INDEX' when 'pg_stat_progress_cluster' then 'VACUUM FULL' end) end as command,
         case when g.total > 0 then format('{} of {} blocks', g.done::bigint, g.total::bigint) end as progress
  from found f
  cross join base b
  join root r using (root_session_id, root_pid)
  left join first_victim v using (root_session_id, root_pid)
  left join lock_at_root l using (root_session_id, root_pid)
  left join object_of_root o using (root_session_id, root_pid)
  left join statement s using (statement_id)
  left join progress g on g.progress_pid = f.root_pid
)
select 'BLOCK-CHAIN' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       case when looks >= getvariable('confident_looks') then confidence_of(c.tier, samples, medium := getvariable('some_looks'))
            when least(looks, samples) >= getvariable('some_looks') then 'medium' else 'low' end as confidence,
       case when root_pid = 0 then 'prepared transaction' || coalesce(' ' || p.gid, '') else 'pid ' || root_pid end as subject,
       format('{} blocked {} session{} for {:.1f} s in total ({:.1f} % of database time), chain up to {} deep, lock {}{}{}{}{}{}',
              case when root_pid = 0 then coalesce('The prepared transaction ' || p.gid, 'A prepared transaction')
                   else format('pid {} ({}{}{})', root_pid, coalesce(state, 'state not seen'),
                               case when application_name <> '' then ', application ' || application_name else '' end,
                               case when usename is not null then ', user ' || usename else '' end) end,
              victims, case when victims = 1 then '' else 's' end, cost_s, 100 * share, deepest,
              coalesce(locktype, 'of unknown type'),
              case when object is not null then ' on ' || object else '' end,
              case when mode is not null then format(' ({} wanted, {} held)', mode, blocker_mode) else '' end,
              case when xact_age_s is not null then format('; its transaction was up to {:.1f} s old', xact_age_s) else '' end,
              coalesce('; it ' || case when state = 'active' and command is not null then 'runs ' || command || coalesce(' (' || progress || ' done at the end)', '') || ': ' else 'last ran: ' end || query, ''),
              case when root_pid = 0 and p.listed is not null then '; the server lists ' || p.listed else '' end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({pid: nullif(root_pid, 0), victim_pid: victim_pid, role: pg_ident(usename),
                is_vacuum: is_vacuum and not is_plain, is_plain_vacuum: is_vacuum and is_plain, is_prepared: root_pid = 0,
                is_idle: root_pid <> 0 and starts_with(state, 'idle') and not is_kept, is_kept: is_kept, is_active: root_pid <> 0 and state = 'active' and not is_vacuum and coalesce(command = 'CREATE TRIGGER', true),
                command: case when state = 'active' then command end, after_command: case when starts_with(state, 'idle') then command end, progress: progress,
                is_rewrite: state = 'active' and command in ('VACUUM FULL', 'CLUSTER'), is_reindex: state = 'active' and command = 'REINDEX',
                is_create_index: state = 'active' and command = 'CREATE INDEX', is_refresh: state = 'active' and command = 'REFRESH MATERIALIZED VIEW',
                is_truncate: state = 'active' and command = 'TRUNCATE', is_alter: state = 'active' and command = 'ALTER TABLE',
                is_drop: state = 'active' and command = 'DROP', is_lock: state = 'active' and command = 'LOCK TABLE',
                index: case when relkind in ('i', 'I') and not starts_with(object, 'pg_catalog.') then object_ident end,
                table_name: case when relkind in ('r', 'p') and not starts_with(object, 'pg_catalog.') then object_ident end,
                gid: case when root_pid = 0 then pg_literal(regexp_extract(p.gid, '^[^/]*/(.*)$', 1)) end, gid_database: case when root_pid = 0 then split_part(p.gid, '/', 1) end}) as facts
from named cross join prepared p cross join (select tier, window_s from capture) c
where share >= getvariable('min_share')
order by cost_s desc, root_pid
