-- id: AUTOVACUUM-SLOW
-- title: Dead rows come faster than autovacuum removes them
-- question: Are all workers of autovacuum busy or slowed down while dead rows wait and become more?
-- domain: postgres
-- needs: server_stat, session_sample, tick, setting
-- unit: bytes of dead rows (an estimate); seconds that workers slept (no cost in database time of its own)
-- cost: none
-- threshold: slow_dead_rows = 10000 (dead rows in tables that are due; they fill some hundred pages)
-- threshold: slow_busy = 0.9 (share of the passes in which all workers were there)
-- threshold: slow_sleep = 0.5 (share of the time of the workers in which the cost limit let them sleep)
-- threshold: slow_min_s = 1 (seconds of workers; with less there is nothing to judge)
-- threshold: slow_medium_bytes = 100000000 (bytes of dead rows)
-- threshold: slow_high_bytes = 1000000000 (bytes of dead rows)
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where backend_type = 'autovacuum worker')
-- wrong when: a bulk DELETE or UPDATE has just ended, and autovacuum will have caught up in a moment
with pass as (select count(*) as passes, sum(period_ns) / 1e9 as observed_s from tick),
worker as (
  select sum(weight_s) as worker_s, coalesce(sum(weight_s) filter (lower(wait_event) = 'vacuumdelay'), 0) as sleep_s, count(distinct session_id) as workers,
         count(*) as samples, min(ts) as ts_from, max(ts) as ts_to
  from session_sample where backend_type = 'autovacuum worker'
),
at_pass as (select ts, count(*) as workers from session_sample where backend_type = 'autovacuum worker' group by ts),
allowed as (select max(try_cast(setting as int)) as workers from setting where name = 'autovacuum_max_workers'),
busy as (select count(*) filter (p.workers >= a.workers) as full_passes from at_pass p cross join allowed a),
due as (
  select count(*) as tables, sum(dead) as dead, sum(dead_bytes) as dead_bytes, sum(dead_growth) as growth, sum(live) as live, max(dt_s) as dt_s,
         arg_max(table_name, dead_bytes) as table_name, any_value(datname) as datname,
         to_json(list({relation: table_name || if(is_toast, ' (TOAST)', ''), dead_rows: dead, dead_rows_growth: dead_growth, dead_bytes_estimate: dead_bytes,
                       vacuumed_s: round(vacuumed_s)} order by dead_bytes desc, table_name)[:20]) as evidence
  from table_stat where not is_catalog and not is_partitioned and not is_off and dead >= greatest(getvariable('slow_dead_rows'), vacuum_at)
),
found as (
  select w.*, d.*, a.workers as allowed, b.full_passes / p.passes as full_share, w.sleep_s / w.worker_s as sleep_share
  from worker w cross join due d cross join allowed a cross join busy b cross join pass p
)
select 'AUTOVACUUM-SLOW' as id,
       case when dead_bytes >= getvariable('slow_high_bytes') then 'high' when dead_bytes >= getvariable('slow_medium_bytes') or dead >= live then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples) as confidence, 'autovacuum' as subject,
       format('{:.0f} dead rows, about {:.1f} MB, wait in {} of database {}, {:.0f} more than at the start, {:.0f} s earlier; {}{}', dead, coalesce(dead_bytes, 0) / 1048576.0,
              if(tables = 1, table_name, format('{} tables (most in {})', tables, table_name)), datname, growth, dt_s,
              case when full_share >= getvariable('slow_busy') then format('all {} workers were busy {:.0f} % of the time, ', allowed, 100 * full_share) else '' end,
              format('workers slept {:.1f} of {:.1f} s for the cost limit', sleep_s, worker_s)) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples, f.ts_from, f.ts_to, evidence,
       to_json({relation: table_name, is_full: full_share >= getvariable('slow_busy'), sleeps: sleep_share >= getvariable('slow_sleep')}) as facts
from found f cross join capture c
where dead > 0 and growth > 0 and worker_s >= getvariable('slow_min_s')
  and ((full_share >= getvariable('slow_busy') and tables > allowed) or sleep_share >= getvariable('slow_sleep'))
order by subject
