-- id: RELATION-EXTEND
-- title: Sessions queue to extend a relation
-- question: How much time goes to waits for the right to extend a relation, and which relation is it?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited for Lock extend, divided among relations by the waits seen on each
-- cost: database time
-- threshold: min_share = 0.02 (2 % of database time; any bulk load has less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- silent unless: (select sum(samples) >= getvariable('min_samples') and 2 * sum(share) >= getvariable('min_share') from wait_time where in_db_time and wait_class = 'Lock' and wait_event = 'extend')
-- wrong when: a bulk load was the only writer that mattered in the window
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait as (
  select sum(weight_s) as wait_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to
  from db_time where wait_class = 'Lock' and wait_event = 'extend'
),
waiter as (
  select ts, session_id, datid, relid, coalesce(sum(looks), 1)::bigint as looks from lock_wait where locktype = 'extend' group by all
),
seen as (  -- without lock rows the waits stand for themselves, unnamed
  select w.datid, w.relid, sum(looks)::bigint as waits, count(distinct w.session_id) as sessions,
         coalesce(any_value(r.nspname || '.' || r.relname), w.datid || '/' || w.relid) as object
  from waiter w left join relation r on r.datid = w.datid and r.relid = w.relid
  group by w.datid, w.relid
  union all
  select null, null, 1, (select sessions from wait), 'not known' where not exists (select 1 from waiter)
),
cost as (
  select s.*, w.ts_from, w.ts_to, w.wait_s * s.waits / sum(s.waits) over () as cost_s,
         round(w.samples * s.waits / sum(s.waits) over ())::bigint as samples, b.db_time_s
  from seen s cross join wait w cross join base b
)
select 'RELATION-EXTEND' as id,
       severity_of(cost_s / db_time_s, cost_s, c.window_s) as severity,
       confidence_of(c.tier, samples) as confidence,
       'relation ' || object as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) waiting to extend relation {}', sessions, cost_s, 100 * cost_s / db_time_s, object)
         as statement,
       cost_s, cost_s / db_time_s as share_of_db_time, samples, ts_from, ts_to,
       to_json([{relid: relid, waits_seen: waits, sessions: sessions}]) as evidence
from cost cross join (select tier, window_s from capture) c
where cost_s / db_time_s >= getvariable('min_share') and samples >= getvariable('min_samples')
order by cost_s desc, object
