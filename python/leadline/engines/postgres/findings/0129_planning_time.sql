-- id: PLANNING-TIME
-- title: Much of the time of statements goes to planning them
-- question: How many seconds did planning take beside execution, and for which statements?
-- domain: postgres
-- needs: server_stat
-- unit: seconds of planning, as the server counts them
-- cost: database time
-- threshold: plan_share = 0.3 (share of planning in the time of the statement)
-- threshold: plan_min_sessions = 0.05 (sessions that plan on average)
-- evaluable when: exists (from server_stat where view = 'pg_stat_statements' and metric = 'plans' and value > 0) | pg_stat_statements.track_planning is off, or the extension was not read
-- silent unless: exists (from server_stat where view = 'pg_stat_statements' and metric = 'plans' and value > 0)
-- wrong when: the statements are planned once and then run many times from a plan that is kept
with spent as (
  select * from statement_stat where plan_s > 0 and plan_s >= getvariable('plan_share') * (plan_s + exec_s)
),
found as (
  select sum(plan_s) as plan_s, sum(exec_s) as exec_s, sum(plans) as plans, sum(calls) as calls, count(*) as statements, arg_max(plan_s / plans, plan_s) as one_s, arg_max(query, plan_s) as query,
         arg_max(statement_id, plan_s) as statement_id,
         to_json(list({statement_id: statement_id, query: left(regexp_replace(query, '\s+', ' ', 'g'), 200), plans: plans, calls: calls, plan_s: round(plan_s, 3), exec_s: round(exec_s, 3)}
                      order by plan_s desc, statement_id)[:20]) as evidence
  from spent where plans > 0 having count(*) > 0
)
select 'PLANNING-TIME' as id,
       severity_of(plan_s / greatest(b.db_time_s, plan_s), plan_s, c.window_s) as severity, 'high' as confidence, 'planning' as subject,
       format('{} took {:.1f} s to plan ({:.0f} plans for {:.0f} calls) and {:.1f} s to execute; most: {:.2f} ms for each plan of {}', if(statements = 1, 'One statement', format('{} statements', statements)), plan_s,
              plans, calls, exec_s, 1e3 * one_s, coalesce(left(regexp_replace(query, '\s+', ' ', 'g'), 160), 'statement ' || statement_id)) as statement,
       plan_s as cost_s, plan_s / greatest(b.db_time_s, plan_s) as share_of_db_time, plans::bigint as samples, c.ts_from, c.ts_to, evidence
from found cross join (select coalesce(sum(weight_s), 0) as db_time_s from db_time) b cross join capture c
where plan_s >= getvariable('plan_min_sessions') * c.window_s
order by subject
