-- id: PARALLEL-STARVED
-- title: Plans ask for parallel workers that they do not get
-- question: How many of the parallel workers that plans asked for could not be started, and which limit is in the way?
-- domain: postgres
-- needs: server_stat, session_sample, tick, setting
-- unit: workers that were not started (18); seconds in which all were in use (before 18)
-- cost: none
-- threshold: parallel_asked = 10 (workers that plans asked for; with fewer it may be chance)
-- threshold: parallel_had = 0.75 (share of them that was started)
-- threshold: parallel_full = 0.5 (share of the passes in which as many workers ran as the limit allows)
-- threshold: parallel_medium = 0.5 (share of the workers that is missing)
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from server_stat where view = 'pg_stat_database' and metric = 'parallel_workers_to_launch') or exists (from wait_time where backend_type = 'parallel worker')
-- wrong when: the CPUs are all in use anyway: more workers would only wait for them
with counted as (  -- 18 counts them
  select sum(delta) filter (metric = 'parallel_workers_to_launch') as asked, sum(delta) filter (metric = 'parallel_workers_launched') as had, max(dt_s) as dt_s
  from server_stat_delta where view = 'pg_stat_database' and metric like 'parallel_workers_%'
),
about as (
  select least(max(try_cast(setting as int)) filter (name = 'max_parallel_workers'), max(try_cast(setting as int)) filter (name = 'max_worker_processes')) as allowed,
         max(try_cast(setting as int)) filter (name = 'max_parallel_workers') as parallel, max(try_cast(setting as int)) filter (name = 'max_worker_processes') as processes
  from setting
),
at_pass as (select ts, count(*) as workers, count(distinct leader_pid) as leaders from session_sample where backend_type = 'parallel worker' group by ts),
seen as (
  select max(workers) as most, max(leaders) as leaders, sum(t.period_ns) filter (workers >= allowed) / 1e9 as full_s,
         count(*) filter (workers >= allowed and leaders > 1) / (select count(*) from tick) as full_share
  from at_pass p join tick t using (ts) cross join about a
),
starved as (
  select statement_id, query, calls, workers_planned as asked, workers_had as had from statement_stat where workers_planned > workers_had
),
proof as (
  select to_json(list({statement_id: statement_id, query: left(regexp_replace(query, '\s+', ' ', 'g'), 200), calls: calls, workers_asked: asked, workers_had: had}
                      order by asked - had desc, statement_id)[:20]) as statements, arg_max(query, asked - had) as query
  from starved
),
found as (
  select *, asked is not null and asked >= getvariable('parallel_asked') and had <= getvariable('parallel_had') * asked as is_counted,
         asked is null and full_share >= getvariable('parallel_full') as is_seen
  from counted cross join about cross join seen cross join proof
)
select 'PARALLEL-STARVED' as id,
       case when is_counted and had <= getvariable('parallel_medium') * asked then 'medium' else 'low' end as severity, case when is_counted then 'high' else 'medium' end as confidence, 'parallel workers' as subject,
       case when is_counted then format('Plans asked for {:.0f} parallel workers in {:.0f} s and got {:.0f} ({:.0f} %)', asked, dt_s, had, 100 * had / asked)
            else format('For {:.1f} s all {} parallel workers that the settings allow were in use, by up to {} statements at once; before version 18 the server does not count those it refused',
                        full_s, allowed, leaders) end
       || format('; max_parallel_workers is {}, max_worker_processes {}', parallel, processes) || coalesce('; most are missing for: ' || left(regexp_replace(query, '\s+', ' ', 'g'), 120), '') as statement,
       null::double as cost_s, null::double as share_of_db_time, greatest(coalesce(asked, 0), 1)::bigint as samples, c.ts_from, c.ts_to, coalesce(statements, to_json([{workers_asked: asked, workers_had: had, full_s: full_s}])) as evidence,
       to_json({by_processes: processes <= parallel, by_parallel: parallel < processes}) as facts
from found cross join capture c
where is_counted or is_seen
order by subject
