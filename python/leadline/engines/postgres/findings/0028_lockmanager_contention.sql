-- id: LOCKMANAGER-CONTENTION
-- title: Sessions compete for the partitions of the lock table
-- question: How much time goes to waits for LWLock LockManager, and does one partition cause most of it?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited for LWLock LockManager (lock_manager in 12) and LockFastPath
-- cost: database time
-- threshold: min_share = 0.02 (2 % of database time; any busy server has less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: queue_part = 1 (part of the same statement's waits for locks; a queue for one lock also contends for its partition, measured at 3 to 5 % of its time, and more beside a hot row on few CPUs)
-- silent unless: (select sum(samples) >= getvariable('min_samples') and 2 * sum(share) >= getvariable('min_share') from wait_time where in_db_time and wait_class = 'LWLock' and lower(wait_event) like 'lock%')
-- wrong when: sessions take and release the same few heavyweight locks without ever queueing for them, such as advisory locks in a loop
with base as (
  select sum(weight_s) as db_time_s from db_time
),
seen as (
  select * from db_time
  where wait_class = 'LWLock' and replace(lower(wait_event), '_', '') in ('lockmanager', 'lockfastpath')
),
queue as (  -- statements that wait for the locks themselves: the lock is their trouble, not its table
  select statement_id, sum(weight_s) as lock_s from db_time where wait_class = 'Lock' group by statement_id
),
table_cost as (select statement_id, sum(weight_s) as table_s from seen group by statement_id),
queued as (
  select q.statement_id from queue q join table_cost t on t.statement_id is not distinct from q.statement_id
  where t.table_s < getvariable('queue_part') * q.lock_s
),
wait as (
  select * from seen s where not exists (from queued q where q.statement_id is not distinct from s.statement_id)
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
  where replace(lower(e.wait_event), '_', '') in ('lockmanager', 'lockfastpath') and l.partition >= 0
  group by l.partition
),
spread as (
  select count(*) as partitions, sum(waiters) as waiters, arg_max(partition, waiters order by partition) as top_partition, max(waiters) as top_waiters
  from lock_partition
),
locks_setting as (
  select max(setting) as setting from setting where name = 'max_locks_per_transaction'
),
found as (
  select sum(weight_s) as cost_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to
  from wait
),
cost as (
  select f.*, s.*, t.evidence, f.cost_s / b.db_time_s as share, l.setting
  from found f cross join base b cross join spread s cross join top_statement t cross join locks_setting l
)
select 'LOCKMANAGER-CONTENTION' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of(c.tier, samples) as confidence,
       'lock table partitions' as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) waiting for partitions of the lock table{}{}',
              sessions, cost_s, 100 * share,
              case when partitions = 0 then ''
                   else format('; {} partition{} contended, partition {} with {:.0f} % of the waiters', partitions,
                               case when partitions = 1 then '' else 's' end, top_partition, 100.0 * top_waiters / waiters) end,
              case when setting is null then '' else '; max_locks_per_transaction is ' || setting end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from cost cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples')
