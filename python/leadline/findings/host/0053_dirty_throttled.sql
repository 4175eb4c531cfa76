-- id: DIRTY-THROTTLED
-- title: Writing processes are held back until dirty pages are on disk
-- question: Did the page cache hold so many dirty pages that the kernel stopped the processes that write, and was a checkpoint running?
-- domain: host
-- needs: host_stat
-- unit: seconds near the limit of dirty pages; seconds in which processes were seen held back
-- cost: wall time
-- threshold: dirty_seconds = 2 (seconds at the point where the kernel begins to hold back, or in which a process was seen held back)
-- threshold: held_high_part = 0.2 (of the window, processes added up: as much as a share of database time that is high)
-- threshold: checkpointer_busy_part = 0.5 (of the looks in a second: the checkpointer mostly worked in it)
-- threshold: confident_readings = 10 (readings of the counters)
-- threshold: named_processes = 3 (names told in the sentence; the evidence has more)
-- evaluable when: exists (from host_stat where metric = 'vmstat.nr_dirty_threshold') | the kernel does not tell its limits of dirty pages
-- silent unless: exists (from process_delta where state = 'D' and wchan like '%balance\_dirty%' escape '\') or (select max(value) filter (metric = 'vmstat.nr_dirty') + coalesce(max(value) filter (metric = 'vmstat.nr_writeback'), 0) >= (min(value) filter (metric = 'vmstat.nr_dirty_background_threshold') + min(value) filter (metric = 'vmstat.nr_dirty_threshold')) / 2 from host_stat) or getvariable('dirty_seconds') <= 0
-- wrong when: the writer is a copy or a backup that nobody waits for
with dirty as (
  select ts, max(value) filter (where metric = 'vmstat.nr_dirty') + coalesce(max(value) filter (where metric = 'vmstat.nr_writeback'), 0) as dirty,
         max(value) filter (where metric = 'vmstat.nr_dirty_threshold') as most,
         max(value) filter (where metric = 'vmstat.nr_dirty_background_threshold') as background
  from host_stat group by ts
),
near_limit as (  -- the kernel begins to hold writers back half way between its two limits (balance_dirty_pages)
  select ts, dirty, most, (ts - c.ts_from) // 1000000000 as second from dirty cross join capture c where dirty >= (background + most) / 2 and most > 0
),
held as (
  select u.ts, u.dt_ns, u.process_id, u.pid, u.comm, (u.ts - c.ts_from) // 1000000000 as second
  from process_use u cross join capture c
  where u.state = 'D' and u.wchan like '%balance\_dirty%' escape '\'
),
checkpointing as (
  select (s.ts - c.ts_from) // 1000000000 as second
  from session_sample s cross join capture c
  where s.backend_type = 'checkpointer'
  group by second having avg((s.wait_class <> 'Activity')::int) >= getvariable('checkpointer_busy_part')
),
bad as (select second from near_limit union select second from held),
writer as (
  select coalesce(u.comm, '?') as comm, min(u.pid) as pid, sum(u.write_bytes) as write_bytes
  from process_use u cross join capture c
  where (u.ts - c.ts_from) // 1000000000 in (select second from bad) and not u.kernel
  group by u.comm having sum(u.write_bytes) > 0
),
found as (
  select (select count(*) from bad) as seconds, (select count(*) from bad where second in (select second from checkpointing)) as in_checkpoint,
         (select count(distinct second) from near_limit) as near_seconds,
         (select max(dirty) from near_limit) as dirty, (select max(most) from near_limit) as most,
         (select sum(dt_ns) / 1e9 from held) as held_s, (select count(*) from held) as sightings,
         (select string_agg(format('{}{} {:.0f} MB', comm, case when pid is null then '' else format(' (pid {})', pid) end, write_bytes / 1048576.0), ', ' order by write_bytes desc, comm)
          from (from writer order by write_bytes desc, comm limit getvariable('named_processes')::int)) as writers,
         (select to_json(list({command: comm, pid: pid, held_s: held_s, sightings: sightings} order by held_s desc, pid)[:20])
          from (select comm, pid, sum(dt_ns) / 1e9 as held_s, count(*) as sightings from held group by comm, pid)) as evidence
)
select 'DIRTY-THROTTLED' as id, case when held_s >= getvariable('held_high_part') * c.window_s then 'high' when held_s > 0 then 'medium' else 'low' end as severity,
       case when sightings >= getvariable('confident_readings') then 'high' when sightings > 0 then 'medium' else 'low' end as confidence,
       'dirty pages of the host' as subject,
       format('{}{}{}{}',
              case when near_seconds > 0 then format('Dirty pages were near their limit for {} s: up to {:.0f} MB, of {:.0f} MB that are allowed', near_seconds, dirty / 256.0, most / 256.0)
                   else 'The limit of dirty pages was not seen to be near' end,
              case when held_s > 0 then format('; processes were held back for {:.1f} s ({} sightings)', held_s, sightings) else '; no process was seen held back' end,
              case when writers is not null then '; writing: ' || writers else '' end,
              case when in_checkpoint > 0 then format('; a checkpoint ran in {} of {} s', in_checkpoint, seconds) else '' end) as statement,
       held_s as cost_s, null::double as share_of_db_time, greatest(sightings, near_seconds) as samples, c.ts_from, c.ts_to, coalesce(evidence, '[]'::json) as evidence
from found cross join capture c
where seconds >= getvariable('dirty_seconds')
order by subject
