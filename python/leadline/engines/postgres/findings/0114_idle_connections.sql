-- id: IDLE-CONNECTIONS
-- title: Many connections are kept open and do nothing
-- question: How many sessions did nothing in the whole window, how much memory do they keep, and what do snapshots lose to their number?
-- domain: postgres
-- needs: session_sample, tick
-- unit: bytes that idle sessions keep for themselves (at least); before 14, seconds waited for ProcArrayLock are in the sentence
-- cost: none
-- threshold: idle_connections = 100 (sessions: the default of max_connections; a pooler in transaction mode needs a tenth of these)
-- threshold: idle_bytes = 1000000000 (bytes; 1 GB that no cache can use, also of fewer sessions)
-- threshold: idle_medium_part = 0.1 (of the memory of the host)
-- threshold: idle_part = 0.9 (of the window: the session was there)
-- threshold: snapshot_version = 140000 (server_version_num: from this version on a snapshot passes over sessions with a transaction id only)
-- threshold: idle_pings = 0.1 (short statements a second that no sample caught: a pool asks now and then whether a connection still stands)
-- minimum: tick 10
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: (select count(*) from session where backend_type = 'client backend') >= 10
-- wrong when: the window lies in a quiet hour, and the sessions work at other times
with about as (
  select c.window_s, c.ts_from as window_from, c.ts_to as window_to, (c.ts_to - c.ts_from) * getvariable('idle_part') as least_ns,
         (select max(try_cast(value as double)) from host_fact where name = 'memory.total_bytes') as host_bytes,
         (select max(server_version_num) < getvariable('snapshot_version') from capture) as is_before_14
  from capture c
),
kept as (  -- idle in each sample; each statement that none of them caught gave the state a new beginning
  select session_id, any_value(pid) as pid, any_value(application_name) as application_name, any_value(client_addr) as client_addr, any_value(usename) as usename,
         max(state_age_s) as idle_s, count(*) as samples, min(ts) as ts_from, max(ts) as ts_to,
         greatest(count(distinct state_change) - 1, 0) as pings
  from session_sample where backend_type = 'client backend' group by session_id
  having bool_and(coalesce(state, '') = 'idle') and max(ts) - min(ts) >= (select least_ns from about) and pings <= getvariable('idle_pings') * (select window_s from about)
),
sized as (
  select k.*, m.private_bytes from kept k left join (
    select try_cast(object as int) as pid, max(value) as private_bytes from server_stat where view = 'proc_status' and metric = 'private_bytes' group by object) m using (pid)
),
crowd as (
  select application_name, client_addr, usename, count(*) as sessions, sum(private_bytes)::bigint as private_bytes, max(private_bytes) as largest_bytes, arg_max(pid, private_bytes) as largest_pid,
         round(median(idle_s), 1) as typical_idle_s
  from sized group by all
),
snapshot as (
  select sum(weight_s) as wait_s from session_sample where in_db_time and wait_event in ('ProcArrayLock', 'ProcArray')
),
found as (
  select count(*) as sessions, count(private_bytes) as sized, sum(private_bytes)::double as bytes, max(private_bytes) as largest, arg_max(pid, coalesce(private_bytes, 0)) as pid, sum(samples)::bigint as samples,
         min(ts_from) as ts_from, max(ts_to) as ts_to, median(idle_s) as idle_s, sum(pings)::bigint as pings from sized
)
select 'IDLE-CONNECTIONS' as id,
       case when bytes >= getvariable('idle_medium_part') * host_bytes then 'medium' else 'low' end as severity, 'high' as confidence, 'idle connections' as subject,
       format('{} connections did nothing for the whole window{} (half of the connections for {:.0f} s or longer){}; most are of application {} from {} ({}){}', f.sessions, case when pings > 0 then format(' apart from {} short statements', pings) else '' end, idle_s,
              case when sized > 0 then format(' and keep at least {:.1f} MB of private memory{}, {:.1f} MB each; pid {} keeps the most, {:.1f} MB', f.bytes / 1048576.0,
                                              case when host_bytes > 0 then format(' ({:.1f} % of the memory of the host)', 100 * bytes / host_bytes) else '' end
                                              || case when sized < f.sessions then format(' (measured for {} of them)', sized) else '' end, bytes / sized / 1048576.0, f.pid, largest / 1048576.0) else '' end,
              case when m.application_name = '' then 'without name' else m.application_name end, m.client_addr, m.sessions,
              case when is_before_14 and wait_s > 0 then format('; before 14 each snapshot passes over all of them: sessions waited {:.1f} s for ProcArrayLock', wait_s) else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples, ts_from, ts_to,
       (select to_json(list({application_name: application_name, client_addr: client_addr, usename: usename, sessions: sessions, private_bytes: private_bytes,
                             largest_bytes: largest_bytes, largest_pid: largest_pid, typical_idle_s: typical_idle_s} order by sessions desc, application_name, client_addr, usename)[:20]) from crowd) as evidence,
       to_json({pid: case when sized > 0 then f.pid end, application: case when m.application_name = '' then 'the application that has no name' else m.application_name end,
                role: pg_ident(m.usename), sessions: m.sessions}) as facts
from found f cross join about cross join snapshot cross join (from crowd order by sessions desc, application_name, client_addr, usename limit 1) m
where f.sessions >= getvariable('idle_connections') or bytes >= getvariable('idle_bytes')
order by subject
