-- id: CONN-STORM
-- title: Clients connect and disconnect within seconds
-- question: How many sessions per second began and ended within a few seconds, and who opened them?
-- domain: postgres
-- needs: session_sample, tick
-- unit: short sessions per second
-- cost: none
-- threshold: storm_per_s = 5 (sessions per second; each costs a fork, an authentication and cold caches, about 5 to 50 ms together)
-- threshold: storm_lifetime_s = 5 (seconds; a shorter session was not worth the cost of starting it)
-- threshold: storm_high = 100 (new sessions per second; at 5 ms of CPU each this is half a core)
-- threshold: storm_medium = 20 (new sessions per second; a tenth of a core)
-- minimum: tick 30
-- silent unless: (select count(distinct session_id) from session where backend_type = 'client backend') >= getvariable('storm_per_s') * (select sum(period_ns) / 1e9 from tick)
-- wrong when: a load test opens and closes its sessions on purpose
with about as (select window_s, tier, cpu_count from capture),
observed as (select sum(period_ns) / 1e9 as observed_s, max(ts) as last_ts, any_value(period_ns) as period_ns from tick),
lifetime as (
  select s.session_id, any_value(s.application_name) as application_name, any_value(s.client_addr) as client_addr,
         any_value(s.usename) as usename, min(s.ts) as ts_from, max(s.ts) as ts_to, count(*) as samples,
         (max(s.ts) + any_value(c.wall_offset_ns)) / 1e9 - any_value(s.backend_start) / 1e6 as life_s,
         any_value(s.backend_start) * 1000 >= any_value(c.ts_from + c.wall_offset_ns) as began_here
  from session_sample s cross join capture c
  where s.backend_type = 'client backend'
  group by s.session_id
),
short as (  -- began and ended within the window; one that was still there in the last passes has not ended
  select l.* from lifetime l cross join observed o
  where l.began_here and l.life_s < getvariable('storm_lifetime_s') and l.ts_to < o.last_ts - 2 * o.period_ns
),
by_client as (
  select application_name, client_addr, usename, count(*) as sessions, median(life_s) as median_s
  from short group by all
),
found as (
  select count(*) as sessions, median(life_s) as median_s, sum(samples)::bigint as samples, min(ts_from) as ts_from, max(ts_to) as ts_to
  from short
),
main_client as (select * from by_client order by sessions desc, application_name, client_addr, usename limit 1),
proof as (
  select to_json(list({application_name: application_name, client_addr: client_addr, usename: usename, sessions: sessions,
                       median_lifetime_s: round(median_s, 3)} order by sessions desc, application_name, client_addr, usename)[:20]) as evidence
  from by_client
)
select 'CONN-STORM' as id,
       case when found.sessions >= getvariable('storm_high') * observed_s then 'high' when found.sessions >= getvariable('storm_medium') * observed_s then 'medium' else 'low' end as severity,
       confidence_of(c.tier, found.sessions, medium := 0) as confidence,
       'application ' || case when m.application_name = '' then 'without name' else m.application_name end || ' from ' || m.client_addr as subject,
       format('At least {:.1f} sessions a second began and ended within {:.0f} s (half of them lived less than {:.2f} s); {} of {} belong to application {} from {}',
              found.sessions / observed_s, getvariable('storm_lifetime_s'), found.median_s, m.sessions, found.sessions,
              case when m.application_name = '' then 'without name' else m.application_name end, m.client_addr) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples, ts_from, ts_to, evidence
from found cross join main_client m cross join observed cross join about c cross join proof
where found.sessions >= getvariable('storm_per_s') * observed_s
order by subject
