-- id: READ-IO
-- title: A large part of the time goes to reading data files
-- question: How much time goes to reading blocks that are not in shared buffers, and which statements read them?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds waited for IO DataFileRead and DataFilePrefetch, for reads of other sessions (BufferIO) and for asynchronous reads (18)
-- cost: database time
-- threshold: min_share = 0.25 (25 % of database time; less is usual when the data is larger than the cache)
-- threshold: min_sessions = 0.2 (sessions waiting on average; with fewer, the server is quiet and the share means little)
-- threshold: min_samples = 20 (with fewer, the sampling error is large)
-- threshold: read_high_share = 0.5 (share of database time; every statement has to read, so this limit is higher than for other waits)
-- threshold: read_high_sessions = 1 (sessions waiting on average)
-- threshold: read_medium_share = 0.25 (share of database time)
-- threshold: read_medium_sessions = 0.25 (sessions waiting on average)
-- silent unless: (select sum(samples) >= getvariable('min_samples') and 2 * sum(share) >= getvariable('min_share') from wait_time where in_db_time and wait_class in ('IO', 'IPC', 'LWLock') and replace(lower(wait_event), '_', '') in ('datafileread', 'datafileprefetch', 'bufferio', 'aioiocompletion', 'aioiouringexecution'))
-- wrong when: the server was just started and its cache was cold
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait as (
  select * from db_time
  where wait_class in ('IO', 'IPC', 'LWLock')
    and replace(lower(wait_event), '_', '') in ('datafileread', 'datafileprefetch', 'bufferio', 'aioiocompletion', 'aioiouringexecution')
),
statement_cost as (
  select statement_id, sum(weight_s) as wait_s, count(distinct session_id) as sessions from wait group by statement_id
),
top_statement as (
  select to_json(list({statement_id: c.statement_id, wait_s: round(c.wait_s, 3), sessions: c.sessions,
                       query: left(regexp_replace(s.query, '\s+', ' ', 'g'), 120)} order by c.wait_s desc, c.statement_id)[:20]) as evidence
  from statement_cost c left join statement s using (statement_id)
),
block_read as (
  select sum(shared_blks_read) as blocks from session_delta
),
found as (
  select sum(weight_s) as cost_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to from wait
),
cost as (
  select f.*, t.evidence, r.blocks, f.cost_s / b.db_time_s as share
  from found f cross join base b cross join top_statement t cross join block_read r
)
select 'READ-IO' as id,  -- never critical: reading is work, not a fault
       case when share >= getvariable('read_high_share') and cost_s >= getvariable('read_high_sessions') * c.window_s then 'high'
            when share >= getvariable('read_medium_share') and cost_s >= getvariable('read_medium_sessions') * c.window_s then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples) as confidence,
       'reads of data files' as subject,
       format('{} sessions waited {:.1f} s ({:.1f} % of database time) for blocks to be read{}', sessions, cost_s, 100 * share,
              case when coalesce(blocks, 0) = 0 then ''
                   else format('; {:.0f} blocks a second, {:.2f} ms of waiting for each', blocks / c.window_s, 1e3 * cost_s / blocks) end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from cost cross join (select tier, window_s from capture) c cross join (select sum(period_ns) / 1e9 as observed_s from tick)
where share >= getvariable('min_share') and cost_s >= getvariable('min_sessions') * observed_s and samples >= getvariable('min_samples')
