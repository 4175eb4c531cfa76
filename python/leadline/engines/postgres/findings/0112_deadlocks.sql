-- id: DEADLOCKS
-- title: Transactions are ended by deadlocks
-- question: How many deadlocks did the server break in each database, how long did sessions wait in them, and what did these run?
-- domain: postgres
-- needs: server_stat, session_sample
-- unit: seconds waited in deadlocks: what the samples show, or deadlock_timeout for each, whichever is more
-- cost: database time
-- threshold: default_timeout_ms = 1000 (ms; the default of deadlock_timeout, where the setting was not read)
-- threshold: some_deadlocks = 3 (deadlocks; one may be an accident, several are an order of locks that differs)
-- threshold: short_timeout_ms = 100 (ms; with less, ordinary waits start the search for a deadlock, which stops the whole lock table)
-- silent unless: exists (from server_stat_delta where view = 'pg_stat_database' and metric = 'deadlocks' and delta > 0)
-- wrong when: the application takes deadlocks into account and repeats the transaction, and they are rare
with base as (select sum(weight_s) as db_time_s from db_time),
counted as (
  select object as datname, delta as deadlocks, dt_s from server_stat_delta where view = 'pg_stat_database' and metric = 'deadlocks' and delta > 0
),
timeout as (
  select coalesce((select max(try_cast(setting as double)) from setting where name = 'deadlock_timeout'), getvariable('default_timeout_ms')) as timeout_ms
),
in_cycle as (  -- a chain without a root goes round
  select l.ts, l.session_id, l.wait_s, s.datname, s.statement_id, s.application_name
  from lock_look l
  left join session_sample s on s.ts = l.ts and s.session_id = l.session_id
  where not exists (from lock_chain c where c.ts = l.ts and c.pid = l.pid)
),
cycle as (select datname, sum(wait_s) as cycle_s, count(distinct session_id) as sessions, count(*) as looks, min(ts) as ts_from, max(ts) as ts_to from in_cycle group by datname),
said as (
  select datname, array_to_string(list(query order by wait_s desc, query)[:2], ' | ') as queries,
         to_json(list({query: query, waited_s: round(wait_s, 3), application_name: application_name} order by wait_s desc, query)[:20]) as evidence
  from (
    select c.datname, left(regexp_replace(s.query, '\s+', ' ', 'g'), 120) as query, c.application_name, sum(c.wait_s) as wait_s
    from in_cycle c join statement s using (statement_id) group by all
  ) group by datname
),
found as (
  select n.*, t.timeout_ms, c.cycle_s, c.sessions, c.looks, s.queries, s.evidence, greatest(coalesce(c.cycle_s, 0), n.deadlocks * t.timeout_ms / 1000) as cost_s,
         coalesce(c.ts_from, w.ts_from) as ts_from, coalesce(c.ts_to, w.ts_to) as ts_to, w.window_s
  from counted n cross join timeout t cross join capture w
  left join cycle c using (datname) left join said s using (datname)
),
cost as (select f.*, f.cost_s / b.db_time_s as share from found f cross join base b)
select 'DEADLOCKS' as id,
       case when severity_of(share, cost_s, window_s) = 'low' and deadlocks >= getvariable('some_deadlocks') then 'medium'
            else coalesce(severity_of(share, cost_s, window_s), 'low') end as severity,
       'high' as confidence,
       'database ' || datname as subject,
       format('The server broke {} deadlock{} in database {} in {:.0f} s: each ended a transaction with an error, after deadlock_timeout ({:.0f} ms){}{}',
              deadlocks::bigint, case when deadlocks = 1 then '' else 's' end, datname, dt_s, timeout_ms,
              case when cycle_s > 0 then format('; {} sessions were seen to wait {:.1f} s in them', sessions, cycle_s) else '' end,
              coalesce('; they ran: ' || queries, '')) as statement,
       cost_s, share as share_of_db_time, coalesce(looks, deadlocks)::bigint as samples, ts_from, ts_to,
       coalesce(evidence, to_json([{deadlocks: deadlocks, deadlock_timeout_ms: timeout_ms}])) as evidence,
       to_json({is_long: timeout_ms > getvariable('default_timeout_ms'), is_short: timeout_ms < getvariable('short_timeout_ms'), timeout_ms: timeout_ms::bigint}) as facts
from cost
order by cost_s desc, subject
