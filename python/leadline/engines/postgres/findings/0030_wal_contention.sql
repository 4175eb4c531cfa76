-- id: WAL-CONTENTION
-- title: Sessions wait for WAL
-- question: How much time goes to writing and flushing WAL, and is the flush or the contention for WAL buffers the cause?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds waited for LWLock WALInsert, WALWrite, WALBufMapping and for IO WALSync, WALWrite, WALInitSync, WALInitWrite
-- cost: database time
-- threshold: min_share = 0.2 (20 % of database time; durable commits usually cost less than this)
-- threshold: min_sessions = 0.2 (sessions waiting on average; with fewer, the server is quiet and the share means little)
-- threshold: min_insert_share = 0.05 (5 % of database time for WALInsert and WALBufMapping alone; these waits are contention, not durability)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: wal_high_share = 0.5 (share of database time; every transaction has to write WAL, so this limit is higher than for other waits)
-- threshold: wal_high_sessions = 1 (sessions waiting on average)
-- threshold: wal_medium_share = 0.2 (share of database time)
-- threshold: wal_medium_sessions = 0.25 (sessions waiting on average)
-- silent unless: (select sum(samples) >= getvariable('min_samples') and (2 * sum(share) >= getvariable('min_share') or 2 * sum(share) filter (wait_class = 'LWLock' and replace(lower(wait_event), '_', '') not like 'walwrite%') >= getvariable('min_insert_share')) from wait_time where in_db_time and wait_class in ('LWLock', 'IO') and lower(wait_event) like 'wal%')
-- wrong when: the load is a bulk load or a benchmark of commits, where this is the expected limit
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait as (
  select * from (select * replace (regexp_replace(replace(lower(wait_event), '_', ''), 'lock$', '') as event) from db_time)
  where ((wait_class = 'LWLock' and event in ('walinsert', 'walwrite', 'walbufmapping'))
         or (wait_class = 'IO' and event in ('walsync', 'walwrite', 'walinitsync', 'walinitwrite', 'walsyncmethodassign')))
),
event_cost as (
  select wait_class || ':' || wait_event as event, sum(weight_s) as wait_s, sum(samples)::bigint as samples from wait group by 1
),
found as (
  select sum(weight_s) as cost_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to,
         coalesce(sum(weight_s) filter (wait_class = 'IO' or event = 'walwrite'), 0) as flush_s,
         coalesce(sum(weight_s) filter (wait_class = 'LWLock' and event <> 'walwrite'), 0) as insert_s
  from wait
),
wal as (  -- the server's own count when there is one (14 and later), else what the sessions made
  select coalesce((select max(delta) from server_stat_delta where view = 'pg_stat_wal' and metric = 'wal_bytes' and delta >= 0),
                  (select sum(wal_bytes) from session_delta)) as bytes
),
evidence as (
  select to_json(list({event: event, wait_s: round(wait_s, 3), samples: samples} order by wait_s desc, event)) as evidence from event_cost
),
cost as (
  select f.*, e.evidence, w.bytes, f.cost_s / b.db_time_s as share, f.insert_s / b.db_time_s as insert_share
  from found f cross join base b cross join wal w cross join evidence e
)
select 'WAL-CONTENTION' as id,  -- never critical: waiting for the flush is what durability costs
       case when share >= getvariable('wal_high_share') and cost_s >= getvariable('wal_high_sessions') * c.window_s then 'high'
            when share >= getvariable('wal_medium_share') and cost_s >= getvariable('wal_medium_sessions') * c.window_s then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples) as confidence,
       'write-ahead log' as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) to the WAL: {:.1f} s to its write and flush, {:.1f} s to WALInsert and WALBufMapping{}',
              sessions, cost_s, 100 * share, flush_s, insert_s,
              case when bytes is null then '' else format('; {:.2f} MB of WAL a second', bytes / 1048576.0 / c.window_s) end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from cost cross join (select tier, window_s from capture) c cross join (select sum(period_ns) / 1e9 as observed_s from tick)
where samples >= getvariable('min_samples')
  and ((share >= getvariable('min_share') and cost_s >= getvariable('min_sessions') * observed_s) or insert_share >= getvariable('min_insert_share'))
