-- id: JIT-COST
-- title: Much of the execution time goes to compiling expressions just in time
-- question: How many seconds did statements spend on JIT compilation, and which ones?
-- domain: postgres
-- needs: server_stat
-- unit: seconds of JIT compilation, as the server counts them
-- cost: database time
-- threshold: jit_share = 0.2 (share of the execution time of the statement; compilation has to be paid back by the rest)
-- threshold: jit_min_sessions = 0.02 (sessions that compile on average)
-- evaluable when: exists (from statement_stat where jit_s is not null) | pg_stat_statements counts JIT from version 15 (1.10 of the extension) on, and it was not read
-- silent unless: exists (from server_stat where view = 'pg_stat_statements' and metric = 'jit_functions' and phase = 'after' and value > 0)
-- wrong when: the statements are run once a day and nobody waits for them
with spent as (  -- what is generated while the plan is set up is no part of the execution, as the server counts it
  select statement_id, query, calls, greatest(exec_s, jit_s) as exec_s, jit_s, jit_functions
  from statement_stat where jit_s > 0 and exec_s > 0 and jit_s >= getvariable('jit_share') * exec_s
),
found as (
  select sum(jit_s) as jit_s, sum(exec_s) as exec_s, sum(calls) as calls, sum(jit_functions) as functions, count(*) as statements, arg_max(query, jit_s) as query, arg_max(jit_s / calls, jit_s) as call_jit_s,
         arg_max(exec_s / calls, jit_s) as call_s, arg_max(statement_id, jit_s) as statement_id,
         to_json(list({statement_id: statement_id, query: left(regexp_replace(query, '\s+', ' ', 'g'), 200), calls: calls, jit_s: round(jit_s, 3), exec_s: round(exec_s, 3),
                       functions: jit_functions} order by jit_s desc, statement_id)[:20]) as evidence
  from spent having count(*) > 0
)
select 'JIT-COST' as id,
       severity_of(jit_s / greatest(b.db_time_s, jit_s), jit_s, c.window_s) as severity, 'high' as confidence, 'JIT compilation' as subject,
       format('{} compiled {:.0f} functions in {:.0f} calls. Compilation took {:.1f} s, {:.0f} % of the execution time; most: {:.1f} ms of {:.1f} ms per call of {}', if(statements = 1, 'One statement', format('{} statements', statements)),
              functions, calls, jit_s, 100 * jit_s / exec_s, 1e3 * call_jit_s, 1e3 * call_s, coalesce(left(regexp_replace(query, '\s+', ' ', 'g'), 160), 'statement ' || statement_id)) as statement,
       jit_s as cost_s, jit_s / greatest(b.db_time_s, jit_s) as share_of_db_time, calls::bigint as samples, c.ts_from, c.ts_to, evidence
from found cross join (select coalesce(sum(weight_s), 0) as db_time_s from db_time) b cross join capture c
where jit_s >= getvariable('jit_min_sessions') * c.window_s
order by subject
