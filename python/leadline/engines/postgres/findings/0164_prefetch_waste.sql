-- id: PREFETCH-WASTE
-- title: Replay asks ahead for blocks that it then does not read
-- question: How many blocks that this standby asked the kernel to read ahead did replay not read afterwards, and what did it cost?
-- domain: replication
-- needs: server_stat, session, session_delta
-- unit: seconds of the startup process in the kernel, at most
-- cost: CPU
-- threshold: waste_share = 0.2 (of the blocks that were asked for ahead)
-- threshold: waste_calls = 10000 (blocks; each costs a system call of some microseconds)
-- threshold: waste_covered = 0.9 (of the time between the two readings of the server's counter in which the reads of replay are known)
-- threshold: waste_cpu_part = 0.05 (of the capture, in the kernel: then it is medium)
-- silent unless: exists (from server_stat where view = 'pg_stat_recovery_prefetch' and metric = 'prefetch' and value > 0)
-- evaluable when: (select count(*) filter (metric = 'prefetch' and delta >= 0) > 0 from server_stat_delta where view = 'pg_stat_recovery_prefetch') or not exists (from server_stat where view = 'pg_stat_recovery_prefetch') | the counters of prefetching were reset in the capture
-- evaluable when: exists (from session_delta d join session s using (session_id) where s.backend_type = 'startup' and d.shared_blks_read is not null) or not exists (from server_stat where view = 'pg_stat_recovery_prefetch') | the reads of the startup process could not be read from its memory
-- wrong when: sessions of the standby read the same blocks in the moment between, so that replay found them in the cache
with counted as (
  select max(delta) filter (metric = 'prefetch') as calls, max(delta) filter (metric = 'skip_fpw') as skip_fpw, max(delta) filter (metric = 'hit') as hits,
         max(dt_s) filter (metric = 'prefetch') as dt_s, max(after) filter (metric = 'io_depth') as io_depth
  from server_stat_delta where view = 'pg_stat_recovery_prefetch'
),
startup as (select distinct session_id, pid from session where backend_type = 'startup'),
reading as (
  select count(distinct session_id) as processes, sum(d.shared_blks_read)::double as reads, sum(d.dt_ns) / 1e9 as seen_s, sum(d.cpu_run_ns) / 1e9 as cpu_s, min(d.ts - d.dt_ns) as ts_from, max(d.ts) as ts_to
  from session_delta d join startup using (session_id) where d.shared_blks_read is not null
),
kernel as (select max(delta) as stime_s from server_stat_delta where view = 'proc_stat' and metric = 'stime_s'),
-- A block that was asked for and was needed is read once. What was counted outside the window is taken off at the same rate.
waste as (
  select *, calls * least(seen_s / dt_s, 1) as asked, greatest(calls * least(seen_s / dt_s, 1) - reads, 0) as useless from counted cross join reading cross join kernel
),
about as (select ts_to - ts_from as window_ns from capture)
select 'PREFETCH-WASTE' as id, case when stime_s * useless / asked >= getvariable('waste_cpu_part') * window_ns / 1e9 then 'medium' else 'low' end as severity,
       'medium' as confidence, 'prefetching of replay' as subject,
       format('Replay asked the kernel for {:.0f} blocks ahead and read {:.0f}: at least {:.0f} % of these calls were useless{}{}', asked, reads, 100 * useless / asked,
              case when stime_s is null then '' else format('; they took at most {:.2f} s of its CPU time in the kernel', stime_s * useless / asked) end,
              case when skip_fpw > 0 then format('; {:.0f} blocks were passed over because their record has a page image', skip_fpw) else '' end) as statement,
       stime_s * useless / asked as cost_s, null::double as share_of_db_time, useless::bigint as samples, ts_from, ts_to,
       to_json([{asked: asked::bigint, reads: reads::bigint, useless: useless::bigint, skip_fpw: skip_fpw::bigint, hit: hits::bigint, io_depth: io_depth, stime_s: stime_s, cpu_s: round(cpu_s, 3)}]) as evidence
from waste cross join about
where processes = 1 and asked > 0 and seen_s >= getvariable('waste_covered') * dt_s and useless >= getvariable('waste_share') * asked and useless >= getvariable('waste_calls')
order by subject
