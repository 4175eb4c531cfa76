-- id: MISSING-INDEX
-- title: Statements read a whole table again and again and keep few of its rows
-- question: Which tables are read from end to end for a few rows, by which statements, and how much database time do these take?
-- domain: postgres
-- needs: server_stat, session_sample, tick
-- unit: seconds of database time of the statements (an index saves most of them, not all)
-- cost: database time
-- threshold: scan_rows = 10000 (rows read by each scan; a smaller table is read as fast as an index)
-- threshold: scan_bytes = 1000000 (size of the table: some hundred pages)
-- threshold: scan_kept = 0.1 (rows returned or changed in proportion to rows read; above it a sequential scan is the right plan)
-- threshold: scan_blocks = 0.5 (blocks of one call in proportion to the table; with fewer the statement does not read it whole)
-- threshold: scan_min_sessions = 0.05 (active sessions on average; less is not worth an index)
-- threshold: scan_calls = 2.5 (calls in the window: a report that runs once or twice is no case for an index)
-- threshold: scan_min_samples = 10 (with fewer, the sampling error is large)
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from server_stat_delta where view = 'pg_stat_user_tables' and metric = 'seq_tup_read' and delta >= getvariable('scan_rows'))
-- wrong when: the statement needs the whole table for one row of its result, or its condition is true for most rows
with scanned as (
  select relid, datname, relname, table_name, size_bytes, seq_scans, seq_rows, idx_scans, live, inserted + updated + deleted as written, dt_s
  from table_stat
  where not is_catalog and not is_toast and seq_scans >= getvariable('scan_calls') and seq_rows >= getvariable('scan_rows') * seq_scans and size_bytes >= getvariable('scan_bytes')
),
sampled as (
  select statement_id, sum(weight_s) as seconds, count(*) as samples, min(ts) as ts_from, max(ts) as ts_to, any_value(datname) as datname,
         count(distinct (session_id, round(query_age_s - ts / 1e9, 3))) as runs
  from db_time where backend_type in ('client backend', 'parallel worker') group by statement_id
),
-- one that looks for rows: a full report has no condition, or sums up what it reads
seeker as (
  select s.*, q.query, lower(q.query) as plain, regexp_extract_all(lower(q.query), '[a-z0-9_$]+') as words, t.calls, t.result_rows, t.blocks,
         regexp_matches(q.query, '\b(join|union)\b', 'i') as is_join
  from sampled s join statement q using (statement_id) left join statement_stat t using (statement_id)
  where regexp_matches(q.query, '^\s*(select|update|delete|with)\b', 'i') and regexp_matches(q.query, '\bwhere\b', 'i')
    and (regexp_matches(q.query, '[^<>!=]=\s*(any\s*\(|\$|''|[0-9-])', 'i')
         or not regexp_matches(q.query, '\b(count|sum|avg|min|max|array_agg|string_agg|json_agg|jsonb_agg)\s*\(|\bgroup\s+by\b|\bdistinct\b', 'i'))
),
about as (select max(try_cast(setting as bigint)) as block_size from setting where name = 'block_size'),
pair as (  -- a statement is of the table of which it can have read most; blocks tell whether it can have read it whole
  select s.*, t.* exclude (datname), t.datname as of_database,
         case when s.calls > 0 then s.blocks / s.calls / nullif(t.size_bytes / block_bytes_of(a.block_size), 0) end as blocks_share,
         row_number() over (partition by s.statement_id order by t.seq_rows desc, t.table_name) as place
  from seeker s cross join about a join scanned t on s.datname = t.datname and (list_contains(s.words, lower(t.relname)) or contains(s.query, '"' || t.relname || '"'))
),
known as (
  select * from pair
  where place = 1 and (blocks_share is null or blocks_share >= getvariable('scan_blocks'))
    -- without its counters it can have used an index, if any index was used at all
    and case when result_rows is null then coalesce(idx_scans, 0) = 0 else result_rows <= getvariable('scan_kept') * calls * seq_rows / seq_scans end
    and coalesce(calls, runs) >= getvariable('scan_calls')
),
found as (
  select table_name, any_value(of_database) as datname, any_value(size_bytes) as size_bytes, any_value(seq_scans) as seq_scans, any_value(seq_rows) as seq_rows, any_value(dt_s) as dt_s,
         sum(seconds) as cost_s, sum(samples) as samples, min(ts_from) as ts_from, max(ts_to) as ts_to, count(*) as statements, arg_max(query, seconds) as query,
         bool_and(result_rows is not null) as is_counted, bool_or(is_join) as is_join, sum(result_rows) as result_rows, sum(calls) as calls,
         to_json(list({relation: table_name, statement_id: statement_id, query: left(regexp_replace(query, '\s+', ' ', 'g'), 200), db_time_s: round(seconds, 3), calls: calls,
                       result_rows: result_rows, blocks_of_a_call_in_tables: round(blocks_share, 2)} order by seconds desc, statement_id)[:20]) as evidence
  from known group by table_name
)
select 'MISSING-INDEX' as id,
       severity_of(cost_s / b.db_time_s, cost_s, c.window_s) as severity,
       case when is_counted and not is_join then confidence_of(c.tier, samples) else 'low' end as confidence, 'table ' || table_name as subject,
       format('{} of database {} ({:.1f} MB) was read from end to end {:.0f} times in {:.0f} s, {:.0f} rows each time{}; {} that name{} it took {:.1f} s of database time, most: {}',
              table_name, datname, size_bytes / 1048576.0, seq_scans, dt_s, seq_rows / seq_scans,
              case when is_counted then format(', for {:.1f} rows of a result', result_rows / calls) else '' end,
              if(statements = 1, 'one statement', format('{} statements', statements)), if(statements = 1, 's', ''), cost_s, left(regexp_replace(query, '\s+', ' ', 'g'), 160)) as statement,
       cost_s, cost_s / b.db_time_s as share_of_db_time, samples::bigint as samples, f.ts_from, f.ts_to, evidence,
       to_json({relation: table_name, is_guess: not is_counted}) as facts
from found f cross join (select sum(weight_s) as db_time_s from db_time) b cross join capture c
where samples >= getvariable('scan_min_samples') and cost_s >= getvariable('scan_min_sessions') * c.window_s
order by cost_s desc, subject
