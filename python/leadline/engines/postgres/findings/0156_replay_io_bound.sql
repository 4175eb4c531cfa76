-- id: REPLAY-IO-BOUND
-- title: Replay on a standby waits for reads of data files
-- question: How much of its working time did the startup process wait for blocks to be read, and of which relation?
-- domain: replication
-- needs: replay_sample, replication_lag, replication_node
-- unit: seconds that replay waited for reads of data files
-- cost: wall time
-- threshold: replay_read_share = 0.3 (of the time in which it applied or read records; less is usual when the data is larger than the cache)
-- threshold: replay_read_s = 1.0 (seconds; with less, replay catches up by itself)
-- threshold: replay_read_part = 0.05 (of the capture)
-- threshold: replay_read_samples = 20 (with fewer, the sampling error is large)
-- threshold: replay_read_lag_s = 2 (seconds behind at the end: then it is medium)
-- silent unless: exists (from replay_sample where wait like 'IO:%')
-- wrong when: the standby has just started, and its cache is cold
with work as (
  select *, replace(lower(wait), '_', '') in ('io:datafileread', 'io:datafileprefetch', 'io:aioiocompletion', 'io:aioiouringexecution') as reads
  from replay_sample where activity in ('apply', 'read') and wait is not null
),
of_relation as (select node, relation, sum(seconds) as seconds from work where reads and relation is not null group by all),
top as (select node, arg_max(relation, seconds) as relation, max(seconds) as seconds from of_relation group by node),
busy as (
  select node, sum(seconds) as busy_s, sum(seconds) filter (reads) as seen_s, count(*) filter (reads) as samples, min(ts) filter (reads) as ts_from, max(ts) filter (reads) as ts_to
  from work group by node
),
-- Also while it waits for WAL: it is woken then, too.
whole as (select node, sum(seconds) filter (wait <> '') as wait_s, sum(seconds) filter (wait = '') as no_wait_s from replay_sample group by node),
cpu as (select 1 as node, sum(run_s) as run_s, sum(queue_s) as queue_s from replay_cpu),  -- known of the target only
waited as (
  select b.*, waited_without_queue(b.seen_s, w.wait_s, w.no_wait_s, c.run_s, c.queue_s) as read_s
  from busy b join whole w using (node) left join cpu c using (node) where b.seen_s > 0
),
behind as (select node, arg_max(lag_s, ts) as lag_s from replication_lag where is_standby group by node),
setting_of as (  -- of the target only
  select max(setting) filter (name = 'recovery_prefetch') as prefetch, max(setting) filter (name = 'maintenance_io_concurrency') as concurrency from setting
),
found as (
  select b.*, n.name, t.relation, t.seconds * b.read_s / b.seen_s as relation_s, h.lag_s, case when b.node = 1 then s.prefetch end as prefetch, case when b.node = 1 then s.concurrency end as concurrency
  from waited b join replication_node n using (node) left join top t using (node) left join behind h using (node) cross join setting_of s
)
select 'REPLAY-IO-BOUND' as id, case when lag_s >= getvariable('replay_read_lag_s') then 'medium' else 'low' end as severity, confidence_of('shm', samples) as confidence, 'standby ' || name as subject,
       format('Replay on standby {} waited {:.1f} s for reads of data files ({:.0f} % of the {:.1f} s in which it worked){}{}{}', name, read_s, 100 * read_s / busy_s, busy_s,
              case when relation is null then '' else format(', {:.1f} s of it for {}', relation_s, relation) end,
              case when prefetch is null then '' else format('; recovery_prefetch is {}, maintenance_io_concurrency {}', prefetch, concurrency) end,
              case when lag_s is null then '' else format('; at the end it was {:.1f} s behind', lag_s) end) as statement,
       read_s as cost_s, null::double as share_of_db_time, samples::bigint as samples, ts_from, ts_to,
       to_json([{standby: name, read_s: round(read_s, 3), busy_s: round(busy_s, 3), relation: relation, relation_s: round(relation_s, 3), lag_s: round(lag_s, 1)}]) as evidence,
       to_json({standby: name, prefetch_is_off: prefetch = 'off' or concurrency = '0'}) as facts
from found
where read_s >= getvariable('replay_read_share') * busy_s and read_s >= getvariable('replay_read_s') and samples >= getvariable('replay_read_samples')
  and read_s >= getvariable('replay_read_part') * (select window_s from capture)
order by read_s desc, subject
