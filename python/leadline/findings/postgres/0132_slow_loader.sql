-- id: SLOW-LOADER
-- title: COPY waits for the client that sends the rows
-- question: Which application sends the rows of COPY so slowly that the server waits for them, and into which table?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds that COPY waited for data of the client
-- cost: database time
-- threshold: loader_share = 0.5 (share of the time of COPY; with less the server is the slower part)
-- threshold: loader_min_s = 1 (seconds in the window)
-- threshold: loader_min_samples = 10 (with fewer, the sampling error is large)
-- silent unless: exists (from wait_time where in_db_time and wait_event = 'ClientRead')
-- wrong when: the rows come as they arise, as from a stream of events, and nobody waits for the end
with load as (
  select d.*, q.query, regexp_extract(q.query, '^\s*copy\s+((?:"[^"]+"|[\w$]+)(?:\.(?:"[^"]+"|[\w$]+))?)', 1, 'i') as relation
  from db_time d join statement q using (statement_id) where d.backend_type = 'client backend' and regexp_matches(q.query, '^\s*copy\b.*\bfrom\s+stdin\b', 'is')
),
loader as (
  select application_name, client_addr, relation, sum(weight_s) as copy_s, coalesce(sum(weight_s) filter (wait_event = 'ClientRead'), 0) as wait_s, count(*) filter (wait_event = 'ClientRead') as samples,
         count(distinct session_id) as sessions, any_value(pid) as pid, min(ts) as ts_from, max(ts) as ts_to, any_value(query) as query
  from load group by all
)
select 'SLOW-LOADER' as id,
       case when wait_s >= l.sessions * c.window_s / 2 then 'medium' else 'low' end as severity, confidence_of(c.tier, samples) as confidence,
       'application ' || if(application_name = '', 'without name', application_name) || ' from ' || client_addr || ' into ' || relation as subject,
       format('COPY into {} by {} waited {:.1f} of {:.1f} s ({:.0f} %) for application {} from {} to send rows', relation, if(sessions = 1, format('pid {}', pid), format('{} sessions', sessions)),
              wait_s, copy_s, 100 * wait_s / copy_s, if(application_name = '', 'without name', application_name), client_addr) as statement,
       wait_s as cost_s, wait_s / b.db_time_s as share_of_db_time, samples, l.ts_from, l.ts_to,
       to_json([{pid: pid, sessions: sessions, relation: relation, copy_s: round(copy_s, 3), client_read_s: round(wait_s, 3), query: left(query, 200)}]) as evidence
from loader l cross join (select sum(weight_s) as db_time_s from db_time) b cross join capture c
where wait_s >= greatest(getvariable('loader_min_s'), getvariable('loader_share') * copy_s) and samples >= getvariable('loader_min_samples')
order by cost_s desc, subject
