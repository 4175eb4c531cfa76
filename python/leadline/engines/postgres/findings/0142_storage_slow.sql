-- id: STORAGE-SLOW
-- title: Storage takes long for each flush or read
-- question: How long does a flush of the WAL or a read take for the server, how long for the device, and what holds it up in between?
-- domain: postgres
-- needs: session_sample, device_delta, host_fact
-- unit: seconds that sessions waited for flushes of the WAL, or for reads of data files
-- cost: database time
-- threshold: slow_ms = 5.0 (milliseconds for a flush or read; a flash disk needs 0.1 to 1, a turn of a fast spinning disk takes 4)
-- threshold: min_share = 0.1 (10 % of database time; with less, the disk is slow but nobody waits for it)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: explained_part = 0.5 (of the time: more than half was spent there)
-- silent unless: exists (select 1 from wait_time where in_db_time and wait_class in ('IO', 'IPC') and replace(lower(wait_event), '_', '') in ('walsync', 'walwrite', 'datafileread', 'datafileprefetch', 'aioiocompletion', 'aioiouringexecution') group by wait_class having sum(samples) >= getvariable('min_samples') and 2 * sum(share) >= getvariable('min_share'))
-- wrong when: other programs use the same device, or the page cache of the host gave most blocks
with event as (
  select *, case when replace(lower(wait_event), '_', '') in ('walsync', 'walwrite') then 'flush'
                 when replace(lower(wait_event), '_', '') in ('datafileread', 'datafileprefetch', 'aioiocompletion', 'aioiouringexecution') then 'read' end as kind
  from (select distinct wait_class, wait_event from session_sample where wait_class in ('IO', 'IPC'))
),
seen as (
  select kind, sum(weight_s) as cost_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to
  from db_time join event using (wait_class, wait_event) where kind is not null group by kind
),
whole as (  -- with background processes, and with the time that a session waited for a CPU when its flush or read had ended
  select kind, sum(weight_s) as all_s, coalesce(sum(weight_s) filter (in_db_time), 0) as session_s
  from session_sample join event using (wait_class, wait_event) where kind is not null group by kind
),
number as (select * from server_stat_delta where view in ('pg_stat_wal', 'pg_stat_io') and delta >= 0),
counted as (  -- 14 to 17 count flushes in pg_stat_wal, 18 in pg_stat_io; times only with track_wal_io_timing and track_io_timing
  select 'flush' as kind, nullif(sum(delta) filter (metric = 'wal_sync' or (metric = 'fsyncs' and object like '%/wal/%')), 0) as times,
         nullif(sum(delta) filter (metric = 'wal_sync_time' or (metric = 'fsync_time' and object like '%/wal/%')), 0) / 1e3 as timed_s
  from number
  union all
  select 'read', nullif((select sum(shared_blks_read) from session_delta), 0), nullif(sum(delta) filter (metric = 'read_time' and object like '%/relation/%'), 0) / 1e3
  from number
),
place as (
  select 'flush' as kind, max(value) as device from host_fact where name = 'storage.wal'
  union all
  select 'read', max(value) from host_fact where name = 'storage.data'
),
mounted as (
  select 'flush' as kind, max(fstype) as fstype from mount where list_contains(string_split(holds, ','), 'wal')
  union all
  select 'read', max(fstype) from mount where list_contains(string_split(holds, ','), 'data')
),
device as (
  select device, sum(reads) as reads, sum(writes) as writes, sum(flushes) as flushes, sum(read_ns) / 1e9 as read_s, sum(write_ns) / 1e9 as write_s, sum(flush_ns) / 1e9 as flush_s
  from device_delta group by device
),
compared as (
  select s.*, p.device, m.fstype, d.reads, d.writes, d.flushes, w.session_s - s.cost_s as cpu_s, w.all_s,
         coalesce(c.times, case when s.kind = 'flush' then coalesce(nullif(d.flushes, 0), d.writes) else d.reads end) as times,
         coalesce(c.timed_s, w.all_s) as spent_s, c.timed_s is not null as is_timed,
         -- a flush is a write and, where the device has a cache, a request to empty it
         1e3 * case when d.device is null then null when s.kind = 'flush' then coalesce(d.write_s / nullif(d.writes, 0), 0) + coalesce(d.flush_s / nullif(d.flushes, 0), 0) else d.read_s / nullif(d.reads, 0) end as device_ms,
         case when s.kind = 'read' then least(d.read_s / nullif(w.all_s, 0), 1) end as read_part,
         l.value as limits
  from seen s join whole w using (kind) left join counted c using (kind) left join place p using (kind) left join mounted m using (kind)
  left join device d on d.device = p.device
  left join host_fact l on l.name = 'cgroup.io_max.' || p.device and regexp_matches(l.value, case when s.kind = 'flush' then 'w(bps|iops)=' else 'r(bps|iops)=' end)
),
timed as (
  select *, 1e3 * spent_s / nullif(times, 0) as each_ms, case when kind = 'read' then read_part else least(device_ms / each_ms, 1) end as device_part from compared
),
verdict as (
  select *, case when cpu_s >= getvariable('explained_part') * (cost_s + cpu_s) then 'cpu'
                 when device is null then 'elsewhere'
                 when coalesce(device_part, 0) >= getvariable('explained_part') then 'device'
                 when limits is not null then 'limit'
                 else 'above' end as cause,
         cost_s / (select sum(weight_s) from db_time) as share
  from timed
)
select 'STORAGE-SLOW' as id, severity_of(share, cost_s, c.window_s) as severity,
       case when is_timed then 'high' else confidence_of(c.tier, samples) end as confidence,
       case when kind = 'flush' then 'flushes of the WAL' else 'reads of data files' end as subject,
       format('{} session{} waited {:.1f} s ({:.1f} % of database time) for {}: {}{:.1f} ms each{}. {}',
              sessions, case when sessions = 1 then '' else 's' end, cost_s, 100 * share,
              case when kind = 'flush' then 'flushes of the WAL' else 'reads of data files' end,
              case when is_timed then '' else 'about ' end, each_ms,
              case when device_ms is null then '' else format('; device {} took {:.1f} ms for {}', device, device_ms,
                     case when kind = 'read' then 'each read' when flushes > 0 then 'a write and the flush of its cache' else 'each write' end) end,
              case cause when 'cpu' then format('It is the CPU: after the {} had ended, the sessions waited {:.1f} s more to run', kind, cpu_s)
                         when 'device' then 'It is the device'
                         when 'limit' then format('It is a limit of the control group ({}), which holds requests back before they reach the device', limits)
                         when 'above' then format('It is neither the device nor a limit of the control group: the file system ({}) or what lies between it and the device', coalesce(fstype, 'not known'))
                         else format('The file system ({}) is on no block device of this host: its network, its memory or its storage server is slow', coalesce(fstype, 'not known')) end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to,
       to_json([{kind: kind, cause: cause, device: device, each_ms: round(each_ms, 3), device_ms: round(device_ms, 3), times: times, limits: limits, cpu_s: round(cpu_s, 3)}]) as evidence,
       to_json({device: device, limits: limits, is_cpu: cause = 'cpu', is_device: cause = 'device', is_limit: cause = 'limit', is_above: cause in ('above', 'elsewhere'),
                is_flush: kind = 'flush'}) as facts
from verdict cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples')
  and (each_ms >= getvariable('slow_ms') or (kind = 'read' and device_ms >= getvariable('slow_ms') and cause = 'device'))
order by cost_s desc, subject
