-- id: CATALOG-BLOAT
-- title: Tables that come and go fill the system catalogs with dead rows
-- question: How many catalog rows were written and deleted, and how many dead ones wait, because tables are created and dropped all the time?
-- domain: postgres
-- needs: server_stat, session_sample
-- unit: bytes of dead rows in the catalogs (an estimate; no cost in time of its own)
-- cost: none
-- threshold: catalog_rows_per_s = 100 (rows deleted a second: a temporary table with an index leaves twenty to forty)
-- threshold: catalog_min_rows = 1000 (rows deleted in the window)
-- threshold: catalog_dead_rows = 10000 (dead rows that wait while more come)
-- threshold: catalog_medium_bytes = 100000000 (bytes of dead rows: planning and connecting then read 95 MB more than they need)
-- silent unless: exists (from server_stat where view = 'pg_stat_sys_tables' and metric in ('n_tup_del', 'n_dead_tup') and value >= getvariable('catalog_min_rows'))
-- wrong when: a restore, an upgrade or a migration creates and drops its tables once
with catalog as (
  select relname, deleted, inserted, dead, dead_bytes, live, dead_growth, dt_s, datname from table_stat
  where is_catalog and relname in ('pg_class', 'pg_attribute', 'pg_type', 'pg_depend', 'pg_index', 'pg_statistic', 'pg_constraint', 'pg_attrdef', 'pg_shdepend', 'pg_inherits')
),
found as (
  select sum(deleted) as deleted, sum(inserted) as inserted, sum(dead) as dead, sum(dead_bytes) as dead_bytes, sum(live) as live, sum(dead_growth) as growth, max(dt_s) as dt_s,
         any_value(datname) as datname, arg_max(relname, dead_bytes) as most, max(deleted) filter (relname = 'pg_class') as relations,
         to_json(list({relation: 'pg_catalog.' || relname, inserted: inserted, deleted: deleted, dead_rows: dead, live_rows: live, dead_bytes_estimate: dead_bytes}
                      order by dead_bytes desc nulls last, relname)[:20]) as evidence
  from catalog where deleted > 0 or dead > 0
),
maker as (  -- by the text of what was seen to run
  select sum(weight_s) as seconds, any_value(application_name order by weight_s desc) as application_name, arg_max(q.query, weight_s) as query
  from session_sample join statement q using (statement_id)
  where in_db_time and regexp_matches(q.query, '^\s*(create|drop|truncate|discard)\s+(global\s+|local\s+)?(temp|temporary|table|unlogged|all)\b|\binto\s+temp', 'i')
)
select 'CATALOG-BLOAT' as id,
       case when dead_bytes >= getvariable('catalog_medium_bytes') then 'medium' else 'low' end as severity, 'high' as confidence, 'system catalogs' as subject,
       format('{:.0f} rows of the catalogs of database {} were deleted in {:.0f} s ({:.0f} a second, {:.0f} of them of pg_class); {:.0f} dead rows wait, about {:.1f} MB, most in {}', deleted, datname, dt_s,
              deleted / dt_s, coalesce(relations, 0), dead, coalesce(dead_bytes, 0) / 1048576.0, most)
       || case when m.seconds > 0 then format('; such statements took {:.1f} s of database time, as {}', m.seconds, left(regexp_replace(m.query, '\s+', ' ', 'g'), 120)) else '' end as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, c.ts_from, c.ts_to, evidence,
       to_json({relation: 'pg_catalog.' || most}) as facts
from found cross join maker m cross join capture c
where (deleted >= getvariable('catalog_min_rows') and deleted >= getvariable('catalog_rows_per_s') * dt_s) or (dead >= greatest(getvariable('catalog_dead_rows'), live) and deleted > 0 and growth > 0)
order by subject
