-- id: ARCHIVER-FAILS
-- title: WAL is not archived as fast as it is written
-- question: Does archiving fail or fall behind, since when, and how many segments wait?
-- domain: postgres
-- needs: server_stat
-- unit: segments that wait to be archived (no cost in time of its own)
-- cost: none
-- threshold: archive_waiting = 10 (segments that wait; a working archiver has a few at most, even after a burst)
-- threshold: archive_high = 64 (segments that wait: 1 GB of the default size, as much as max_wal_size)
-- silent unless: exists (from server_stat_delta where view = 'pg_stat_archiver' and metric = 'failed_count' and delta > 0) or exists (from server_stat where view = 'pg_ls_archive_statusdir' and metric = 'waiting' and value >= getvariable('archive_waiting'))
-- wrong when: a bulk load has just ended and the archiver is catching up
with number as (
  select view || '.' || metric as name, before, after, delta, dt_s from server_stat_delta where view in ('pg_stat_archiver', 'pg_ls_archive_statusdir')
),
about as (
  select c.ts_from, c.ts_to, (c.ts_to + c.wall_offset_ns) / 1e9 as now_s,
         (select max(try_cast(setting as double)) from setting where name = 'wal_segment_size') as segment_bytes,
         -- a standby archives with archive_mode = always only; what waited when it was a primary still waits there
         exists (from session where backend_type in ('startup', 'walreceiver')) and not exists (from setting where name = 'archive_mode' and setting = 'always') as is_idle
  from capture c
),
found as (
  select max(delta) filter (name = 'pg_stat_archiver.failed_count') as failed, max(delta) filter (name = 'pg_stat_archiver.archived_count') as archived,
         max(after) filter (name = 'pg_stat_archiver.last_archived_time') as archived_at, max(after) filter (name = 'pg_stat_archiver.last_failed_time') as failed_at,
         max(after) filter (name = 'pg_ls_archive_statusdir.waiting') as waiting, max(delta) filter (name = 'pg_ls_archive_statusdir.waiting') as more,
         max(dt_s) as dt_s
  from number
),
state as (
  select *, coalesce(failed, 0) > 0 as fails, coalesce(failed_at > archived_at, failed_at is not null) as failed_last from found cross join about
)
select 'ARCHIVER-FAILS' as id,
       case when waiting >= getvariable('archive_high') or (fails and coalesce(archived, 0) = 0) then 'high' else 'medium' end as severity,
       'high' as confidence, 'WAL archiving' as subject,
       case when fails then format('Archiving failed {:.0f} times in {:.0f} s and succeeded {:.0f} times', failed, dt_s, coalesce(archived, 0))
            else format('Archiving succeeded {:.0f} times in {:.0f} s', coalesce(archived, 0), dt_s) end
       || case when failed_last and archived_at is not null then format('; the last success was {:.1f} hours before the end', (now_s - archived_at) / 3600)
               when failed_last then '; it has not succeeded since the statistics began' else '' end
       || case when waiting is not null then format('; {:.0f} segments wait{}{}', waiting,
                                                   case when segment_bytes is not null then format(' ({:.1f} GB)', waiting * segment_bytes / 1073741824.0) else '' end,
                                                   case when more > 0 then format(', {:.0f} more than when the capture began', more) else '' end) else '' end as statement,
       null::double as cost_s, null::double as share_of_db_time, greatest(coalesce(failed, 0), 1)::bigint as samples, ts_from, ts_to,
       to_json([{failed: failed, archived: archived, waiting: waiting, more_waiting: more}]) as evidence,
       to_json({fails: fails or failed_last, is_slow: not (fails or failed_last)}) as facts
from state
where fails or (not is_idle and waiting >= getvariable('archive_waiting') and (failed_last or coalesce(more, 0) >= 0))
order by subject
