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
-- silent unless: (select count(distinct session_id) from session where backend_type = 'client backend') >= getvariable('storm_per_s') * (select sum(period_ns) / 1e9 from tick) or exists (from server_stat_delta where view = 'pg_stat_database' and metric = 'sessions' and delta >= getvariable('storm_per_s') * dt_s / 10)
-- wrong when: a load test opens and closes its sessions on purpose
with about as (select window_s, tier, cpu_count from capture),
observed as (select sum(period_ns) / 1e9 as observed_s, max(ts) as last_ts, any_value(period_ns) as period_ns from tick),
lifetime as (
  select s.session_id, any_value(s.application_name) as application_name, any_value(s.client_addr) as client_addr,
         any_value(s.usename) as usename, min(s.ts) as ts_from, max(s.ts) as ts_to, sum(samples)::bigint as samples,
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
counted as (  -- by the server (14 and later): also sessions shorter than a pass; those that stayed are a pool that grew
  select greatest(sum(delta) filter (where metric = 'sessions') - greatest(coalesce(sum(delta) filter (where metric = 'numbackends'), 0), 0), 0) / max(dt_s) as ended_per_s,
         sum(delta) filter (where metric = 'sessions') / max(dt_s) as opened_per_s
  from server_stat_delta
  where view = 'pg_stat_database'
    and object not in (select object from server_stat_delta where view = 'pg_stat_database' and metric = 'sessions' and delta < 0)  -- was reset
),
storm as (
  select *, greatest(sessions / observed_s, coalesce(ended_per_s, 0)) as per_s from found cross join observed cross join counted
),
main_client as (
  select *, case when application_name = '' then 'without name' else application_name end || ' from ' || client_addr as client
  from by_client order by sessions desc, application_name, client_addr, usename limit 1
),
whole as (select min(ts) as ts_from, max(ts) as ts_to from tick),
proof as (
  select to_json(list({application_name: application_name, client_addr: client_addr, usename: usename, sessions: sessions,
                       median_lifetime_s: round(median_s, 3)} order by sessions desc, application_name, client_addr, usename)[:20]) as evidence
  from by_client
)
select 'CONN-STORM' as id,
       case when per_s >= getvariable('storm_high') then 'high' when per_s >= getvariable('storm_medium') then 'medium' else 'low' end as severity,
       confidence_of(c.tier, s.sessions, medium := 0) as confidence,
       coalesce('application ' || m.client, 'sessions shorter than the sampling period') as subject,
       case when opened_per_s is not null
            then format('The server counts {:.1f} new sessions a second, {:.1f} of which ended. ', opened_per_s, ended_per_s)
                 || case when s.sessions > 0 then format('Samples caught {:.1f} a second that began and ended', s.sessions / observed_s) else 'Samples caught none that began and ended' end
            else format('At least {:.1f} sessions a second began and ended', s.sessions / observed_s) end
       || case when s.sessions > 0
               then format(' within {:.0f} s (half of them lived less than {:.2f} s); {} of {} belong to application {}',
                           getvariable('storm_lifetime_s'), s.median_s, m.sessions, s.sessions, m.client)
               else '' end as statement,
       null::double as cost_s, null::double as share_of_db_time, coalesce(samples, 0) as samples, coalesce(s.ts_from, w.ts_from) as ts_from,
       coalesce(s.ts_to, w.ts_to) as ts_to, coalesce(evidence, '[]'::json) as evidence
from storm s left join main_client m on true cross join about c cross join proof cross join whole w
where per_s >= getvariable('storm_per_s')
order by subject
