-- id: SINGLE-ROW-COMMITS
-- title: Each inserted row is a transaction of its own and waits for its commit
-- question: Which application inserts rows one by one without a transaction around them, and how long do these commits wait?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds that an INSERT waited for the commit of its own transaction
-- cost: database time
-- threshold: single_share = 0.3 (share of the commit in the time of these statements)
-- threshold: single_main = 0.8 (share of INSERT in the database time of the application: it loads rows)
-- threshold: single_min_sessions = 0.1 (sessions that wait on average)
-- threshold: single_min_samples = 20 (with fewer, the sampling error is large)
-- threshold: single_rows = 1.5 (rows of each call, where they are counted)
-- silent unless: exists (from wait_time where in_db_time and replace(lower(wait_event), 'lock', '') in ('walsync', 'walwrite', 'syncrep', 'waitforwalsync'))
-- wrong when: each row has to be safe on disk before the next one is sent
with work as (
  select d.*, q.query, regexp_matches(q.query, '^\s*insert\b', 'i') as is_insert, replace(lower(d.wait_event), 'lock', '') in ('walsync', 'walwrite', 'syncrep') as in_commit
  from db_time d left join statement q using (statement_id) where d.backend_type = 'client backend'
),
-- inside a transaction the commit waits under the text COMMIT
loader as (
  select w.application_name, w.client_addr, sum(weight_s) as all_s, sum(weight_s) filter (is_insert) as insert_s, coalesce(sum(weight_s) filter (is_insert and in_commit), 0) as wait_s,
         coalesce(sum(samples) filter (is_insert and in_commit), 0)::bigint as samples, count(distinct session_id) filter (is_insert) as sessions,
         min(ts) filter (is_insert) as ts_from, max(ts) filter (is_insert) as ts_to, arg_max(query, weight_s) filter (is_insert and in_commit) as query, mode(statement_id) filter (is_insert and in_commit) as statement_id
  from work w group by all
)
select 'SINGLE-ROW-COMMITS' as id,
       case when severity_of(wait_s / b.db_time_s, wait_s, c.window_s) = 'low' then 'low' else 'medium' end as severity, confidence_of(c.tier, samples) as confidence,
       'application ' || if(application_name = '', 'without name', application_name) || ' from ' || client_addr as subject,
       format('{} session{} of application {} spent {:.1f} of {:.1f} s of INSERT waiting for the commit of each row{}: {}', sessions, if(sessions = 1, '', 's'), if(application_name = '', 'without name', application_name),
              wait_s, insert_s, coalesce(format(' ({:.0f} calls a second of {:.1f} rows)', t.calls / t.dt_s, t.result_rows / t.calls), ''), left(regexp_replace(l.query, '\s+', ' ', 'g'), 160)) as statement,
       wait_s as cost_s, wait_s / b.db_time_s as share_of_db_time, samples, l.ts_from, l.ts_to,
       to_json([{statement_id: statement_id, query: left(l.query, 200), sessions: sessions, insert_s: round(insert_s, 3), commit_s: round(wait_s, 3), calls: t.calls, result_rows: t.result_rows}]) as evidence
from loader l left join (from statement_stat where calls > 0) t using (statement_id) cross join (select sum(weight_s) as db_time_s from db_time) b cross join capture c
where insert_s >= getvariable('single_main') * all_s and wait_s >= getvariable('single_share') * insert_s and wait_s >= getvariable('single_min_sessions') * c.window_s
  and samples >= getvariable('single_min_samples') and (t.calls is null or t.result_rows <= getvariable('single_rows') * t.calls)
order by cost_s desc, subject
