-- id: XMIN-HORIZON
-- title: An old snapshot or transaction keeps vacuum from removing dead rows
-- question: Which is the oldest snapshot or transaction that keeps dead rows from being removed, and who holds it?
-- domain: postgres
-- needs: session_sample, tick
-- unit: transactions started since the oldest horizon; seconds since it was taken
-- cost: none
-- threshold: horizon_xids = 1000000 (transactions; with a few dead rows each, tables of a busy database are bloated by then)
-- threshold: xmin_critical = 200000000 (transactions: autovacuum_freeze_max_age, at which the server starts to vacuum against wraparound)
-- threshold: xmin_high = 10000000 (transactions; more than a day at a hundred per second, and each may have left a dead row)
-- threshold: horizon_age_s = 3600 (seconds; few statements are meant to run longer than an hour, and a quiet server starts few transactions in it)
-- threshold: horizon_dead_age_s = 300 (seconds, when dead rows wait: five times autovacuum_naptime, so vacuum has had time to visit the table)
-- threshold: horizon_dead_rows = 10000 (dead rows in tables that are due for vacuum; they fill some hundred pages)
-- threshold: horizon_dead_share = 0.2 (share of dead rows at which a table is due for vacuum: autovacuum_vacuum_scale_factor)
-- evaluable when: exists (from tick where next_xid > 0) or exists (from server_stat) | neither the next transaction id nor the server's views could be read
-- silent unless: exists (from session_sample s join tick t using (ts) where (s.backend_xmin is not null or s.backend_xid is not null) and (s.xmin_age >= getvariable('horizon_xids') or (t.next_xid <> 0 and (t.next_xid - s.backend_xid) % 4294967296 >= getvariable('horizon_xids')) or greatest(s.xact_age_s, s.query_age_s) >= least(getvariable('horizon_age_s'), getvariable('horizon_dead_age_s')))) or exists (from server_stat where view in ('pg_replication_slots', 'pg_prepared_xacts', 'pg_stat_replication'))
-- wrong when: a backup or a long report is meant to run this long on this server
with held as (  -- a vacuum's own snapshot holds nothing back
  select case when backend_type = 'walsender' then 'standby feedback of ' || case when application_name = '' then 'pid ' || pid else application_name end
              else 'pid ' || pid end as holder, pid,
         case when backend_type = 'walsender' then 'standby' else 'session' end as kind,
         mode(coalesce(state, backend_type) order by coalesce(state, backend_type)) || case when any_value(application_name) = '' then '' else ', application ' || any_value(application_name) end as what,
         case when backend_type <> 'walsender' then any_value(datname) end as datname,
         max(age) as age, arg_max(age_s, ts) as age_s, mode(statement_id order by statement_id) as statement_id, count(*) as samples, min(ts) as ts_from, max(ts) as ts_to
  from (
    select s.*,
           -- a transaction id holds vacuum back as a snapshot does
           greatest(s.xmin_age, case when t.next_xid <> 0 then (t.next_xid - s.backend_xid) % 4294967296 end) as age,
           -- the snapshot of a running statement may be as young as that; one that is left open was taken in the transaction
           case when s.backend_xid is not null or s.state <> 'active' then s.xact_age_s else s.query_age_s end as age_s
    from session_sample s join tick t using (ts) left join statement q using (statement_id)
    where (s.backend_xmin is not null or s.backend_xid is not null) and s.backend_type <> 'autovacuum worker'
      and coalesce(q.query not ilike 'vacuum%', true)
  )
  where age is null or age < 2147483648
  group by backend_type, pid, application_name, backend_start
),
recorded as (  -- as the server gave them, last reading; walsenders that were sampled are among the sessions
  select view, object, arg_max(value, ts) filter (where metric in ('transaction_age', 'backend_xmin_age', 'xmin_age'))::bigint as all_age,
         arg_max(value, ts) filter (where metric = 'catalog_xmin_age')::bigint as catalog_age,
         arg_max(value, ts) filter (where metric = 'prepared_age_s') as prepared_s,
         arg_max((ts + c.wall_offset_ns) / 1e9 - value, ts) filter (where metric = 'inactive_since') as inactive_s,
         -- a standby that uses a slot reports its snapshots to the slot, not to its walsender
         coalesce(arg_max(value, ts) filter (metric = 'active') = 1 and arg_max(value, ts) filter (metric = 'is_logical') = 0, false) as is_read,
         arg_max(value, ts) filter (metric = 'active_pid') as reader,
         max(ts) as ts
  from server_stat cross join capture c
  where view in ('pg_replication_slots', 'pg_prepared_xacts')
     or (view = 'pg_stat_replication' and not exists (from session_sample where backend_type = 'walsender' and xmin_age is not null))
  group by view, object
),
listed as (
  select object, case view when 'pg_replication_slots' then 'replication slot ' when 'pg_prepared_xacts' then 'prepared transaction '
                   else 'standby feedback of ' end || object as holder,
         case view when 'pg_replication_slots' then if(is_read and all_age is not null, 'feedback', 'slot') when 'pg_prepared_xacts' then 'prepared' else 'standby' end as kind,
         case when view = 'pg_prepared_xacts' then 'transaction' when view = 'pg_stat_replication' then 'backend_xmin'
                   when is_read and all_age is not null then 'xmin, standby feedback of ' || coalesce(nullif(s.name, ''), 'pid ' || reader::bigint)
                   else case when coalesce(catalog_age, -1) > coalesce(all_age, -1) then 'catalog_xmin' else 'xmin' end end as what,
         case view when 'pg_prepared_xacts' then split_part(object, '/', 1) when 'pg_replication_slots' then if(all_age is null, '', null) end as datname,
         greatest(all_age, catalog_age) as age, coalesce(prepared_s, inactive_s) as age_s,
         null::bigint as statement_id, 1 as samples, ts as ts_from, ts as ts_to
  from recorded left join (select pid, any_value(application_name) as name from session_sample where backend_type = 'walsender' group by pid) s on s.pid = reader
  where greatest(all_age, catalog_age) is not null
),
holder as (
  select * from held union all by name select * from listed where age < 2147483648
),
dead_rows as (  -- of tables that are due for vacuum
  select object, after, coalesce(after - before, 0) as growth
  from (
    select object, max(value) filter (where metric = 'n_dead_tup' and phase = 'after') as after,
           max(value) filter (where metric = 'n_dead_tup' and phase = 'before') as before,
           max(value) filter (where metric = 'n_live_tup' and phase = 'after') as live
    from server_stat where view = 'pg_stat_user_tables' group by object
  )
  where after > 0 and after >= getvariable('horizon_dead_share') * live
),
weighed as (  -- dead rows of the holder's own database; a standby and a physical slot hold back those of all
  select h.*, coalesce(sum(d.after), 0)::bigint as dead, coalesce(sum(d.growth), 0)::bigint as growth, count(d.object) as tables
  from holder h left join dead_rows d on h.datname is null or starts_with(d.object, h.datname || '/')
  group by all
),
old as (
  select *, coalesce(age >= getvariable('horizon_xids'), false) as by_xids
  from weighed
  where age >= getvariable('horizon_xids') or age_s >= getvariable('horizon_age_s')
     or (age_s >= getvariable('horizon_dead_age_s') and dead >= getvariable('horizon_dead_rows'))
),
ranked as (
  select *, row_number() over (order by by_xids desc, if(by_xids, age, 0) desc, coalesce(age_s, 0) desc, holder desc) as place, count(*) over () as holders
  from old
),
found as (
  select r.*, case when age_s >= getvariable('horizon_age_s') then format('{:.1f} hours', age_s / 3600) else format('{:.0f} minutes', age_s / 60) end as since,
         (select to_json(list({holder: holder, kind: kind, what: what, age_xids: age, age_s: round(age_s, 3), dead_rows: dead, dead_rows_growth: growth,
                               samples: samples} order by place)[:20]) from ranked) as evidence
  from ranked r where place = 1
)
select 'XMIN-HORIZON' as id,
       case when not by_xids then 'low' when age >= getvariable('xmin_critical') then 'critical'
            when age >= getvariable('xmin_high') then 'high' else 'medium' end as severity,
       case when by_xids then 'high' else 'medium' end as confidence, holder as subject,
       case when by_xids then format('{} ({}) keeps rows that died in the last {} transactions from being vacuumed', holder, what, age)
            else format('{} ({}) has kept dead rows from being vacuumed for {}', holder, what, since) end
       || case when dead > 0 then format('; {} dead rows wait in {} table{} due for vacuum', dead, tables, if(tables = 1, '', 's'))
                                  || case when growth > 0 then format(', {} more than when the capture began', growth) else '' end else '' end
       || case when holders > 1 then format('; {} more hold a horizon this old', holders - 1) else '' end
       || case when q.query is not null then '; it runs or last ran: ' || left(regexp_replace(q.query, '\s+', ' ', 'g'), 120) else '' end as statement,
       null::double as cost_s, null::double as share_of_db_time, samples::bigint as samples, ts_from, ts_to, evidence,
       to_json({pid: case when kind = 'session' then pid end, slot: case when kind = 'slot' then pg_literal(object) end, standby: case when kind in ('standby', 'feedback') then holder end,
                gid: case when kind = 'prepared' then pg_literal(regexp_extract(object, '^[^/]*/(.*)$', 1)) end, gid_database: case when kind = 'prepared' then split_part(object, '/', 1) end}) as facts
from found left join statement q using (statement_id)
order by subject
