-- id: FETCH-SIZE
-- title: A client reads a large result a few rows at a time
-- question: Which session fetches one result in many small parts and mostly waits for round trips?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds between the parts of a result, while the server waited for the next request
-- cost: round trips
-- threshold: fetch_part_s = 0.07 (seconds of the server's work for each part; with more, each part is large enough)
-- threshold: fetch_gap_share = 0.3 (a third of the reading time goes to round trips)
-- threshold: fetch_min_s = 1.0 (seconds in the window; with less there are too few samples)
-- threshold: fetch_gap_s = 0.5 (seconds; a longer pause is the client's own work, not a round trip)
-- threshold: fetch_snapshot_s = 1.0 (seconds; a snapshot this old is older than any gap that counts here)
-- threshold: samples_high = 500 (a sampling error of 5 %; the estimate of gaps uses medians)
-- threshold: samples_medium = 100 (a sampling error of 10 %)
-- threshold: old_snapshot_part = 0.2 (share of the samples in gaps; by chance, fewer show an old snapshot)
-- threshold: small_part_gaps = 0.9 (gaps per sample; nearly every sample hits a different gap, so the gaps are short and the parts small)
-- threshold: gap_part = 0.2 (share of the session's gaps; a statement with fewer is not the reason why the session waits)
-- threshold: fetch_medium_sessions = 0.5 (sessions waiting between parts on average)
-- minimum: tick 30
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where state = 'idle in transaction' and wait_event = 'ClientRead')
-- wrong when: the application repeats one small query by key in a repeatable read transaction, which looks the same from outside
with about as (select window_s, tier, cpu_count from capture),
observed as (select sum(period_ns) / 1e9 as observed_s from tick),
pausing as (  -- of sessions without a gap nothing is said
  select distinct session_id from session_sample where state = 'idle in transaction' and wait_event = 'ClientRead'
),
reading as materialized (
  select s.ts, s.session_id, s.pid, s.application_name, s.client_addr, s.usename, s.state, s.statement_id, s.weight_s, s.state_age_s,
         t.next_xid - s.xmin_age as xmin, s.state_change, s.state = 'idle in transaction' and s.wait_event = 'ClientRead' as in_gap
  from session_sample s join tick t using (ts)
  where s.session_id in (select session_id from pausing)
    and s.backend_type = 'client backend' and s.xact_start is not null and s.state in ('active', 'idle in transaction')
),
long_pause as (
  select session_id, state_change from reading where in_gap group by all having max(state_age_s) > getvariable('fetch_gap_s')
),
newest_snapshot as (  -- the highest xmin any session had shown by then: a snapshot taken later has no lower one
  select s.ts, max(max(t.next_xid - s.xmin_age)) over (order by s.ts) as newest_xmin
  from session_sample s join tick t using (ts)
  where s.xmin_age < 2147483648 group by s.ts
),
part as (
  select r.*, r.xmin < n.newest_xmin as old_snapshot
  from (select * from reading anti join long_pause using (session_id, state_change)) r
  asof left join newest_snapshot n on r.ts - getvariable('fetch_snapshot_s') * 1e9 >= n.ts
),
cursor as (  -- FETCH by name, or the same statement goes on with a snapshot older than any gap, or with nothing but Execute: a portal is open
  select p.session_id, p.statement_id, any_value(p.pid) as pid, any_value(p.application_name) as application_name,
         any_value(p.client_addr) as client_addr, any_value(p.usename) as usename, any_value(q.query) as query,
         sum(p.weight_s) as read_s, sum(p.weight_s) filter (where p.in_gap) as gap_s, count(*) filter (where p.in_gap) as samples,
         2 * median(p.state_age_s) filter (where p.in_gap) as typical_gap_s,  -- a sample falls into the middle of a gap
         count(distinct p.state_change) filter (where p.in_gap) as seen_gaps,
         min(p.ts) as ts_from, max(p.ts) as ts_to
  from part p left join statement q using (statement_id)
  group by p.session_id, p.statement_id
  having bool_or(q.query is not null and regexp_matches(q.query, '^\s*(fetch|move)\b', 'i'))
      or ((avg(coalesce(p.old_snapshot, false)::int) filter (where p.in_gap) >= getvariable('old_snapshot_part')
           or p.session_id in (select session_id from portal_session))
          and coalesce(bool_and(not regexp_matches(q.query, '^\s*(insert|update|delete|merge|begin|start|commit|end|set|savepoint|release)\b', 'i')), true))
),
gap_of_session as (select session_id, sum(weight_s) as all_gaps_s from part where in_gap group by session_id),
trip as (  -- of the whole session; each round trip reports its status twice or more and gives up the CPU once: both bound it
  select session_id, least(sum(status_changes) / 2, sum(voluntary_ctxt_switches)) as counted_trips from session_delta group by session_id
),
small_part as (  -- over SQL the ages are off by the time of the query: there each sample must show another gap
  select c.* replace (case when a.tier = 'shm' then greatest(typical_gap_s, 1e-5) end as typical_gap_s), t.counted_trips,
         case when a.tier = 'shm' then gap_s / greatest(typical_gap_s, 1e-5) end as seen_trips,
         case when a.tier = 'shm' then read_s - gap_s <= getvariable('fetch_part_s') * gap_s / greatest(typical_gap_s, 1e-5)
              else seen_gaps >= getvariable('small_part_gaps') * samples end as is_small
  from cursor c cross join about a join gap_of_session g using (session_id) left join trip t using (session_id)
  where c.gap_s >= getvariable('gap_part') * g.all_gaps_s
),
slow_fetch as (
  select * from small_part
  where is_small and gap_s >= getvariable('fetch_gap_share') * read_s
),
client as (  -- the counted trips are of the whole session: not added up over its statements
  select application_name, client_addr, count(distinct session_id) as sessions, min(pid) as pid, sum(read_s) as read_s, sum(gap_s) as gap_s,
         sum(seen_trips) as seen_trips, sum(seen_gaps)::bigint as seen_gaps, sum(samples)::bigint as samples,
         arg_max(query, gap_s order by query) as query, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({pid: pid, usename: usename, statement_id: statement_id, query: left(regexp_replace(query, '\s+', ' ', 'g'), 200),
                       reading_s: round(read_s, 3), between_parts_s: round(gap_s, 3), round_trips: round(coalesce(counted_trips, seen_trips)),
                       typical_gap_ms: round(1000 * typical_gap_s, 3), samples: samples} order by gap_s desc, pid, statement_id)[:20]) as evidence
  from slow_fetch group by all
),
rows_per_call as (  -- pg_stat_statements counts the rows of each FETCH (14 and later)
  select try_cast(object as bigint) as statement_id,
         max(delta) filter (where metric = 'rows') / nullif(max(delta) filter (where metric = 'calls'), 0) as part_rows
  from server_stat_delta where view = 'pg_stat_statements' and metric in ('rows', 'calls') group by object
),
size as (
  select f.application_name, f.client_addr, sum(r.part_rows * f.gap_s) / sum(f.gap_s) as part_rows
  from slow_fetch f join rows_per_call r using (statement_id)
  where regexp_matches(f.query, '^\s*(fetch|move)\b', 'i') group by all
),
counted as (
  select application_name, client_addr, sum(counted_trips) as counted_trips
  from (select distinct application_name, client_addr, session_id, counted_trips from slow_fetch) group by all
)
select 'FETCH-SIZE' as id,
       case when gap_s >= getvariable('fetch_medium_sessions') * c.window_s then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples, high := getvariable('samples_high'), medium := getvariable('samples_medium')) as confidence,
       'application ' || case when application_name = '' then 'without name' else application_name end || ' from ' || client_addr as subject,
       format('{} of application {} read {} in {} round trips{}: {:.1f} s of {:.1f} s ({:.0f} %) went to waiting for the next request{}{}',
              case when sessions = 1 then 'pid ' || pid else sessions || ' sessions' end,
              case when application_name = '' then 'without name' else application_name end,
              case when sessions = 1 then 'its result' else 'their results' end,
              case when trips is null then format('more than {}', seen_gaps) else format('about {:.0f}', trips) end,
              case when trips is null then '' else format(' ({:.0f} a second{})', trips / read_s,
                case when part_rows is not null then format(', {:.1f} rows each', part_rows) else '' end) end,
              gap_s, read_s, 100 * gap_s / read_s, case when trips is null then '' else format(', {:.1f} ms each', 1000 * gap_s / trips) end,
              case when query is not null then '; statement: ' || left(regexp_replace(query, '\s+', ' ', 'g'), 120) else '' end) as statement,
       gap_s as cost_s, null::double as share_of_db_time, samples, ts_from, ts_to, evidence
from (select * exclude (counted_trips), coalesce(counted_trips, seen_trips) as trips from client join counted using (application_name, client_addr))
  left join size using (application_name, client_addr) cross join about c
where gap_s >= getvariable('fetch_min_s')
order by cost_s desc, subject
