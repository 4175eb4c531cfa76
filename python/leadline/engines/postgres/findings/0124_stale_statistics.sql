-- id: STALE-STATISTICS
-- title: The planner works with old statistics of a table, or with none
-- question: Which tables have changed far more than ANALYZE waits for, or have never been analysed, and which statements use them?
-- domain: postgres
-- needs: server_stat, session_sample
-- unit: rows changed since the last ANALYZE (no cost in time of its own)
-- cost: none
-- threshold: stale_rows = 10000 (rows; a wrong plan for fewer costs little)
-- threshold: stale_times = 2 (times what starts an ANALYZE: autovacuum is late or off)
-- threshold: stale_medium_share = 0.5 (changed rows in proportion to all rows: half of the table is not what the planner thinks)
-- threshold: stale_naps = 2 (times autovacuum_naptime: until then autovacuum may still come in its usual way)
-- silent unless: exists (from server_stat where view = 'pg_stat_user_tables' and metric in ('n_mod_since_analyze', 'partition_rows') and value >= getvariable('stale_rows'))
-- wrong when: all changes were of columns by which nobody searches, or the table has just been loaded and autovacuum is on its way
with about as (
  select coalesce(max(try_cast(setting as double)) filter (name = 'autovacuum_naptime'), 0) as naptime_s,
         coalesce(bool_or(name in ('autovacuum', 'track_counts') and setting = 'off'), false) as server_off
  from setting
),
stale as (
  select t.*, a.server_off or t.is_off as nobody_comes, is_partitioned and analyzed_s is null and reltuples <= 0 as is_parent,
         analyzed_s is null and (reltuples = -1 or (reltuples = 0 and live > 0)) as is_never, greatest(live, reltuples, 1) as all_rows
  from table_stat t cross join about a
  where not is_catalog and not is_toast
    and case when is_partitioned then analyzed_s is null and reltuples <= 0 and partition_rows >= getvariable('stale_rows')
             else changed >= greatest(getvariable('stale_rows'), getvariable('stale_times') * analyze_at)
                  -- what has just been loaded is still due in the usual way
                  and (a.server_off or t.is_off or analyzed_s > getvariable('stale_naps') * a.naptime_s
                       or (analyzed_s is null and (inserted is null or inserted + updated + deleted = 0))) end
),
used as (  -- by the name in its text; a statement may mean a table of the same name in another schema
  select s.relid, sum(d.seconds) as db_s, count(*) as statements, arg_max(d.statement_id, d.seconds) as statement_id
  from stale s join (
    select statement_id, any_value(query) as query, sum(weight_s) as seconds, regexp_extract_all(lower(any_value(query)), '[a-z0-9_$]+') as words
    from session_sample join statement using (statement_id) where in_db_time and backend_type = 'client backend' group by statement_id) d
    on list_contains(d.words, lower(s.relname)) or contains(d.query, '"' || s.relname || '"')
  where regexp_matches(d.query, '^\s*(select|with|update|delete|merge|insert)\b', 'i')
  group by s.relid
)
select 'STALE-STATISTICS' as id,
       case when severity_of(db_s / t.db_time_s, db_s, c.window_s) <> 'low'  -- else nobody can have lost much by a wrong plan
                 and (is_never or is_parent or changed >= getvariable('stale_medium_share') * all_rows) then 'medium' else 'low' end as severity,
       case when nobody_comes or analyzed_s is not null or is_parent then 'high' else 'medium' end as confidence, 'table ' || table_name as subject,
       case when is_parent then format('{} has never been analysed: its {:.0f} partitions have about {:.0f} rows, and autovacuum does not analyse the partitioned table itself', table_name, partitions, partition_rows)
            when is_never then format('{} has never been analysed and has about {:.0f} rows', table_name, live)
            when analyzed_s is null then format('{:.0f} rows of {} have changed, of about {:.0f}, and no ANALYZE is known', changed, table_name, all_rows)
            else format('{:.0f} rows of {} have changed since it was analysed {:.1f} hours ago, of about {:.0f}', changed, table_name, analyzed_s / 3600, all_rows) end
       || case when nobody_comes and not is_parent then '; autovacuum is off' || if(is_off, ' for this table', '') else '' end
       || case when db_s > 0 then format('; {} statement{} that name{} it took {:.1f} s of database time, most: {}', statements, if(statements = 1, '', 's'), if(statements = 1, 's', ''), db_s,
                                         left(regexp_replace(q.query, '\s+', ' ', 'g'), 120)) else '' end as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, c.ts_from, c.ts_to,
       to_json([{relation: table_name, changed_rows: changed, rows: live, reltuples: reltuples, analyzed_s: round(analyzed_s), starts_at: round(analyze_at), db_time_s: round(db_s, 3),
                 statement_id: statement_id}]) as evidence,
       to_json({relation: table_name, is_parent: is_parent, is_off: is_off}) as facts
from stale left join used using (relid) left join statement q using (statement_id) cross join capture c cross join (select sum(weight_s) as db_time_s from db_time) t
order by db_s desc nulls last, changed desc, subject
