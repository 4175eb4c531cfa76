-- id: AUTOVACUUM-OFF
-- title: Dead rows wait in tables that autovacuum does not visit
-- question: In which tables do dead rows wait because autovacuum is off, for the server or for the table?
-- domain: postgres
-- needs: server_stat, setting
-- unit: bytes of dead rows (an estimate; no cost in time of its own)
-- cost: none
-- threshold: off_dead_rows = 10000 (dead rows beside what would start a vacuum; they fill some hundred pages)
-- threshold: off_medium_bytes = 100000000 (bytes of dead rows; scans then read 95 MB more than they need)
-- threshold: off_high_bytes = 1000000000 (bytes of dead rows)
-- silent unless: exists (from server_stat where view in ('pg_stat_user_tables', 'pg_stat_toast_tables') and metric = 'n_dead_tup' and value >= getvariable('off_dead_rows')) and (exists (from setting where name in ('autovacuum', 'track_counts') and setting = 'off') or exists (from server_stat where metric = 'autovacuum_enabled' and value = 0))
-- wrong when: autovacuum is off for the time of a bulk load, and somebody vacuums afterwards
with switched as (
  select max(name) filter (setting = 'off') as name from setting where name in ('autovacuum', 'track_counts')
),
waiting as (
  select t.*, w.name as server_setting, table_name || case when is_toast then ' (TOAST)' else '' end as shown
  from table_stat t cross join switched w
  where not is_catalog and not is_partitioned and dead >= greatest(getvariable('off_dead_rows'), vacuum_at) and (t.is_off or w.name is not null)
),
found as (  -- the server's switch is one thing to turn, each table's another
  select case when server_setting is not null then 'server' else 'table ' || table_name end as subject, any_value(server_setting) as server_setting,
         arg_max(table_name, dead_bytes) as table_name, arg_max(is_toast, dead_bytes) and any_value(server_setting) is null as of_toast,
         sum(dead) as dead, sum(dead_bytes) as dead_bytes, sum(live) as live, sum(dead_growth) as growth, count(*) as tables, max(dt_s) as dt_s,
         arg_max(vacuumed_s, dead_bytes) as vacuumed_s, any_value(datname) as datname,
         to_json(list({relation: shown, dead_rows: dead, dead_rows_growth: dead_growth, live_rows: live, dead_bytes_estimate: dead_bytes, size_bytes: size_bytes,
                       vacuumed_s: round(vacuumed_s)} order by dead_bytes desc, shown)[:20]) as evidence
  from waiting group by all
)
select 'AUTOVACUUM-OFF' as id,
       case when dead_bytes >= getvariable('off_high_bytes') then 'high' when dead_bytes >= getvariable('off_medium_bytes') or dead >= live then 'medium' else 'low' end as severity,
       'high' as confidence, subject,
       format('{} is off{}: {:.0f} dead rows wait in {} of database {}, about {:.1f} MB{}{}', coalesce(server_setting, 'autovacuum'),
              case when server_setting is null then format(' for {}{}', if(of_toast, 'the TOAST table of ', ''), table_name) else '' end, dead,
              case when tables = 1 and server_setting is null then 'this table' when tables = 1 then table_name else format('{} tables (most in {})', tables, table_name) end,
              datname, coalesce(dead_bytes, 0) / 1048576.0, case when growth > 0 then format('; {:.0f} more than at the start, {:.0f} s earlier', growth, dt_s) else '' end,
              case when tables > 1 then '' when vacuumed_s is null then '; no vacuum is known' else format('; the last vacuum was {:.1f} hours ago', vacuumed_s / 3600) end) as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, c.ts_from, c.ts_to, evidence,
       to_json({relation: table_name, of_server: server_setting, of_table: server_setting is null and not of_toast, of_toast: of_toast}) as facts
from found cross join capture c
order by dead_bytes desc, subject
