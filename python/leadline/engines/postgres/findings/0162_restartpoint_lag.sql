-- id: RESTARTPOINT-LAG
-- title: The last restartpoint of a standby is far behind what it has replayed
-- question: How much WAL did this standby replay since its last restartpoint, which it would replay again after a crash?
-- domain: replication
-- needs: server_stat, setting
-- unit: bytes of WAL replayed since the restartpoint (no cost in time before the standby starts again)
-- cost: none
-- threshold: restartpoint_part = 2 (times max_wal_size: while one restartpoint is made, a standby needs the WAL of up to two cycles of checkpoints)
-- threshold: restartpoint_bytes = 1073741824 (bytes: the default of max_wal_size; replay of less takes seconds)
-- threshold: restartpoint_high_bytes = 16106127360 (bytes: 15 times the default of max_wal_size; a usual disk for WAL has little more)
-- silent unless: exists (from server_stat where view = 'pg_control_checkpoint' and metric = 'replayed_bytes' and value >= getvariable('restartpoint_bytes'))
-- wrong when: the standby was just made or started, and has not had the time for a restartpoint
with point as (
  select max(after) filter (metric = 'replayed_bytes') as replayed, max(delta) filter (metric = 'redo_lsn') as moved, max(delta) filter (metric = 'replay_lsn') as grown,
         max(dt_s) filter (metric = 'replay_lsn') as dt_s
  from server_stat_delta where view = 'pg_control_checkpoint'
),
about as (select ts_from, ts_to, (select max(try_cast(setting as double)) * 1048576 from setting where name = 'max_wal_size') as max_wal_bytes from capture)  -- shown in MB
select 'RESTARTPOINT-LAG' as id, case when replayed >= getvariable('restartpoint_high_bytes') then 'medium' else 'low' end as severity, 'high' as confidence, 'restartpoints' as subject,
       format('This standby has replayed {:.1f} GB of WAL since the checkpoint of its last restartpoint, {:.1f} times max_wal_size ({:.1f} GB): it keeps this WAL, and replays it again if it crashes{}{}',
              replayed / 1073741824.0, replayed / max_wal_bytes, max_wal_bytes / 1073741824.0,
              case when moved > 0 then '; a restartpoint was finished in the capture' else '; none was finished in the capture' end,
              case when grown > 0 and dt_s > 0 then format('; it replays {:.1f} MB/s', grown / dt_s / 1048576.0) else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, ts_from, ts_to,
       to_json([{replayed_bytes: replayed, max_wal_bytes: max_wal_bytes, restartpoint_moved_bytes: moved, replayed_in_capture_bytes: grown}]) as evidence
from point cross join about
where replayed >= getvariable('restartpoint_bytes') and replayed >= getvariable('restartpoint_part') * max_wal_bytes
order by subject
