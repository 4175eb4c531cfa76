-- id: BACKEND-WRITES
-- title: Sessions write pages that the background writer should have written
-- question: How much time do sessions lose because they must write a dirty page before they can use its buffer?
-- domain: postgres
-- needs: server_stat, session_sample
-- unit: seconds in which sessions wrote pages of others: write_time of pg_stat_io with track_io_timing, else samples of DataFileWrite and DataFileFlush
-- cost: database time
-- threshold: min_written_part = 0.3 (of the pages that checkpointer, background writer and sessions wrote; some always fall to the sessions)
-- threshold: min_written_rate = 50 (pages a second; fewer cost nothing that can be measured)
-- threshold: min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- silent unless: exists (from server_stat_delta where delta > 0 and ((view = 'pg_stat_bgwriter' and metric like 'buffers_backend%') or (view = 'pg_stat_io' and metric in ('writes', 'fsyncs', 'extends') and object in ('client backend/relation/normal', 'background worker/relation/normal')))) or exists (from wait_time where lower(wait_event) = 'datafilewrite' and in_db_time)
-- wrong when: a cache is being filled for the first time, or one large change is written once
with number as (
  select view, split_part(object, '/', 1) as backend_type, split_part(object, '/', 3) as context, metric, delta, after, dt_s
  from server_stat_delta
  where view in ('pg_stat_bgwriter', 'pg_stat_checkpointer') or (view = 'pg_stat_io' and split_part(object, '/', 2) = 'relation')
),
counted as (  -- from 16 on pg_stat_io tells pages apart from files that grow and from the rings of COPY and VACUUM
  select max(dt_s) as dt_s,
         coalesce(bool_or(view = 'pg_stat_io'), false) as is_split,
         case when is_split then coalesce(sum(delta) filter (view = 'pg_stat_io' and metric = 'writes' and context = 'normal' and backend_type in ('client backend', 'background worker')), 0)
              else coalesce(max(delta) filter (metric = 'buffers_backend'), 0) end as written,
         case when is_split then coalesce(sum(delta) filter (view = 'pg_stat_io' and metric = 'fsyncs' and context = 'normal' and backend_type in ('client backend', 'background worker')), 0)
              else coalesce(max(delta) filter (metric = 'buffers_backend_fsync'), 0) end as fsyncs,
         coalesce(sum(delta) filter (view = 'pg_stat_io' and metric in ('write_time', 'fsync_time') and context = 'normal'
                                     and backend_type in ('client backend', 'background worker')), 0) / 1e3 as timed_s,
         coalesce(max(delta) filter (metric = 'buffers_clean'), 0) as cleaned,
         coalesce(max(delta) filter (metric in ('buffers_checkpoint', 'buffers_written')), 0) as checkpointed,
         coalesce(max(delta) filter (metric = 'maxwritten_clean'), 0) as stopped
  from number
),
wait as (
  select d.*, coalesce(regexp_matches(q.query, '^\s*(copy|vacuum|analyze|create\s|refresh|cluster|reindex|alter\s|checkpoint)', 'i'), false) as is_bulk, q.query
  from db_time d left join statement q using (statement_id)
  where d.wait_class = 'IO' and lower(d.wait_event) in ('datafilewrite', 'datafileflush', 'datafilesync')
    and d.backend_type in ('client backend', 'parallel worker', 'background worker')
),
by_statement as (
  select statement_id, query, sum(weight_s) as wait_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to
  from wait where not is_bulk group by statement_id, query
),
seen as (
  select coalesce(sum(wait_s), 0) as waited_s, coalesce(sum(samples), 0)::bigint as samples, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({statement_id: statement_id, query: left(regexp_replace(query, '\s+', ' ', 'g'), 120), wait_s: round(wait_s, 3), sessions: sessions}
                      order by wait_s desc, statement_id)[:20]) as waits
  from by_statement
),
about as (
  select c.tier, c.window_s, c.ts_from as window_from, c.ts_to as window_to, (select sum(weight_s) from db_time) as db_time_s,
         (select coalesce(sum(weight_s) filter (is_bulk), 0) from wait) as bulk_s,
         (select max(try_cast(setting as double)) from setting where name = 'bgwriter_lru_maxpages') as lru_maxpages,
         (select max(try_cast(setting as double)) from setting where name = 'bgwriter_delay') as delay_ms
  from capture c
),
-- Statistics reach the server's view when a transaction ends, and once a second at most: of a long one, only the session itself knows.
own as (
  select coalesce(sum(shared_blks_written), 0) as own_written from session_delta
  where session_id in (select session_id from wait where not is_bulk) and session_id not in (select session_id from wait where is_bulk)
),
whole as (
  select * replace (case when is_late then own_written else written end as written, is_split and not is_late as is_split)
  from (select *, own_written > 2 * written and samples >= getvariable('min_samples') as is_late from counted cross join seen cross join about cross join own)
),
found as (
  select *, case when 2 * timed_s >= waited_s and timed_s > 0 then timed_s else waited_s end as cost_s, cost_s / nullif(db_time_s, 0) as share,
         written / nullif(written + cleaned + checkpointed, 0) as part
  from whole
)
select 'BACKEND-WRITES' as id,
       case when fsyncs > 0 and severity_of(share, cost_s, window_s) = 'low' then 'medium' else severity_of(share, cost_s, window_s) end as severity,
       case when timed_s > 0 and cost_s = timed_s then 'high' else confidence_of(tier, samples) end as confidence,
       'pages written by sessions' as subject,
       format('Sessions wrote {:.0f} pages themselves{}, {:.0f} % of all that were written ({:.0f} by the background writer, {:.0f} by checkpoints); it took {}{:.1f} s ({:.1f} % of database time){}{}',
              written, case when is_split then '' else ' (those that make files longer are among them)' end, 100 * part, cleaned, checkpointed,
              case when timed_s > 0 and cost_s = timed_s then '' else 'about ' end, cost_s, 100 * share,
              case when timed_s > 0 and cost_s = timed_s then format(', {:.2f} ms each', 1e3 * timed_s / nullif(written + fsyncs, 0)) else '' end
              || case when lru_maxpages = 0 then '; the background writer is off (bgwriter_lru_maxpages = 0)'
                      when stopped > 0 then format('; it stopped {:.0f} times at bgwriter_lru_maxpages = {:.0f}', stopped, lru_maxpages) else '' end,
              case when fsyncs > 0 then format('; {:.0f} times a session had to flush a file itself, as the queue of the checkpointer was full', fsyncs) else '' end) as statement,
       cost_s, share as share_of_db_time, greatest(samples, 1) as samples, coalesce(ts_from, window_from) as ts_from, coalesce(ts_to, window_to) as ts_to,
       coalesce(waits, to_json([{written: written, fsyncs: fsyncs, cleaned: cleaned, checkpointed: checkpointed}])) as evidence,
       to_json({lru_pages: case when (lru_maxpages = 0 or stopped > 0) and dt_s > 0
                                then least(greatest(2 * (written + cleaned) / dt_s * coalesce(delay_ms, 200) / 1e3, 2 * lru_maxpages, 100), 100000)::bigint end,
                fsyncs: fsyncs > 0, is_behind: lru_maxpages > 0 and stopped = 0}) as facts
from found
where (fsyncs > 0 or (written >= getvariable('min_written_rate') * dt_s and part >= getvariable('min_written_part')))
  and (fsyncs > 0 or share >= getvariable('min_share'))
  and (samples >= getvariable('min_samples') or (timed_s > 0 and cost_s = timed_s) or fsyncs > 0)
  and (is_split or fsyncs > 0 or waited_s >= bulk_s)
order by subject
