-- id: PLAN-FLIP
-- title: A statement reads far more blocks for each call than it did before
-- question: Which statements take many times the blocks and the time of their calls before the capture, and how much more is that?
-- domain: postgres
-- needs: server_stat
-- unit: seconds of execution beyond what the calls would have taken at the mean from before
-- cost: database time
-- threshold: flip_times = 5 (times the blocks and the time of a call before; less is the usual spread of parameters)
-- threshold: flip_calls_before = 20 (calls before the capture; fewer give no mean to compare with)
-- threshold: flip_calls = 5 (calls in the capture)
-- threshold: flip_min_sessions = 0.05 (sessions that lost the time on average)
-- threshold: flip_blocks = 100 (blocks of a call now; below it time is not a matter of the plan)
-- silent unless: exists (from server_stat where view = 'pg_stat_statements')
-- wrong when: the calls of this time were of other parameters or of more data than those before
with changed as (
  select *, exec_s / calls as mean_s, exec_s_before / calls_before as mean_s_before, blocks / calls as call_blocks, blocks_before / calls_before as call_blocks_before,
         exec_s - calls * exec_s_before / calls_before as lost_s
  from statement_stat
  where calls >= getvariable('flip_calls') and calls_before >= getvariable('flip_calls_before')
    -- a result that grew needs no other plan
    and result_rows / calls <= 2 * greatest(result_rows_before / calls_before, 1)
    and coalesce(not regexp_matches(query, '^\s*(create|alter|drop|truncate|vacuum|analyze|copy|refresh|reindex|cluster|explain)\b', 'i'), true)
),
found as (
  select * from changed
  where call_blocks >= greatest(getvariable('flip_blocks'), getvariable('flip_times') * call_blocks_before) and mean_s >= getvariable('flip_times') * mean_s_before
)
select 'PLAN-FLIP' as id,
       severity_of(lost_s / greatest(b.db_time_s, lost_s), lost_s, c.window_s) as severity, 'medium' as confidence, 'statement ' || statement_id as subject,
       format('{:.0f} calls read {:.0f} blocks and took {:.2f} ms each, {:.0f} times the blocks and {:.0f} times the time of the {:.0f} calls before the capture: {:.1f} s more{}', calls, call_blocks,
              1e3 * mean_s, call_blocks / greatest(call_blocks_before, 1), mean_s / greatest(mean_s_before, 1e-9), calls_before, lost_s,
              coalesce('; ' || left(regexp_replace(query, '\s+', ' ', 'g'), 160), '')) as statement,
       lost_s as cost_s, lost_s / greatest(b.db_time_s, lost_s) as share_of_db_time, calls::bigint as samples, c.ts_from, c.ts_to,
       to_json([{statement_id: statement_id, query: query, calls: calls, calls_before: calls_before, mean_ms: round(1e3 * mean_s, 3), mean_ms_before: round(1e3 * mean_s_before, 3),
                 blocks_a_call: round(call_blocks, 1), blocks_a_call_before: round(call_blocks_before, 1), result_rows: result_rows, generic_calls: generic_calls}]) as evidence,
       to_json({statement_id: statement_id}) as facts
from found cross join (select coalesce(sum(weight_s), 0) as db_time_s from db_time) b cross join capture c
where lost_s >= getvariable('flip_min_sessions') * c.window_s
order by lost_s desc, subject
