-- id: XMIN-HORIZON
-- title: Something old keeps vacuum from removing dead rows
-- question: What is the oldest snapshot or transaction that keeps dead rows alive, and who holds it?
-- domain: postgres
-- needs: session_sample, tick
-- unit: transactions started since the oldest horizon
-- cost: none
-- threshold: horizon_xids = 1000000 (a million transactions: with a few dead rows each, tables of a busy database are bloated by now)
-- threshold: xmin_critical = 200000000 (transactions: autovacuum_freeze_max_age, where the server starts to vacuum against wraparound)
-- threshold: xmin_high = 10000000 (transactions: a tenth of a day at a hundred a second, and each may have left a dead row)
-- evaluable when: exists (from tick where next_xid > 0) or exists (from server_stat) | neither the next transaction id nor the server's views could be read
-- wrong when: a backup or a long report is meant to run this long on this server
with held as (  -- a vacuum's own snapshot holds nothing back
  select case when backend_type = 'walsender' then 'standby feedback of ' || case when application_name = '' then 'pid ' || pid else application_name end
              else 'pid ' || pid end as holder,
         case when backend_type = 'walsender' then 'standby' else 'session' end as kind,
         mode(coalesce(state, backend_type)) || case when any_value(application_name) = '' then '' else ', application ' || any_value(application_name) end as what,
         max(xmin_age) as age, mode(statement_id) as statement_id, count(*) as samples, min(ts) as ts_from, max(ts) as ts_to
  from session_sample
  where xmin_age < 2147483648 and backend_type <> 'autovacuum worker'
  group by backend_type, pid, application_name, backend_start
),
recorded as (  -- ages as the server gave them, last reading; walsenders that were sampled are among the sessions
  select view, object, metric, arg_max(value, ts)::bigint as age, max(ts) as ts
  from server_stat
  where (view = 'pg_replication_slots' and metric in ('xmin_age', 'catalog_xmin_age'))
     or (view = 'pg_prepared_xacts' and metric = 'transaction_age')
     or (view = 'pg_stat_replication' and metric = 'backend_xmin_age'
         and not exists (from session_sample where backend_type = 'walsender' and xmin_age is not null))
  group by view, object, metric
),
listed as (
  select case view when 'pg_replication_slots' then 'replication slot ' when 'pg_prepared_xacts' then 'prepared transaction '
                   else 'standby feedback of ' end || object as holder,
         case view when 'pg_replication_slots' then 'slot' when 'pg_prepared_xacts' then 'prepared' else 'standby' end as kind,
         replace(metric, '_age', '') as what, age, null::bigint as statement_id, 1 as samples, ts as ts_from, ts as ts_to
  from recorded
),
holder as (
  select * from held union all by name select * from listed where age < 2147483648
),
old as (select * from holder where age >= getvariable('horizon_xids')),
found as (
  select arg_max(holder, (age, holder)) as holder, arg_max(kind, (age, holder)) as kind, arg_max(what, (age, holder)) as what, max(age) as age,
         arg_max(statement_id, (age, holder)) as statement_id, count(*) as holders, arg_max(samples, (age, holder)) as samples,
         arg_max(ts_from, (age, holder)) as ts_from, arg_max(ts_to, (age, holder)) as ts_to,
         to_json(list({holder: holder, kind: kind, what: what, age_xids: age, samples: samples} order by age desc, holder)[:20]) as evidence
  from old
)
select 'XMIN-HORIZON' as id,
       case when age >= getvariable('xmin_critical') then 'critical' when age >= getvariable('xmin_high') then 'high' else 'medium' end as severity,
       'high' as confidence, holder as subject,
       format('{} ({}) keeps rows that died in the last {} transactions from being vacuumed{}{}', holder, what, age,
              case when holders > 1 then format('; {} more hold a horizon this old', holders - 1) else '' end,
              case when q.query is not null then '; it runs or last ran: ' || left(regexp_replace(q.query, '\s+', ' ', 'g'), 120) else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples::bigint as samples, ts_from, ts_to, evidence
from found left join statement q using (statement_id)
where holder is not null
order by subject
