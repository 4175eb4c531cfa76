-- id: FPI-STORM
-- title: Page images are most of the WAL after a checkpoint
-- question: How much of the WAL after the begin of a checkpoint is page images, and how long does a standby replay them?
-- domain: postgres
-- needs: session_delta, checkpoint_phase
-- unit: seconds that the standby works to replay the page images; null where no standby was watched
-- cost: wall time
-- threshold: image_share = 0.5 (of the WAL in the first quarter of the time from the begin of a checkpoint to that of the next)
-- threshold: image_ratio = 2 (images per record there, as a multiple of those in the last quarter; work that has nothing to do with the checkpoint has about as many in both)
-- threshold: image_cycle_s = 8 (seconds from the begin of a checkpoint to the next, or to the end of the capture: the counters of sessions are read once a second, so that a quarter has two readings)
-- threshold: image_bytes = 16777216 (bytes of page images: a segment of WAL)
-- threshold: image_most = 0.5 (of all WAL between two checkpoints: then it is medium)
-- threshold: image_confident = 2 (cycles that were seen to their end)
-- silent unless: exists (from session_delta where wal_fpi > 0)
-- evaluable when: (select coalesce(coarse_s, 1) <= 1 from capture) | it looks at single seconds, and the capture is coarser
-- evaluable when: exists (from session_delta where wal_bytes is not null) | the WAL of the sessions could not be read from their memory
-- wrong when: an index is built, or a bulk load of new pages runs, in the first quarter only: they write page images, too
with begun as (
  select ts_from as ts from (select *, lag(phase) over (order by ts) as before from checkpoint_phase) where phase <> 'none' and before = 'none'
),
cycle as (
  select ts as ts_from, coalesce(lead(ts) over (order by ts), (select ts_to from capture)) as ts_to, lead(ts) over (order by ts) is not null as is_whole from begun
),
used as (select ts - dt_ns // 2 as ts, wal_bytes, wal_records, wal_fpi from session_delta where wal_bytes > 0),
part as (
  select c.ts_from, c.ts_to, c.is_whole, (4 * (u.ts - c.ts_from)) // (c.ts_to - c.ts_from) as quarter, sum(u.wal_bytes) as bytes, sum(u.wal_records) as records, sum(u.wal_fpi) as fpi
  from cycle c join used u on u.ts >= c.ts_from and u.ts < c.ts_to group by all
),
seen as (
  select ts_from, ts_to, is_whole, sum(bytes) as bytes, sum(records) as records, sum(fpi) as fpi,
         sum(bytes) filter (quarter = 0) as first_bytes, sum(records) filter (quarter = 0) as first_records, sum(fpi) filter (quarter = 0) as first_fpi,
         sum(bytes) filter (quarter = 3) as last_bytes, sum(records) filter (quarter = 3) as last_records, sum(fpi) filter (quarter = 3) as last_fpi
  from part group by all
),
page as (select block_bytes_of(max(setting) filter (name = 'block_size')) as bytes from setting),
-- At least: what the records have beyond those of the last quarter, which have images of their own. No image is larger than a page.
image as (
  select s.*, least(greatest(s.first_bytes - s.first_records * s.last_bytes / s.last_records, 0), s.first_fpi * p.bytes) as first_image_bytes,
         least(greatest(s.bytes - s.records * s.last_bytes / s.last_records, 0), s.fpi * p.bytes) as image_bytes
  from seen s cross join page p where s.last_records > 0 and s.first_records > 0 and s.ts_to - s.ts_from >= getvariable('image_cycle_s') * 1e9
),
stormy as (
  select * from image
  where first_image_bytes >= getvariable('image_share') * first_bytes and first_fpi / first_records >= getvariable('image_ratio') * last_fpi / last_records
),
whole as (
  select sum(image_bytes) as image_bytes, sum(bytes) as bytes, count(*) as cycles, count(*) filter (is_whole) as ended, sum(first_image_bytes) / sum(first_bytes) as first_share,
         sum(first_fpi) / sum(first_records) as first_rate, sum(last_fpi) / sum(last_records) as last_rate, sum(fpi) as fpi, min(ts_from) as ts_from, max(ts_to) as ts_to,
         avg((ts_to - ts_from) / 4e9) as quarter_s, median((ts_to - ts_from) / 1e9) filter (is_whole) as every_s
  from stormy
),
-- What the slowest standby replays while it works.
replay as (
  select node, (max(replay_lsn) - min(replay_lsn)) / nullif(sum(seconds) filter (activity in ('apply', 'read')), 0) as bytes_per_s from replay_sample group by node
),
standby as (select min(bytes_per_s) as bytes_per_s, arg_min(n.name, bytes_per_s) as name from replay join replication_node n using (node) where bytes_per_s > 0),
requested as (select coalesce(max(delta) filter (metric = 'num_requested'), max(delta) filter (metric = 'checkpoints_req')) as n from server_stat_delta),
setting_of as (
  select max(setting) filter (name = 'wal_compression') as compression, max(try_cast(setting as double)) filter (name = 'checkpoint_timeout') as timeout_s,
         max(try_cast(setting as double)) filter (name = 'max_wal_size') as max_wal_mb
  from setting
)
select 'FPI-STORM' as id, case when image_bytes >= getvariable('image_most') * bytes then 'medium' else 'low' end as severity,
       case when ended >= getvariable('image_confident') then 'high' else 'medium' end as confidence, 'checkpoints' as subject,
       format('In the first {:.0f} s after {} checkpoint{} at least {:.0f} % of the WAL was page images, {:.2f} for each record, and {:.2f} later; in all at least {:.1f} MB of {:.1f} MB{}{}{}',
              quarter_s, cycles, case when cycles = 1 then '' else 's' end, 100 * first_share, first_rate, last_rate, image_bytes / 1048576.0, bytes / 1048576.0,
              case when s.bytes_per_s is null then '' else format(', for which standby {} works {:.1f} s', s.name, image_bytes / s.bytes_per_s) end,
              case when every_s is null then '' else format('; a checkpoint began every {:.0f} s', every_s) end,
              case when timeout_s is null then '' else format('; checkpoint_timeout is {:.0f} s, max_wal_size {:.0f} MB, wal_compression {}', timeout_s, max_wal_mb, compression) end) as statement,
       image_bytes / s.bytes_per_s as cost_s, null::double as share_of_db_time, fpi::bigint as samples, ts_from, ts_to,
       to_json([{image_bytes: image_bytes::bigint, wal_bytes: bytes::bigint, images: fpi::bigint, first_share: round(first_share, 3), images_per_record_first: round(first_rate, 4),
                 images_per_record_last: round(last_rate, 4), checkpoints: cycles, requested: requested.n, standby: s.name, replay_bytes_per_s: round(s.bytes_per_s)}]) as evidence,
       to_json({by_request: requested.n > 0, compression_is_off: compression = 'off'}) as facts
from whole cross join standby s cross join setting_of cross join requested
where image_bytes >= getvariable('image_bytes')
order by subject
