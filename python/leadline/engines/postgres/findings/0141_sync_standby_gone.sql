-- id: SYNC-STANDBY-GONE
-- title: Commits cannot end, because a synchronous standby is missing
-- question: Do commits wait for more synchronous standbys than are connected, which are missing, and since when do they wait?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds waited for IPC SyncRep while too few standbys were connected
-- cost: database time
-- threshold: stuck_s = 1.0 (seconds that one commit has waited; a standby that answers takes milliseconds, one that restarts has returned)
-- threshold: stuck_tail_s = 0.5 (seconds before the end: a commit that waits then still waits at the end)
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where lower(wait_event) like 'syncrep%')
-- wrong when: the standby restarts, or the names have just been changed
with stuck as (
  select w.*, (w.ts + c.wall_offset_ns) / 1e9 - w.query_age_s as waits_since from sync_wait w cross join (select wall_offset_ns from capture) c where w.is_stuck
),
sender as (
  select distinct application_name, client_addr, (lower(application_name) in (select lower(name) from sync_standby) or '*' in (select name from sync_standby)) as is_listed
  from session_sample where backend_type = 'walsender' and application_name <> 'pg_basebackup' and ts in (select ts from stuck)
),
found as (
  select sum(weight_s) as cost_s, count(*) as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to,
         min(waits_since) as since, max(query_age_s) as longest_s, min(connected) as connected, max(needed) as needed, bool_and(is_behind) as only_behind,
         (select max(seconds) from (select sum(weight_s) as seconds from stuck group by session_id, round(waits_since))) as stuck_s
  from stuck
),
at_end as (select count(distinct session_id) as sessions from stuck where ts >= (select max(ts) from tick) - getvariable('stuck_tail_s') * 1e9),
-- Names that nobody had while commits were stuck, and who was connected under another.
gone as (
  select string_agg(name, ', ' order by place) as names from sync_standby
  where name <> '*' and lower(name) not in (select lower(application_name) from sender)
),
other as (
  select string_agg(distinct application_name || case when client_addr in ('', 'local') then '' else ' at ' || client_addr end, ', ') as names
  from sender where not is_listed and exists (from sync_standby)
),
list as (
  select max(wanted) as wanted, count(*) as names, coalesce(bool_or(name = '*'), true) as is_open from sync_standby
),
proof as (
  select to_json(list({pid: pid, usename: usename, application_name: application_name, waited_s: round(wait_s, 3), since_unix_s: round(since, 3), query: query}
                      order by since, pid)[:20]) as evidence
  from (select s.pid, s.usename, s.application_name, sum(s.weight_s) as wait_s, min(s.waits_since) as since,
               left(regexp_replace(any_value(q.query), '\s+', ' ', 'g'), 120) as query
        from stuck s left join statement q using (statement_id) group by all)
),
verdict as (
  select f.*, e.sessions as still, g.names as gone, o.names as others, l.wanted, p.evidence, f.cost_s / (select sum(weight_s) from db_time) as share,
         not l.is_open and l.names < f.needed as is_short
  from found f cross join at_end e cross join gone g cross join other o cross join list l cross join proof p
  where f.stuck_s >= getvariable('stuck_s')
)
select 'SYNC-STANDBY-GONE' as id, case when still > 0 then 'critical' else 'high' end as severity, 'high' as confidence,
       'synchronous standby' || case when gone is null or only_behind then '' else ' ' || gone end as subject,
       format('{} session{} waited {:.1f} s ({:.1f} % of database time) for commits that could not end, since {} UTC, {:.1f} s at the longest{}: {}{}{}',
              sessions, case when sessions = 1 then '' else 's' end, cost_s, 100 * share, strftime(make_timestamp((since * 1e6)::bigint), '%Y-%m-%d %H:%M:%S'), longest_s,
              case when still > 0 then format(', and {} still waited at the end', still) else '' end,
              case when only_behind then 'a standby is connected, but it still copies WAL that it missed'
                   when wanted is null then format('{} of at least 1 synchronous standby was connected', connected)
                   else format('synchronous_standby_names = {} needs {}, but {} was connected', wanted,
                               case when needed = 1 then 'one standby' else format('{} standbys', needed) end, case when connected = 0 then 'none' else connected::varchar end) end,
              case when only_behind then '' when gone is not null then '; missing: ' || gone when is_short then '; it lists fewer names than it needs' else '' end,
              case when others is not null then '; connected under a name that is not in the list: ' || others else '' end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({gone: case when not only_behind then gone end, others: others, is_behind: only_behind, is_short: is_short,
                one_fewer: case when needed > 1 and connected > 0 and connected < needed
                                then pg_literal(regexp_replace(wanted, '^((first|any)\s+)?\d+', '\1' || connected, 'i')) end}) as facts
from verdict
order by subject
