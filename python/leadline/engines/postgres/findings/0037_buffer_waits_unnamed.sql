-- id: BUFFER-WAITS-UNNAMED
-- title: Sessions compete for pages that could not be identified
-- question: How much time goes to waits for pages that the capture could not identify?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited for LWLock BufferContent (buffer_content in 12)
-- cost: database time
-- threshold: min_share = 0.02 (2 % of database time; any busy server has less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: min_named = 5 (waiters seen on pages; with this many, the findings about pages say more)
-- threshold: samples_medium = 100 (a sampling error of 10 %; without known pages the confidence is never higher than medium)
-- silent unless: (select sum(samples) >= getvariable('min_samples') and 2 * sum(share) >= getvariable('min_share') from wait_time where in_db_time and wait_class = 'LWLock' and lower(wait_event) like 'buffer%content') and (select coalesce(sum(waiters), 0) from buffer_wait where wait_kind = 'content') < getvariable('min_named')
-- wrong when: the waits spread over many pages, so that no page is hot
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait as (
  select * from db_time
  where wait_class = 'LWLock' and replace(lower(wait_event), '_', '') = 'buffercontent'
),
statement_cost as (
  select statement_id, sum(weight_s) as wait_s, count(distinct session_id) as sessions from wait group by statement_id
),
top_statement as (
  select to_json(list({statement_id: c.statement_id, wait_s: round(c.wait_s, 3), sessions: c.sessions,
                       query: left(regexp_replace(s.query, '\s+', ' ', 'g'), 120)} order by c.wait_s desc, c.statement_id)[:20]) as evidence
  from statement_cost c left join statement s using (statement_id)
),
top_query as (
  select left(regexp_replace(s.query, '\s+', ' ', 'g'), 120) as query
  from statement_cost c left join statement s using (statement_id) order by c.wait_s desc, c.statement_id limit 1
),
page as (
  select coalesce(sum(waiters), 0) as named from buffer_wait where wait_kind = 'content'
),
found as (
  select sum(weight_s) as cost_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to from wait
),
cost as (
  select f.*, t.evidence, q.query, p.named, f.cost_s / b.db_time_s as share
  from found f cross join base b cross join top_statement t cross join top_query q cross join page p
)
select 'BUFFER-WAITS-UNNAMED' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of('not named', samples, medium := getvariable('samples_medium')) as confidence,
       'buffer content locks' as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) waiting for pages; which pages could not be seen{}{}', sessions, cost_s, 100 * share,
              case when c.tier = 'sql' then ' over SQL' else '' end,
              case when query is null then '' else '; mostly in: ' || query end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from cost cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples') and named < getvariable('min_named')
