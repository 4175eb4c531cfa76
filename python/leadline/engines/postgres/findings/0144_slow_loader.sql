-- id: SLOW-LOADER
-- title: A load waits for its loader to send data
-- question: Which COPY FROM STDIN spends its time waiting for its client, and how much?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds of database time in ClientRead of active sessions
-- cost: database time
-- threshold: loader_s = 1.0 (seconds in the window; with less there are too few samples)
-- threshold: loader_sessions = 0.05 (sessions waiting on average; fewer are the gaps between packets)
-- threshold: loader_part = 0.5 (of the time of the COPY; below it, the server is what limits the load)
-- threshold: loader_medium_part = 0.8 (of the time of the COPY: the load could be many times as fast)
-- threshold: loader_medium_sessions = 0.5 (sessions waiting on average)
-- silent unless: exists (from wait_time where wait_event = 'ClientRead' and in_db_time)
-- wrong when: the source of the data is slow and nobody waits for the load
with load as (
  select d.session_id, d.pid, d.ts, d.application_name, d.client_addr, d.usename, d.statement_id, d.weight_s, d.samples, d.event = 'ClientRead' as is_waiting, q.query,
         regexp_extract(q.query, '^\s*copy\s+((?:"(?:[^"]|"")+"|[^\s("])+)', 1, 'i') as target
  from db_time d join statement q using (statement_id)
  where d.backend_type = 'client backend' and d.state = 'active' and regexp_matches(q.query, '^\s*copy\s.*\sfrom\s+stdin', 'is')
),
progress as (  -- of loads that run at a reading; 14 and later
  select split_part(object, '/', -1)::integer as pid, max(delta) filter (metric = 'bytes_processed') as bytes, max(delta) filter (metric = 'tuples_processed') as tuples,
         max(dt_s) as dt_s
  from server_stat_delta where view = 'pg_stat_progress_copy' group by object
),
found as (
  select application_name, client_addr, target, sum(weight_s) as load_s, sum(weight_s) filter (is_waiting) as cost_s, coalesce(sum(samples) filter (is_waiting), 0)::bigint as samples,
         count(distinct session_id) as sessions, min(ts) filter (is_waiting) as ts_from, max(ts) filter (is_waiting) as ts_to
  from load group by all
),
moved as (
  select l.application_name, l.client_addr, l.target, sum(p.bytes) as bytes, sum(p.tuples) as tuples, max(p.dt_s) as dt_s
  from (select distinct application_name, client_addr, target, pid from load) l join progress p using (pid) where p.bytes > 0 group by all
),
proof as (
  select application_name, client_addr, target,
         to_json(list({pid: pid, usename: usename, wait_s: round(wait_s, 3), load_s: round(load_s, 3), query: query} order by wait_s desc, pid)[:20]) as evidence
  from (select application_name, client_addr, target, pid, usename, left(regexp_replace(any_value(query), '\s+', ' ', 'g'), 120) as query,
               sum(weight_s) as load_s, coalesce(sum(weight_s) filter (is_waiting), 0) as wait_s
        from load group by all) group by all
),
cost as (select *, cost_s / (select sum(weight_s) from db_time) as share, cost_s / load_s as part from found)
select 'SLOW-LOADER' as id,
       case when part >= getvariable('loader_medium_part') and cost_s >= getvariable('loader_medium_sessions') * c.window_s then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples) as confidence,
       'COPY into ' || target || ' by application ' || case when application_name = '' then 'without name' else application_name end || ' from ' || client_addr as subject,
       format('COPY into {} by application {} from {} waited {:.1f} of {:.1f} s ({:.0f} %, {:.1f} % of database time) for its client to send data, in {} session{}{}',
              target, case when application_name = '' then 'without name' else application_name end, client_addr, cost_s, load_s, 100 * part, 100 * share, sessions,
              case when sessions = 1 then '' else 's' end,
              case when m.bytes is null then '' else format('; it took {:.2f} MB and {:.0f} rows a second', m.bytes / 1048576.0 / m.dt_s, m.tuples / m.dt_s) end) as statement,
       cost_s, share as share_of_db_time, samples, f.ts_from, f.ts_to, evidence,
       to_json({target: target, application: case when application_name = '' then 'that has no name' else application_name end,
                faster: case when part < 1 then format('{:.1f}', 1 / (1 - part)) end}) as facts
from cost f join proof using (application_name, client_addr, target) left join moved m using (application_name, client_addr, target)
cross join (select tier, window_s from capture) c cross join (select sum(period_ns) / 1e9 as observed_s from tick)
where cost_s >= greatest(getvariable('loader_s'), getvariable('loader_sessions') * observed_s) and part >= getvariable('loader_part')
order by cost_s desc, subject
