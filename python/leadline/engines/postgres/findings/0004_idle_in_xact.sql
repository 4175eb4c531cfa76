-- id: IDLE-IN-XACT
-- title: A client leaves its transaction open and idle
-- question: Which session was idle in a transaction while others waited for its locks, or long enough to hold back vacuum?
-- domain: postgres
-- needs: session_sample, lock_wait
-- unit: seconds that other sessions waited while this one was idle in its transaction
-- cost: database time
-- threshold: idle_gap_s = 0.5 (a shorter pause is a round trip or short client work, not an abandoned transaction)
-- threshold: idle_victims_s = 1.0 (seconds lost by the blocked sessions: deadlock_timeout, after which the server itself logs a lock wait)
-- threshold: idle_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- threshold: idle_min_s = 60 (when it blocks nobody: a minute idle while it holds a transaction id or a snapshot)
-- threshold: idle_xmin_age = 1000000 (transactions whose dead rows vacuum may not remove; a busy server runs a million in minutes)
-- threshold: idle_looks = 10 (scans of lock waiters needed for medium confidence; there are at most ten per second)
-- evaluable when: (select coarse_s is null from capture) or not exists (from lock_wait) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where state like 'idle in transaction%')
-- wrong when: a person works in the session by hand on a server nobody else uses
with about as (select window_s, tier, cpu_count from capture),
base as (select sum(weight_s) as db_time_s from db_time),
bound as (  -- of all, where leadline's own role has no other
  select max(try_cast(setting as double)) / 1e3 as bound_s from setting where name = 'idle_in_transaction_session_timeout' and source not in ('user', 'database', 'database user', 'client')
),
idle as materialized (  -- each sample of a session that leaves its transaction alone; a pause is one (session, state_change)
  select s.ts, s.session_id, s.pid, s.state, s.statement_id, s.application_name, s.usename, s.client_addr, s.weight_s, s.samples,
         s.state_age_s, s.xact_age_s, s.backend_xid, s.backend_xmin, s.xmin_age, s.state_change
  from session_sample s
  where s.state in ('idle in transaction', 'idle in transaction (aborted)')
),
pause as (
  select session_id, state_change, any_value(pid) as pid, min(state) as state, min(statement_id) as statement_id,  -- they change with state_change
         any_value(application_name) as application_name, any_value(usename) as usename, any_value(client_addr) as client_addr,
         sum(weight_s) as seen_s, sum(samples)::bigint as samples, max(state_age_s) as idle_s, max(xact_age_s) as xact_s,
         bool_or(backend_xid is not null or backend_xmin is not null) as holds, max(xmin_age) as xmin_age,
         min(ts) as ts_from, max(ts) as ts_to
  from idle group by session_id, state_change
),
victim as (  -- who waited behind a pause, and for how long; a victim with two roots counts half for each
  select i.session_id, i.state_change, v.pid as victim_pid, sum(v.wait_s) as lost_s, count(*) as looks
  from lock_chain v
  join idle i on i.ts = v.ts and i.session_id = v.root_session_id
  group by all
),
loss as (
  select session_id, state_change, sum(lost_s) as lost_s, sum(looks)::bigint as looks
  from victim group by session_id, state_change
),
harmful as (
  select p.*, coalesce(l.lost_s, 0) as lost_s, coalesce(l.looks, 0) as looks
  from pause p left join loss l using (session_id, state_change)
  where (l.lost_s > 0 and p.idle_s >= getvariable('idle_gap_s')) or (p.idle_s >= getvariable('idle_min_s') and p.holds)
),
victims as (
  select v.session_id, count(distinct v.victim_pid) as victims
  from victim v join harmful h using (session_id, state_change) group by v.session_id
),
found as (
  select session_id, any_value(pid) as pid, arg_max(state, lost_s + idle_s order by state) as state, arg_max(statement_id, lost_s + idle_s order by statement_id) as statement_id,
         any_value(application_name) as application_name, any_value(usename) as usename, any_value(client_addr) as client_addr,
         count(*) as pauses, max(idle_s) as idle_s, max(xact_s) as xact_s, sum(seen_s) as seen_s, sum(lost_s) as lost_s,
         bool_or(holds) as holds, max(xmin_age) as xmin_age, sum(looks)::bigint as looks, sum(samples)::bigint as samples,
         min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({ts_from: ts_from, state: state, idle_s: round(idle_s, 3), transaction_s: round(xact_s, 3), victims_lost_s: round(lost_s, 3),
                       statement_id: statement_id} order by lost_s desc, idle_s desc, ts_from)[:20]) as evidence
  from harmful group by session_id
),
named as (
  select f.*, coalesce(v.victims, 0) as victims, f.lost_s / b.db_time_s as share,
         f.lost_s >= getvariable('idle_victims_s') and f.lost_s / b.db_time_s >= getvariable('idle_share') as hurts,
         left(regexp_replace(q.query, '\s+', ' ', 'g'), 120) as query
  from found f cross join base b
  left join victims v using (session_id)
  left join statement q using (statement_id)
)
select 'IDLE-IN-XACT' as id,
       case when hurts then severity_of(share, lost_s, c.window_s)
            when xmin_age >= getvariable('idle_xmin_age') then 'medium' else 'low' end as severity,
       case when not hurts then 'high' else confidence_of(c.tier, looks, medium := getvariable('idle_looks')) end as confidence,
       'pid ' || pid as subject,
       format('pid {} (application {}{}) was {} {}{}{}', pid,
              case when application_name = '' then 'without name' else application_name end,
              case when usename is not null then ', user ' || usename else '' end,
              state,
              case when pauses = 1 then format('for {:.1f} s', idle_s) else format('{} times, for {:.1f} s at most', pauses, idle_s) end,
              case when hurts then format(', and {} session{} waited {:.1f} s behind it ({:.1f} % of database time)',
                                          victims, case when victims = 1 then '' else 's' end, lost_s, 100 * share)
                   else format('; nobody waited for it, but its transaction holds {}',
                               case when xmin_age is not null then format('back vacuum by {} transactions', xmin_age) else 'its locks and transaction id' end) end,
              case when bound_s = 0 then '; the server sets no idle_in_transaction_session_timeout' when bound_s > 0 then format('; the server sets idle_in_transaction_session_timeout to {:.0f} s', bound_s) else '' end
              || case when query is not null then '; it last ran: ' || query else '' end) as statement,
       case when hurts then lost_s end as cost_s, case when hurts then share end as share_of_db_time,
       case when hurts then looks else samples end as samples, ts_from, ts_to, evidence,
       to_json({pid: pid, role: pg_ident(usename)}) as facts
from named cross join bound cross join about c
where hurts or (idle_s >= getvariable('idle_min_s') and holds)
order by cost_s desc nulls last, pid
