-- id: SLRU
-- title: Sessions compete for the transaction status caches
-- question: How much time goes to waits for the small caches (SLRUs) of transaction status, subtransactions, multixacts and others?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited for the LWLocks of one SLRU, its buffers and its I/O (I/O is matched by statement, because the server does not say which SLRU it reads)
-- cost: database time
-- threshold: min_share = 0.02 (2 % of database time; any busy server has less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- silent unless: exists (from wait_time where wait_class in ('LWLock', 'IPC', 'IO') and regexp_matches(lower(wait_event), 'slru|subtrans|xact|clog|committs|notify|async|serial'))
-- wrong when: the server was just started and the caches were cold
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait_seen as (
  select *, case when regexp_matches(event, '^subtrans') then 'Subtrans'
                 when regexp_matches(event, '^multixact') then 'MultiXact'
                 when regexp_matches(event, '^(xactslru|xactbuffer|xactgroupupdate|clog)') then 'Xact'
                 when regexp_matches(event, '^committs') then 'CommitTs'
                 when regexp_matches(event, '^(notifyslru|notifybuffer|notifyqueue|async)') then 'Notify'
                 when regexp_matches(event, '^(serialslru|serialbuffer|serialcontrol|oldserxid)') then 'Serial'
                 when regexp_matches(event, '^slru') then 'file' end as slru
  from (select * replace (replace(lower(wait_event), '_', '') as event) from db_time where wait_class in ('LWLock', 'IPC', 'IO'))
  where slru is not null
),
statement_slru as (  -- the cache a statement waited for most
  select statement_id, first(slru order by wait_s desc, slru) as slru
  from (select statement_id, slru, sum(weight_s) as wait_s from wait_seen where slru <> 'file' and statement_id <> 0 group by all)
  group by statement_id
),
wait as (
  select w.* replace (case when w.slru = 'file' then coalesce(o.slru, 'file') else w.slru end as slru), w.slru = 'file' as in_file
  from wait_seen w left join statement_slru o using (statement_id)
),
event_cost as (
  select slru, wait_class || ':' || wait_event as event, statement_id, sum(weight_s) as wait_s from wait group by all
),
evidence as (
  select e.slru, to_json(list({event: e.event, wait_s: round(e.wait_s, 3),
                               query: left(regexp_replace(s.query, '\s+', ' ', 'g'), 120)} order by e.wait_s desc, e.event)[:20]) as evidence
  from event_cost e left join statement s using (statement_id) group by e.slru
),
found as (
  select slru, sum(weight_s) as cost_s, coalesce(sum(weight_s) filter (in_file), 0) as file_s, count(*) as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to
  from wait group by slru
),
overflowed as (  -- sessions with more subtransactions than others can look up in shared memory; the server lists them from 16 on
  select distinct regexp_extract(object, '(\d+)$', 1)::int as pid from server_stat where view = 'pg_stat_get_backend_subxact'
),
opener as (  -- the oldest of them has kept the others at it for longest
  select o.pid as subxact_pid, mode(nullif(s.application_name, '') order by s.application_name) as application_name, count(*) over () - 1 as others
  from overflowed o left join session_sample s on s.pid = o.pid group by o.pid
  qualify row_number() over (order by max(s.xact_age_s) desc nulls last, o.pid) = 1
),
cost as (
  select f.*, e.evidence, f.cost_s / b.db_time_s as share from found f cross join base b join evidence e using (slru)
)
select 'SLRU' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of(c.tier, samples) as confidence,
       'SLRU ' || slru as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) to the {} cache{}', sessions, cost_s, 100 * share,
              case slru when 'Subtrans' then 'subtransaction' when 'MultiXact' then 'multixact' when 'Xact' then 'commit status'
                        when 'CommitTs' then 'commit timestamp' when 'Notify' then 'NOTIFY queue' when 'Serial' then 'serializable conflict'
                        else 'transaction status file' end,
              case when slru <> 'file' and file_s > 0 then format('; {:.1f} s of it in reads and writes of files by the same statements', file_s)
                   else '' end
              || case when slru = 'Subtrans' and subxact_pid is not null then format('; pid {}{}{} had more than 64 subtransactions open', subxact_pid, coalesce(' (application ' || application_name || ')', ''),
                                                                                      case when others > 0 then format(' and {} others', others) else '' end) else '' end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({subxact_pid: case when slru = 'Subtrans' then subxact_pid end}) as facts
from cost left join opener on true cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples')
order by cost_s desc, slru
