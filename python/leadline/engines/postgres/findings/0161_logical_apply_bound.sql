-- id: LOGICAL-APPLY-BOUND
-- title: The apply worker of a subscription needs a whole CPU and does not keep up
-- question: Which apply workers of this subscriber worked all the time, and never had to wait for changes?
-- domain: postgres
-- needs: session_sample, session
-- unit: seconds in which changes always lay ready (no cost in database time)
-- cost: none
-- threshold: apply_piece_s = 5 (seconds: in parts so long it is looked for whether the worker ever waited for changes)
-- threshold: apply_idle = 0.01 (of a part in which it waited for changes: with more it has done all that was sent)
-- threshold: apply_work = 0.9 (of the parts in which it is behind: so much without a wait; else it waits for reads, locks or WAL)
-- threshold: apply_behind_s = 20 (seconds behind; one bulk load takes less)
-- threshold: apply_behind_part = 0.1 (of the capture)
-- threshold: apply_piece_samples = 20 (in a part; with fewer, a short wait for changes is not seen)
-- threshold: apply_queue = 0.1 (of its time on or for a CPU in which it had none: then others have the CPUs)
-- silent unless: exists (from wait_time where backend_type in ('logical replication worker', 'logical replication apply worker'))
-- wrong when: a bulk load or the first copy of a table runs that soon ends
with sync as (  -- the first copy of a table has a worker of its own, which has the same type before 17
  select distinct session_id from session_sample where wait_event = 'LogicalSyncData'
),
seen as (
  select session_id, pid, database, backend_type, ts, weight_s, wait_event is null as works, coalesce(wait_event = 'LogicalApplyMain', false) as is_idle,
         floor((ts - (select ts_from from capture)) / 1e9 / getvariable('apply_piece_s')) as piece
  from session_sample where backend_type in ('logical replication worker', 'logical replication apply worker') and session_id not in (select session_id from sync)
),
pieces as (
  select session_id, piece, sum(weight_s) as seconds, coalesce(sum(weight_s) filter (works), 0) as work_s, count(*) as samples, min(ts) as ts_from, max(ts) as ts_to,
         coalesce(sum(weight_s) filter (is_idle), 0) < getvariable('apply_idle') * sum(weight_s) and count(*) >= getvariable('apply_piece_samples') as is_behind
  from seen group by session_id, piece
),
behind as (
  select session_id, sum(seconds) filter (is_behind) as behind_s, sum(work_s) filter (is_behind) as work_s, sum(samples) filter (is_behind) as samples, sum(seconds) as all_s,
         arg_max(is_behind, piece) filter (samples >= getvariable('apply_piece_samples')) as at_end, min(ts_from) filter (is_behind) as ts_from, max(ts_to) filter (is_behind) as ts_to
  from pieces group by session_id
),
cpu as (select session_id, sum(cpu_run_ns) / 1e9 as run_s, sum(cpu_queue_ns) / 1e9 as queue_s from session_delta group by session_id),
worker as (select session_id, any_value(pid) as pid, any_value(database) as database, any_value(backend_type) as backend_type from seen group by session_id),
bound as (
  select b.*, w.pid, w.database, w.backend_type, c.run_s, c.queue_s, coalesce(c.queue_s >= getvariable('apply_queue') * (c.run_s + c.queue_s), false) as is_starved
  from behind b join worker w using (session_id) left join cpu c using (session_id)
  where work_s >= getvariable('apply_work') * behind_s and behind_s >= getvariable('apply_behind_s') and behind_s >= getvariable('apply_behind_part') * (select window_s from capture)
)
select 'LOGICAL-APPLY-BOUND' as id, case when at_end then 'medium' else 'low' end as severity, case when backend_type = 'logical replication apply worker' then 'medium' else 'low' end as confidence,
       'apply worker ' || case when database is null then format('with pid {}', pid) else format('in database {} with pid {}', database, pid) end as subject,
       format('The apply worker with pid {}{} always had changes to apply for {:.1f} s of {:.1f} s{}, and worked for {:.0f} % of these without a wait{}', pid, coalesce(' in database ' || database, ''), behind_s, all_s,
              if(at_end, ', also at the end', ''), 100 * work_s / behind_s,
              case when is_starved then format('; it was ready to run and had no CPU for {:.0f} % of its time on or for a CPU', 100 * queue_s / (run_s + queue_s)) else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples::bigint as samples, ts_from, ts_to,
       to_json([{pid: pid, database: database, behind_s: round(behind_s, 1), work_s: round(work_s, 1), run_s: round(run_s, 1), queue_s: round(queue_s, 1), at_end: at_end}]) as evidence,
       to_json({is_starved: is_starved}) as facts
from bound
order by behind_s desc, subject
