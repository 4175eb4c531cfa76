-- id: CONN-NEAR-LIMIT
-- title: The number of sessions is close to max_connections
-- question: How close did the number of client sessions come to the limit of the server, and what were they doing?
-- domain: postgres
-- needs: session_sample, setting, tick
-- unit: client sessions
-- cost: none
-- threshold: limit_share = 0.85 (85 % of the slots for ordinary users; one restart of a pool fills the rest)
-- threshold: near_high = 0.95 (95 % of the slots for ordinary users; one in twenty is left)
-- minimum: tick 10
-- evaluable when: (select try_cast(setting as int) from setting where name = 'max_connections') > 0 | the value of max_connections could not be read
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: (select count(distinct session_id) from session where backend_type = 'client backend') > getvariable('limit_share') * (select max(try_cast(setting as int)) filter (where name = 'max_connections') - coalesce(max(try_cast(setting as int)) filter (where name = 'superuser_reserved_connections'), 3) - coalesce(max(try_cast(setting as int)) filter (where name = 'reserved_connections'), 0) from setting)
-- wrong when: a pool keeps a fixed number of sessions just below the limit on purpose
with usable as (  -- the defaults of the reserved slots are 3 and, from 16 on, 0
  select max(try_cast(setting as int)) filter (where name = 'max_connections') as max_connections,
         coalesce(max(try_cast(setting as int)) filter (where name = 'superuser_reserved_connections'), 3)
           + coalesce(max(try_cast(setting as int)) filter (where name = 'reserved_connections'), 0) as reserved
  from setting
),
connected as (
  select ts, count(*) as sessions from session_sample where backend_type = 'client backend' group by ts
),
peak as (
  select max(sessions) as peak, min(ts) filter (where sessions = top) as ts, min(sessions) as least, count(*) as samples
  from (select *, max(sessions) over () as top from connected)
),
crowd as (
  select s.application_name, s.usename, s.state, count(*) as sessions
  from session_sample s join peak p on p.ts = s.ts
  where s.backend_type = 'client backend' group by all
),
proof as (
  select to_json(list({application_name: application_name, usename: usename, state: state, sessions: sessions}
                      order by sessions desc, application_name, usename, state)[:20]) as evidence,
         sum(sessions) filter (where state = 'idle')::bigint as idle,
         sum(sessions) filter (where state like 'idle in transaction%')::bigint as idle_in_xact
  from crowd
),
main_application as (
  select application_name, sum(sessions)::bigint as sessions from crowd group by application_name
  order by sessions desc, application_name limit 1
)
select 'CONN-NEAR-LIMIT' as id,
       case when peak >= max_connections - reserved then 'critical'
            when peak >= getvariable('near_high') * (max_connections - reserved) then 'high' else 'medium' end as severity,
       'high' as confidence, 'max_connections' as subject,
       format('{} client sessions at the peak, {:.0f} % of the {} slots for ordinary users (max_connections {} less {} reserved): {} idle, {} idle in transaction; {} of application {}',
              peak, 100.0 * peak / (max_connections - reserved), max_connections - reserved, max_connections, reserved,
              coalesce(idle, 0), coalesce(idle_in_xact, 0), m.sessions,
              case when m.application_name = '' then 'without name' else m.application_name end) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples, ts as ts_from, ts as ts_to, evidence
from peak cross join usable cross join proof cross join main_application m
where peak > getvariable('limit_share') * (max_connections - reserved)
order by subject
