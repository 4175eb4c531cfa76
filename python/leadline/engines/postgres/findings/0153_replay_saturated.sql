-- id: REPLAY-SATURATED
-- title: Replay on a standby needs a whole CPU and falls behind
-- question: Did the startup process work without waiting all the time that WAL lay ready, and was that not enough?
-- domain: replication
-- needs: replay_sample, replication_lag, replication_node
-- unit: seconds that the standby is behind at the end (no cost in database time)
-- cost: none
-- threshold: saturated_share = 0.9 (of the time with WAL to replay in which it neither waits nor is idle)
-- threshold: saturated_lag_s = 2 (seconds behind at the end; a burst or a checkpoint takes less)
-- threshold: saturated_backlog_s = 2 (seconds with WAL to replay; with less nobody knows a trend)
-- threshold: saturated_queue = 0.1 (of its working time in which it was ready to run and had no CPU: then it is REPLAY-CPU-STARVED)
-- threshold: saturated_far_s = 60 (seconds behind: then it is high)
-- silent unless: exists (from replication_lag where is_standby and lag_s >= getvariable('saturated_lag_s'))
-- wrong when: a bulk load runs that soon ends, or the process waits for a CPU that others use
with lag as (select * from replication_lag where is_standby and not is_paused),
work as (  -- only the time in which WAL lay ready on the standby's disk
  select s.node, s.ts, s.seconds, s.activity in ('apply', 'read') and s.wait = '' as works, s.rmgr || ' ' || s.record_type as record
  from replay_sample s asof join lag l on l.node = s.node and l.ts <= s.ts
  where s.activity <> 'held' and l.unreplayed_bytes > 0
),
top as (
  select node, arg_max(record, seconds) as record, max(seconds) as record_s from (
    select node, record, sum(seconds) as seconds from work where record is not null group by all) group by node
),
busy as (
  select node, sum(seconds) as backlog_s, sum(seconds) filter (works) / sum(seconds) as share, count(*) as samples from work group by node having sum(seconds) > 0
),
starved as (  -- known of the target only
  select 1 as node from replay_cpu having sum(queue_s) >= getvariable('saturated_queue') * sum(run_s + queue_s + wait_s)
),
trend as (
  select node, arg_max(lag_s, ts) as end_s, arg_min(lag_s, ts) as first_s, arg_max(lag_bytes, ts) as end_bytes, min(ts) as ts_from, max(ts) as ts_to,
         (max(replay_lsn) - min(replay_lsn)) / nullif((max(ts) - min(ts)) / 1e9, 0) as replay_per_s,
         (max(made_lsn) - min(made_lsn)) / nullif((max(ts) - min(ts)) / 1e9, 0) as made_per_s
  from lag group by node
)
select 'REPLAY-SATURATED' as id, case when end_s >= getvariable('saturated_far_s') then 'high' else 'medium' end as severity, 'medium' as confidence, 'standby ' || n.name as subject,
       format('Replay on standby {} worked without waiting for {:.0f} % of the {:.1f} s with WAL to replay, and is {:.1f} s behind: {:.2f} MB/s were made and {:.2f} MB/s replayed{}',
              n.name, 100 * share, backlog_s, end_s, made_per_s / 1048576.0, replay_per_s / 1048576.0,
              case when record is null then '' else format('; most of its time took {} ({:.0f} %)', record, 100 * record_s / backlog_s) end) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples::bigint as samples, ts_from, ts_to,
       to_json([{standby: n.name, share: round(share, 3), backlog_s: round(backlog_s, 1), lag_s: round(end_s, 1), lag_bytes: end_bytes, made_bytes_per_s: round(made_per_s),
                 replayed_bytes_per_s: round(replay_per_s), record: record, record_share: round(record_s / backlog_s, 3)}]) as evidence,
       to_json({is_index: record like 'Btree%' or record like 'Gin%' or record like 'Gist%' or record like 'Hash%', is_image: record like 'XLOG FPI%'}) as facts
from busy b join trend t using (node) left join top using (node) join replication_node n using (node)
where share >= getvariable('saturated_share') and backlog_s >= getvariable('saturated_backlog_s') and end_s >= getvariable('saturated_lag_s')
  and end_s > first_s and made_per_s > replay_per_s and node not in (select node from starved)
order by end_s desc, subject
