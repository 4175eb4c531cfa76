-- id: CLIENT-GONE
-- title: The server works for clients that are gone
-- question: Which sessions run or wait although their client has closed the connection, and how long?
-- domain: postgres
-- needs: session_sample, tcp_sample
-- unit: seconds of sessions at work whose client had closed the connection
-- cost: database time
-- threshold: gone_min_s = 1.0 (seconds: a statement that ends by itself within this is none to care for)
-- threshold: gone_min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from tcp_sample where state = 'CLOSE_WAIT')
-- wrong when: the client closes only its half of the connection and still reads the answer, as some proxies do
with about as (select window_s, tier, ts_to from capture),
base as (select sum(weight_s) as db_time_s from db_time),
reading as (select *, lag(ts) over (partition by cookie order by ts) as before_ts from tcp_sample),
gone as (  -- the client has closed its end, which came with an acknowledgement; the server notices when it next reads or writes
  select session_id, any_value(t.remote_addr) as client_addr,
         min(greatest(t.before_ts, coalesce(t.ts - t.last_ack_recv * 1e6::bigint, (t.before_ts + t.ts) // 2), 0)) as gone_ts
  from reading t join session_socket using (cookie) where t.state = 'CLOSE_WAIT' group by session_id
),
work as (
  select s.session_id, s.ts, s.pid, s.application_name, s.usename, s.statement_id, s.weight_s, s.wait_class, g.client_addr
  from db_time s join gone g on g.session_id = s.session_id and s.ts >= g.gone_ts
),
held as (  -- what others lost behind them
  select c.root_session_id as session_id, sum(c.wait_s) as blocked_s, count(distinct c.session_id) as victims
  from lock_chain c join gone g on g.session_id = c.root_session_id and c.ts >= g.gone_ts group by c.root_session_id
),
one as (
  select w.session_id, any_value(pid) as pid, any_value(application_name) as application_name, any_value(usename) as usename, any_value(client_addr) as client_addr, mode(statement_id order by statement_id) as statement_id,
         sum(weight_s) as gone_s, count(*) as samples, coalesce(sum(weight_s) filter (wait_class = 'Lock'), 0) as lock_s, min(ts) as ts_from, max(ts) as ts_to,
         coalesce(any_value(h.blocked_s), 0) as blocked_s, coalesce(any_value(h.victims), 0) as victims
  from work w left join held h using (session_id) group by w.session_id
  having sum(weight_s) >= getvariable('gone_min_s')
),
found as (
  select application_name, client_addr, count(*) as sessions, sum(gone_s) as cost_s, sum(samples)::bigint as samples, sum(lock_s) as lock_s, sum(blocked_s) as blocked_s, sum(victims)::bigint as victims,
         count(*) filter (where o.ts_to >= a.ts_to - 1e9) as left_over, arg_max(pid, o.ts_to) as pid, arg_max(statement_id, gone_s) as statement_id, mode(usename order by usename) as usename, min(ts_from) as ts_from, max(o.ts_to) as ts_to,
         to_json(list({pid: pid, usename: usename, after_its_client_s: round(gone_s, 3), waited_for_locks_s: round(lock_s, 3), others_waited_s: round(blocked_s, 3)} order by gone_s desc, pid)[:20]) as evidence
  from one o cross join (select ts_to from about) a group by application_name, client_addr
),
interval as (select max(try_cast(setting as double)) / 1e3 as check_s from setting where name = 'client_connection_check_interval')
select 'CLIENT-GONE' as id,
       severity_of(f.cost_s / b.db_time_s, f.cost_s, a.window_s) as severity, confidence_of(a.tier, samples) as confidence,
       'clients of application ' || case when application_name = '' then 'without name' else application_name end || ' from ' || client_addr as subject,
       format('{} session{} worked for {:.1f} s ({:.1f} % of database time) after the client had closed the connection: application {} from {}{}{}{}{}{}', sessions, if(sessions = 1, '', 's'), f.cost_s, 100 * f.cost_s / b.db_time_s,
              case when application_name = '' then 'without name' else application_name end, client_addr,
              case when lock_s > 0 then format('; {:.1f} s of it waiting for locks', lock_s) else '' end,
              case when blocked_s > 0 then format('; {} other session{} waited {:.1f} s behind their locks', victims, if(victims = 1, '', 's'), blocked_s) else '' end,
              case when left_over > 0 then format('; {} still did at the end', left_over) else '' end,
              case when check_s = 0 then '; client_connection_check_interval is off' when check_s > 0 then format('; client_connection_check_interval is {:.0f} s', check_s) else '' end,
              coalesce('; ' || left(regexp_replace(q.query, '\s+', ' ', 'g'), 160), '')) as statement,
       f.cost_s, f.cost_s / b.db_time_s as share_of_db_time, samples, f.ts_from, f.ts_to, evidence,
       to_json({pid: case when left_over > 0 then pid end, application: case when application_name = '' then 'that has no name' else application_name end, is_unchecked: coalesce(check_s, 0) = 0,
                role: pg_ident(usename)}) as facts
from found f cross join base b cross join about a cross join interval left join statement q using (statement_id)
where f.cost_s >= getvariable('gone_min_share') * b.db_time_s
order by f.cost_s desc, subject
