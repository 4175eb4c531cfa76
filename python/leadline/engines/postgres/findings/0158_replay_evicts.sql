-- id: REPLAY-EVICTS
-- title: Replay on a standby writes pages itself to make room in its cache
-- question: How much of its working time did the startup process wait for writes of data files and flushes of pg_control?
-- domain: replication
-- needs: replay_sample, replication_lag, replication_node
-- unit: seconds that replay waited for writes of pages that it evicted
-- cost: wall time
-- threshold: evict_share = 0.05 (of the time in which it applied or read records; the background writer and the checkpointer are there to write)
-- threshold: evict_s = 1.0 (seconds; with less, replay catches up by itself)
-- threshold: evict_part = 0.01 (of the capture)
-- threshold: evict_samples = 20 (with fewer, the sampling error is large)
-- threshold: evict_lag_s = 2 (seconds behind at the end: then it is medium)
-- silent unless: exists (from replay_sample where lower(wait) like 'io:datafile%')
-- wrong when: a bulk load is replayed, which makes more dirty pages than any cache holds
with work as (
  -- CREATE DATABASE writes out the pages of its template; a commit that drops files and a truncation flush pg_control too: no evictions
  select *, replace(lower(wait), '_', '') in ('io:datafilewrite', 'io:datafileflush') and rmgr is distinct from 'Database' as writes,
         replace(lower(wait), '_', '') in ('io:controlfilesyncupdate', 'io:controlfilewriteupdate') and coalesce(rmgr not in ('Transaction', 'Storage', 'Database'), false) as controls
  from replay_sample where activity in ('apply', 'read') and wait is not null
),
busy as (
  select node, sum(seconds) as busy_s, sum(seconds) filter (writes or controls) as seen_s, coalesce(sum(seconds) filter (controls), 0) as control_s,
         count(*) filter (writes or controls) as samples, min(ts) filter (writes or controls) as ts_from, max(ts) filter (writes or controls) as ts_to
  from work group by node having bool_or(writes)  -- without them, nothing is evicted
),
-- Also while it waits for WAL: it is woken then, too.
whole as (select node, sum(seconds) filter (wait <> '') as wait_s, sum(seconds) filter (wait = '') as no_wait_s from replay_sample group by node),
cpu as (select 1 as node, sum(run_s) as run_s, sum(queue_s) as queue_s from replay_cpu),  -- known of the target only
counted as (  -- the server's own count of the pages, also of the target only
  select 1 as node, sum(shared_blks_written) as pages from session_delta where session_id in (select session_id from session where backend_type = 'startup')
),
waited as (
  select b.*, waited_without_queue(b.seen_s, w.wait_s, w.no_wait_s, c.run_s, c.queue_s) as evict_s
  from busy b join whole w using (node) left join cpu c using (node)
),
behind as (select node, arg_max(lag_s, ts) as lag_s from replication_lag where is_standby group by node),
room as (select block_bytes_of(max(setting) filter (name = 'block_size')) * max(try_cast(setting as bigint)) filter (name = 'shared_buffers') / 1048576.0 as buffers_mb,
                max(setting) filter (name = 'bgwriter_lru_maxpages') as maxpages from setting),
found as (
  select w.*, n.name, w.control_s * w.evict_s / w.seen_s as flushed_s, h.lag_s, case when w.node = 1 then r.buffers_mb end as buffers_mb, case when w.node = 1 then r.maxpages end as maxpages,
         nullif(p.pages, 0) as pages
  from waited w join replication_node n using (node) left join behind h using (node) left join counted p using (node) cross join room r
)
select 'REPLAY-EVICTS' as id, case when lag_s >= getvariable('evict_lag_s') then 'medium' else 'low' end as severity, confidence_of('shm', samples) as confidence, 'standby ' || name as subject,
       format('Replay on standby {} waited {:.1f} s to write pages out of its cache ({:.0f} % of the {:.1f} s in which it worked){}{}{}{}', name, evict_s, 100 * evict_s / busy_s, busy_s,
              case when control_s > 0 then format(', {:.1f} s of it for pg_control', flushed_s) else '' end,
              case when pages is null then '' else format('; it wrote {} page{}', pages::bigint, if(pages = 1, '', 's')) end,
              case when buffers_mb is null then '' else format(if(buffers_mb <> round(buffers_mb), '; shared_buffers has {:.1f} MB', '; shared_buffers has {:.0f} MB'), buffers_mb) || coalesce(', bgwriter_lru_maxpages is ' || maxpages, '') end,
              case when lag_s is null then '' else format('; at the end it was {:.1f} s behind', lag_s) end) as statement,
       evict_s as cost_s, null::double as share_of_db_time, samples::bigint as samples, ts_from, ts_to,
       to_json([{standby: name, evict_s: round(evict_s, 3), control_file_s: round(flushed_s, 3), busy_s: round(busy_s, 3), pages: pages, lag_s: round(lag_s, 1)}]) as evidence,
       to_json({writer_is_off: maxpages = '0'}) as facts
from found
where evict_s >= getvariable('evict_share') * busy_s and evict_s >= getvariable('evict_s') and samples >= getvariable('evict_samples')
  and evict_s >= getvariable('evict_part') * (select window_s from capture)
order by evict_s desc, subject
