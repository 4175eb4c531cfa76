-- id: CKPT-REQUESTED
-- title: Checkpoints are requested, not timed
-- question: Did WAL volume or a command start the checkpoints in the window, and not checkpoint_timeout?
-- domain: postgres
-- needs: server_stat
-- unit: checkpoints (no cost in time of its own)
-- cost: none
-- threshold: max_requested_ratio = 0.3 (on a well-sized server at most 30 % of the checkpoints are requested)
-- threshold: min_requested = 1 (checkpoints in the window; one is enough)
-- threshold: by_command_part = 0.25 (share of max_wal_size written between two checkpoints; WAL volume requests one at about half of it, so with less it was a command)
-- threshold: ckpt_high_s = 30 (seconds between two checkpoints: checkpoint_warning, below which the server logs a warning)
-- threshold: ckpt_medium_s = 150 (seconds between two checkpoints: half of the default checkpoint_timeout)
-- threshold: ckpt_confident = 3 (checkpoints; three make two intervals, which can be compared)
-- silent unless: exists (from server_stat_delta where metric in ('num_requested', 'checkpoints_req') and delta > 0)
-- wrong when: somebody ran CHECKPOINT, a base backup or CREATE DATABASE, which also request checkpoints; restartpoints of a standby are not counted
with number as (
  select view || '.' || metric as name, after, delta from server_stat_delta
  where view in ('pg_stat_checkpointer', 'pg_stat_bgwriter', 'pg_stat_wal') and object = ''
),
checkpoint as (  -- pg_stat_checkpointer is 17 and later; pg_stat_bgwriter has the numbers before
  select coalesce(max(delta) filter (name = 'pg_stat_checkpointer.num_requested'),
                  max(delta) filter (name = 'pg_stat_bgwriter.checkpoints_req')) as requested,
         coalesce(max(delta) filter (name = 'pg_stat_checkpointer.num_timed'),
                  max(delta) filter (name = 'pg_stat_bgwriter.checkpoints_timed')) as timed,
         coalesce(max(after) filter (name = 'pg_stat_checkpointer.num_requested'),
                  max(after) filter (name = 'pg_stat_bgwriter.checkpoints_req')) as requested_ever,
         coalesce(max(after) filter (name = 'pg_stat_checkpointer.num_timed'),
                  max(after) filter (name = 'pg_stat_bgwriter.checkpoints_timed')) as timed_ever,
         coalesce(max(delta) filter (name = 'pg_stat_checkpointer.write_time'),
                  max(delta) filter (name = 'pg_stat_bgwriter.checkpoint_write_time')) as write_ms,
         coalesce(max(delta) filter (name = 'pg_stat_checkpointer.sync_time'),
                  max(delta) filter (name = 'pg_stat_bgwriter.checkpoint_sync_time')) as sync_ms
  from number
),
session_wal as (
  select sum(wal_bytes) as bytes, sum(wal_records) as records, sum(wal_fpi) as fpi from session_delta
),
wal as (
  select coalesce(max(n.delta) filter (n.name = 'pg_stat_wal.wal_bytes'), any_value(s.bytes)) as bytes,
         coalesce(max(n.delta) filter (n.name = 'pg_stat_wal.wal_records'), any_value(s.records)) as records,
         coalesce(max(n.delta) filter (n.name = 'pg_stat_wal.wal_fpi'), any_value(s.fpi)) as fpi
  from number n cross join session_wal s
),
limits as (
  select max(try_cast(setting as double)) filter (name = 'max_wal_size') * 1048576 as max_wal_bytes,  -- the server shows it in MB
         max(try_cast(setting as double)) filter (name = 'checkpoint_timeout') as timeout_s
  from setting
),
fact as (  -- a checkpoint is due at about half of max_wal_size; far less WAL than that cannot have asked for it
  select k.*, w.*, l.*, w.bytes / k.requested < getvariable('by_command_part') * l.max_wal_bytes as by_command
  from checkpoint k cross join wal w cross join limits l
)
select 'CKPT-REQUESTED' as id,
       case when coalesce(by_command, false) then 'info'
            when requested < 2 then 'low'  -- one tells no interval
            when c.window_s / requested < getvariable('ckpt_high_s') then 'high' when c.window_s / requested < getvariable('ckpt_medium_s') then 'medium' else 'low' end as severity,
       case when requested >= getvariable('ckpt_confident') and not coalesce(by_command, true) then 'high'
            when requested >= 2 or coalesce(by_command, false) then 'medium' else 'low' end as confidence,
       'checkpoints' as subject,
       format('{:.0f} of {:.0f} checkpoints in {:.0f} s were requested{}{}{}{}; since the last statistics reset, {:.0f} of {:.0f} were requested',
              requested, requested + timed, c.window_s,
              case when by_command then ', by a command rather than by WAL volume'
                   when not by_command then ', by WAL volume' else '' end,
              case when bytes is null then '' else format('; {:.1f} MB of WAL{}', bytes / 1048576.0,
                   case when max_wal_bytes is null then '' else format(' with max_wal_size {:.0f} MB', max_wal_bytes / 1048576) end) end,
              case when fpi > 0 and records > 0 then format(', {:.0f} % of its records carry full-page images', 100 * least(1, fpi / records)) else '' end,
              case when write_ms is null then '' else format('; writing took {:.1f} s, syncing {:.1f} s', write_ms / 1e3, coalesce(sync_ms, 0) / 1e3) end,
              requested_ever, requested_ever + timed_ever) as statement,
       cast(null as double) as cost_s, cast(null as double) as share_of_db_time, requested::bigint as samples,
       c.ts_from, c.ts_to,
       to_json([{requested: requested, timed: timed, write_ms: write_ms, sync_ms: sync_ms, wal_bytes: bytes, wal_records: records, wal_fpi: fpi,
                 max_wal_bytes: max_wal_bytes, checkpoint_timeout_s: timeout_s}]) as evidence
from fact cross join capture c
where requested >= getvariable('min_requested') and requested / (requested + timed) > getvariable('max_requested_ratio')
