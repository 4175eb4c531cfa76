-- id: TEMP-SPILL
-- title: A statement spills to temporary files
-- question: Which statements write temporary files because their sorts and hashes do not fit into work_mem, and how much?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited for reads and writes of temporary files (BufFileRead, BufFileWrite); the CPU time of the extra work is not counted
-- cost: database time
-- threshold: min_spill_bytes = 16777216 (16 MB in the window, four times the default work_mem; smaller spills stay in the page cache)
-- threshold: min_share = 0.02 (2 % of database time in waits for temporary files)
-- threshold: min_samples = 10 (for the share; with fewer, the sampling error is as large as the number)
-- threshold: spill_medium_mb_per_s = 10 (megabytes per second written by one statement; a tenth of what an ordinary disk can write)
-- silent unless: exists (from session_delta where temp_blks_written > 0 or temp_blks_read > 0) or exists (from wait_time where wait_class = 'IO' and lower(wait_event) like 'buffile%')
-- wrong when: the statement sorts or hashes more data than any work_mem could hold
with base as (
  select sum(weight_s) as db_time_s from db_time
),
block as (select block_bytes_of(max(setting)) as block_bytes from setting where name = 'block_size'),
spill as materialized (
  select session_id, ts, dt_ns, temp_blks_written, temp_blks_read from session_delta where temp_blks_written > 0 or temp_blks_read > 0
),
running as (  -- which statement a session mostly ran in an interval of its counters
  select d.session_id, d.ts, mode(s.statement_id order by s.statement_id) as statement_id
  from (select ts, session_id, statement_id from session_sample where state = 'active' and session_id in (select session_id from spill)) s
  asof join spill d on d.session_id = s.session_id and s.ts <= d.ts
  where s.ts > d.ts - d.dt_ns
  group by d.session_id, d.ts
),
written as (
  select coalesce(r.statement_id, 0) as statement_id, d.session_id, sum(d.temp_blks_written) as blocks_written,
         sum(d.temp_blks_read) as blocks_read, min(d.ts - d.dt_ns) as ts_from, max(d.ts) as ts_to
  from spill d left join running r on r.session_id = d.session_id and r.ts = d.ts
  group by all
),
waited as (
  select coalesce(statement_id, 0) as statement_id, session_id, sum(weight_s) as wait_s, sum(samples)::bigint as samples, min(ts) as ts_from, max(ts) as ts_to
  from session_sample
  where in_db_time and wait_class = 'IO' and lower(wait_event) in ('buffileread', 'buffilewrite')
  group by all
),
part as (
  select coalesce(w.statement_id, t.statement_id) as statement_id, coalesce(w.session_id, t.session_id) as session_id,
         coalesce(w.blocks_written, 0) * b.block_bytes as written_bytes, coalesce(w.blocks_read, 0) * b.block_bytes as read_bytes,
         coalesce(t.wait_s, 0) as wait_s, coalesce(t.samples, 0) as samples,
         least(w.ts_from, t.ts_from) as ts_from, greatest(w.ts_to, t.ts_to) as ts_to
  from written w full join waited t on t.statement_id = w.statement_id and t.session_id = w.session_id
  cross join block b
),
who as (select session_id, any_value(pid) as pid, any_value(application_name) as application_name from session_sample group by session_id),
found as (
  select statement_id, sum(written_bytes)::bigint as written_bytes, sum(read_bytes)::bigint as read_bytes, sum(wait_s) as cost_s,
         sum(samples)::bigint as samples, count(*) as sessions, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({pid: pid, application_name: application_name, written_bytes: written_bytes, read_bytes: read_bytes,
                       wait_s: round(wait_s, 3)} order by written_bytes desc, pid)[:20]) as evidence
  from part left join who using (session_id) group by statement_id
),
memory as (
  select max(setting || case when unit in ('', 'kB') then ' kB' else ' x ' || unit end) as work_mem from setting where name = 'work_mem'
),
cost as (
  select f.*, f.cost_s / b.db_time_s as share, m.work_mem, left(regexp_replace(s.query, '\s+', ' ', 'g'), 160) as query
  from found f cross join base b cross join memory m left join statement s using (statement_id)
)
select 'TEMP-SPILL' as id,
       case when severity_of(share, cost_s, c.window_s) = 'low' and written_bytes >= getvariable('spill_medium_mb_per_s') * 1048576 * c.window_s then 'medium'
            else severity_of(share, cost_s, c.window_s) end as severity,
       case when written_bytes > 0 and statement_id <> 0 then 'high' else confidence_of('counted', samples) end as confidence,
       case when statement_id = 0 then 'statements not known' else 'statement ' || statement_id end as subject,
       format('{} session{} {}waited {:.1f} s ({:.1f} % of database time) for temporary files{}{}',
              sessions, case when sessions = 1 then '' else 's' end,
              case when written_bytes > 0 or read_bytes > 0
                   then format('spilled {:.1f} MB to temporary files, read {:.1f} MB back and ', written_bytes / 1048576.0, read_bytes / 1048576.0) else '' end,
              cost_s, 100 * share,
              case when work_mem is null then '' else ' (work_mem of the server ' || work_mem || ')' end,
              case when query is null then '' else ': ' || query end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from cost cross join (select tier, window_s from capture) c
where written_bytes >= getvariable('min_spill_bytes') or (share >= getvariable('min_share') and samples >= getvariable('min_samples'))
order by cost_s desc, written_bytes desc, subject
