-- id: SLRU
-- title: Sessions compete for the transaction status caches
-- question: How much time goes to waits for the small caches (SLRUs) of transaction status, subtransactions, multixacts and others?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited for the LWLocks of one SLRU, its buffers and its I/O (I/O is matched by statement, because the server does not say which SLRU it reads)
-- cost: database time
-- threshold: min_share = 0.02 (2 % of database time; any busy server has less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
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
locker as (  -- statements that wait for multixacts, and the table that each names first
  select w.statement_id, w.wait_s, q.query, r.relid, r.nspname || '.' || r.relname as name, regexp_matches(q.query, '(?is)^\s*(with\b.*\b)?(insert|update)\b') as writes,
         regexp_matches(q.query, '(?i)\bfor\s+(key\s+)?share\b') as shares
  from (select statement_id, sum(weight_s) as wait_s from wait where slru = 'MultiXact' and statement_id is not null group by statement_id) w
  join statement q using (statement_id)
  join relation r on r.datid = q.datid and r.relkind in ('r', 'p') and first_table(q.query) in (r.relname, r.nspname || '.' || r.relname)
  qualify count(*) over (partition by w.statement_id) = 1
),
referenced as (  -- the rows that inserts and updates lock FOR KEY SHARE through their foreign keys
  select distinct split_part(object, '/', 1)::bigint as child, split_part(object, '/', 2)::bigint as parent from server_stat where view = 'pg_constraint'
),
locked as (
  select parent as relid, wait_s, name as child from locker join referenced on child = relid where writes
  union all
  select relid, wait_s, null from locker where shares or relid in (select parent from referenced)
),
parent as (  -- of several parents of one table, the smaller one has more sessions to a row
  select pg_ident(r.nspname) || '.' || pg_ident(r.relname) as parent, sum(l.wait_s) as seconds, string_agg(distinct l.child, ', ' order by l.child) as children, count(*) over () as parents
  from locked l join (select relid, any_value(nspname) as nspname, any_value(relname) as relname, max(reltuples) as reltuples from relation where datid <> 0 group by relid) r using (relid)
  group by r.nspname, r.relname
  qualify row_number() over (order by sum(l.wait_s) desc, any_value(r.reltuples), parent) = 1
),
overflowed as (  -- sessions with more subtransactions than others can look up in shared memory; the server lists them from 16 on
  select distinct regexp_extract(object, '(\d+)$', 1)::int as pid from server_stat where view = 'pg_stat_get_backend_subxact'
),
opener as (  -- the oldest of them has kept the others at it for longest
  select o.pid as subxact_pid, mode(nullif(s.application_name, '') order by s.application_name) as application_name, count(*) over () - 1 as others
  from overflowed o left join session_sample s on s.pid = o.pid group by o.pid
  qualify row_number() over (order by max(s.xact_age_s) desc nulls last, o.pid) = 1
),
looked_up as (  -- by the server's counters; 17 has other names for the caches
  select case when name like 'subtrans%' then 'Subtrans' when name like 'multixact%' then 'MultiXact' when name in ('xact', 'clog', 'transaction') then 'Xact'
              when name in ('committs', 'commit_timestamp') then 'CommitTs' when name like 'notify%' then 'Notify' when name like 'serial%' then 'Serial' end as slru,
         sum(delta) filter (metric = 'blks_read') as pages_read, sum(delta) as look_ups
  from (select *, lower(object) as name from server_stat_delta where view = 'pg_stat_slru' and metric in ('blks_hit', 'blks_read') and delta >= 0) group by 1
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
              || case when pages_read > 0 then format('; of {:.0f} look-ups in it {:.0f} read a page from its file ({:.1f} %)', look_ups, pages_read, 100 * pages_read / look_ups) else '' end
              || case when slru = 'Subtrans' and subxact_pid is not null then format('; pid {}{}{} had more than 64 subtransactions open', subxact_pid, coalesce(' (application ' || application_name || ')', ''),
                                                                                      case when others > 0 then format(' and {} others', others) else '' end) else '' end
              || case when slru = 'MultiXact' and parent is not null
                      then format('; rows of {} are locked by many at once{}{}', parent, coalesce(', through foreign keys of ' || children, ''),
                                  case when parents > 1 then format(' (the likeliest of {} tables)', parents) else '' end) else '' end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({subxact_pid: case when slru = 'Subtrans' then subxact_pid end, parent: case when slru = 'MultiXact' then parent end, regclass: case when slru = 'MultiXact' then pg_literal(parent) end}) as facts
from cost left join looked_up using (slru) left join opener on true left join parent on true cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples')
order by cost_s desc, slru
