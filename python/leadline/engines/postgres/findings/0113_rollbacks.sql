-- id: ROLLBACKS
-- title: Many transactions are rolled back
-- question: Which part of the transactions of a database ends in a rollback, and do sessions sit in failed transactions?
-- domain: postgres
-- needs: server_stat
-- unit: transactions rolled back (what their work took cannot be told from that of others)
-- cost: none
-- threshold: rollback_part = 0.1 (share of transactions; single errors and cancelled queries are below it)
-- threshold: rollbacks_per_s = 1 (rolled back each second; fewer are errors to read one by one in the log)
-- threshold: most = 0.5 (share of transactions; more work is thrown away than kept)
-- silent unless: exists (from server_stat_delta where view = 'pg_stat_database' and metric = 'xact_rollback' and delta >= getvariable('rollbacks_per_s') * dt_s)
-- wrong when: a pool or driver ends transactions that only read with ROLLBACK, which costs no more than COMMIT
with change as (
  select object as datname, max(delta) filter (metric = 'xact_rollback') as rolled_back, max(delta) filter (metric = 'xact_commit') as committed,
         max(delta) filter (metric = 'deadlocks') as deadlocks, max(dt_s) as dt_s
  from server_stat_delta where view = 'pg_stat_database' and metric in ('xact_rollback', 'xact_commit', 'deadlocks') group by object
),
failed as (  -- transactions that an error ended and whose client has not noticed yet
  select datname, sum(weight_s) as failed_s, mode(application_name order by application_name) as application_name, count(distinct session_id) as sessions
  from session_sample where state = 'idle in transaction (aborted)' group by datname
),
asked as (  -- sessions seen to run or to have run ROLLBACK itself
  select s.datname, count(*) as seen from session_sample s join statement t using (statement_id)
  where regexp_matches(t.query, '(?i)^\s*(rollback|abort)\s*(work|transaction)?\s*;?\s*$') group by s.datname
),
isolation as (select max(setting) as level from setting where name = 'default_transaction_isolation'),
found as (
  select c.*, c.rolled_back / (c.rolled_back + c.committed) as part, f.failed_s, f.application_name, f.sessions, coalesce(a.seen, 0) as asked, i.level
  from change c cross join isolation i left join failed f using (datname) left join asked a using (datname)
  where c.rolled_back > 0 and c.committed >= 0
)
select 'ROLLBACKS' as id,
       case when part >= getvariable('most') then 'medium' else 'low' end as severity,
       'high' as confidence, 'database ' || datname as subject,
       format('{} of {} transactions of database {} were rolled back ({:.0f} %, {:.1f}/s){}{}{}', rolled_back::bigint, (rolled_back + committed)::bigint, datname, 100 * part,
              rolled_back / dt_s,
              case when deadlocks > 0 then format(', {} of them by deadlocks', deadlocks::bigint) else '' end,
              case when failed_s > 0 then format('; {} sessions sat {:.1f} s in failed transactions{}', sessions, failed_s,
                                                 case when application_name <> '' then ' (application ' || application_name || ')' else '' end) else '' end,
              case when asked > 0 then '; sessions were seen to run ROLLBACK themselves' else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, rolled_back::bigint as samples, w.ts_from, w.ts_to,
       to_json([{rolled_back: rolled_back, rolled_back_per_s: round(rolled_back / dt_s, 3), committed: committed, deadlocks: deadlocks, failed_s: round(failed_s, 3), application_name: application_name}]) as evidence,
       to_json({has_failed: failed_s > 0, has_asked: asked > 0, has_deadlocks: deadlocks > 0, isolation: case when level in ('serializable', 'repeatable read') then level end}) as facts
from found cross join capture w
where part >= getvariable('rollback_part') and rolled_back >= getvariable('rollbacks_per_s') * dt_s
order by rolled_back desc, subject
