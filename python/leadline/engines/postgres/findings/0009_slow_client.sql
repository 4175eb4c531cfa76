-- id: SLOW-CLIENT
-- title: The server waits for a client to read its result
-- question: Which application reads its results so slowly that the server waits in ClientWrite, and in which statement?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds of database time in ClientWrite
-- cost: database time
-- threshold: slow_client_s = 1.0 (seconds in the window; with less there are too few samples)
-- threshold: slow_client_sessions = 0.05 (sessions waiting on average; fewer are the normal filling of socket buffers)
-- threshold: slow_client_own_share = 0.25 (a quarter of the client's own active time; a fast reader stays far below)
-- minimum: tick 30
-- silent unless: exists (from wait_time where wait_event = 'ClientWrite')
-- wrong when: a dump or an export is limited by the disk or the network it writes to, and nobody waits for it
with about as (select window_s, tier, cpu_count from capture),
observed as (select sum(period_ns) / 1e9 as observed_s from tick),
base as (select sum(weight_s) as db_time_s from db_time),
reader as (
  select application_name, client_addr, sum(weight_s) as active_s,
         sum(weight_s) filter (where event = 'ClientWrite') as write_s,
         coalesce(sum(samples) filter (where event = 'ClientWrite'), 0)::bigint as samples,
         count(distinct session_id) filter (where event = 'ClientWrite') as sessions,
         min(pid) filter (where event = 'ClientWrite') as pid,
         min(ts) filter (where event = 'ClientWrite') as ts_from, max(ts) filter (where event = 'ClientWrite') as ts_to
  from db_time where backend_type = 'client backend'
  group by all
),
spent as (
  select application_name, client_addr, pid, usename, statement_id, sum(weight_s) as write_s, sum(samples)::bigint as samples
  from db_time where event = 'ClientWrite' and backend_type = 'client backend' group by all
),
proof as (
  select application_name, client_addr, arg_max(q.query, s.write_s order by q.query) as query,
         to_json(list({pid: pid, usename: usename, statement_id: statement_id, query: left(regexp_replace(q.query, '\s+', ' ', 'g'), 200),
                       client_write_s: round(write_s, 3), samples: samples} order by write_s desc, pid, statement_id)[:20]) as evidence
  from spent s left join statement q using (statement_id) group by all
),
named as (select r.*, p.query, p.evidence, write_s / db_time_s as share from reader r join proof p using (application_name, client_addr) cross join base)
select 'SLOW-CLIENT' as id,
       severity_of(share, write_s, c.window_s) as severity,
       confidence_of(c.tier, samples) as confidence,
       'application ' || case when application_name = '' then 'without name' else application_name end || ' from ' || client_addr as subject,
       format('{} of application {} from {} took {} result{} so slowly that the server waited {:.1f} s in ClientWrite ({:.0f} % of its active time, {:.1f} % of database time){}',
              case when sessions = 1 then 'pid ' || pid else sessions || ' sessions' end,
              case when application_name = '' then 'without name' else application_name end, client_addr,
              case when sessions = 1 then 'its' else 'their' end, case when sessions = 1 then '' else 's' end,
              write_s, 100 * write_s / active_s, 100 * share,
              case when query is not null then '; mostly in: ' || left(regexp_replace(query, '\s+', ' ', 'g'), 120) else '' end) as statement,
       write_s as cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from named cross join observed cross join about c
where write_s >= greatest(getvariable('slow_client_s'), getvariable('slow_client_sessions') * observed_s)
  and write_s >= getvariable('slow_client_own_share') * active_s
order by cost_s desc, subject
