-- id: BUFFERMAPPING
-- title: Sessions compete for the partitions of the buffer table
-- question: How much time goes to waits for LWLock BufferMapping, and does one partition cause most of it?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited for LWLock BufferMapping (buffer_mapping in 12)
-- cost: database time
-- threshold: min_share = 0.02 (2 % of database time; any busy server has less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- silent unless: (select sum(samples) >= getvariable('min_samples') and 2 * sum(share) >= getvariable('min_share') from wait_time where in_db_time and wait_class = 'LWLock' and lower(wait_event) like 'buffer%mapping')
-- wrong when: the cache was still cold after a restart
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait as (
  select * from db_time
  where wait_class = 'LWLock' and replace(lower(wait_event), '_', '') in ('buffermapping')
),
statement_cost as (
  select statement_id, sum(weight_s) as wait_s, count(distinct session_id) as sessions from wait group by statement_id
),
top_statement as (
  select to_json(list({statement_id: c.statement_id, wait_s: round(c.wait_s, 3), sessions: c.sessions,
                       query: left(regexp_replace(s.query, '\s+', ' ', 'g'), 120)} order by c.wait_s desc, c.statement_id)[:20]) as evidence
  from statement_cost c left join statement s using (statement_id)
),
lock_partition as (
  select l.partition, sum(l.waiters) as waiters
  from lwlock_wait l join wait_event e on e.wait_event_info = l.wait_event_info
  where replace(lower(e.wait_event), '_', '') in ('buffermapping') and l.partition >= 0
  group by l.partition
),
spread as (
  select count(*) as partitions, sum(waiters) as waiters, arg_max(partition, waiters order by partition) as top_partition, max(waiters) as top_waiters
  from lock_partition
),
block_read as (
  select sum(shared_blks_read) as blocks from session_delta
),
found as (
  select sum(weight_s) as cost_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to
  from wait
),
cost as (
  select f.*, s.*, t.evidence, f.cost_s / b.db_time_s as share, r.blocks / c.window_s as blocks_per_s
  from found f cross join base b cross join spread s cross join top_statement t cross join block_read r cross join capture c
)
select 'BUFFERMAPPING' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of(c.tier, samples) as confidence,
       'buffer table partitions' as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) waiting for partitions of the buffer table{}{}',
              sessions, cost_s, 100 * share,
              case when partitions = 0 then ''
                   else format('; {} partition{} contended, partition {} with {:.0f} % of the waiters', partitions,
                               case when partitions = 1 then '' else 's' end, top_partition, 100.0 * top_waiters / waiters) end,
              case when blocks_per_s is null then '' else format('; sessions read {:.0f} blocks a second into the cache', blocks_per_s) end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from cost cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples')
