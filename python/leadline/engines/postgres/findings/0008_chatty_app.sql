-- id: CHATTY-APP
-- title: Transactions spend most of their time waiting for the client's next statement
-- question: Which application keeps its transactions open mainly for round trips, and how much time would sending statements together save?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds that transactions were open while the server waited for the client
-- cost: round trips
-- threshold: chatty_share = 0.5 (half of the transaction's time; above it the client and the network cost more than the database)
-- threshold: chatty_min_sessions = 0.1 (sessions waiting on average; fewer are not worth a change of code)
-- threshold: chatty_min_s = 1.0 (seconds in the window; with less there are too few samples)
-- threshold: chatty_gaps = 3 (round trips inside one transaction; with fewer there is nothing to send together)
-- threshold: chatty_gap_s = 0.5 (seconds; a longer pause is client work, not a round trip. IDLE-IN-XACT reports those that do harm)
-- threshold: cursor_snapshot_s = 1.0 (seconds, as in FETCH-SIZE, which reports the gaps between the parts of one result)
-- threshold: samples_high = 500 (a sampling error of 5 %; the estimate of gaps uses medians)
-- threshold: samples_medium = 100 (a sampling error of 10 %)
-- threshold: old_snapshot_part = 0.2 (share of the samples in gaps; by chance, fewer show an old snapshot. As in FETCH-SIZE)
-- threshold: cursor_part = 0.5 (share of the time in gaps; when more of it lies between parts of one result, the session is left to FETCH-SIZE)
-- threshold: chatty_medium_sessions = 1 (sessions waiting for their clients on average; one connection could be saved)
-- minimum: tick 30
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- wrong when: the client does work between its statements that the server cannot do for it
with about as (select window_s, tier, cpu_count from capture),
observed as (select sum(period_ns) / 1e9 as observed_s from tick),
transaction as materialized (
  select s.ts, s.session_id, s.pid, s.application_name, s.client_addr, s.usename, s.state, s.statement_id, s.weight_s,
         s.state_age_s, s.xact_age_s, s.xact_start, t.next_xid - s.xmin_age as xmin, s.state_change,
         s.state = 'idle in transaction' and s.wait_event = 'ClientRead' as in_gap
  from session_sample s join tick t using (ts)
  where s.backend_type = 'client backend' and s.xact_start is not null and s.state in ('active', 'fastpath function call', 'idle in transaction')
),
long_pause as (
  select session_id, state_change from transaction where in_gap group by all having max(state_age_s) > getvariable('chatty_gap_s')
),
step as (  -- without the long pauses: the client's statements and the short gaps between them
  select t.* from transaction t anti join long_pause l using (session_id, state_change)
),
newest_snapshot as (  -- the highest xmin any session had shown by then: a snapshot taken later has no lower one
  select s.ts, max(max(t.next_xid - s.xmin_age)) over (order by s.ts) as newest_xmin
  from session_sample s join tick t using (ts)
  where s.xmin_age < 2147483648 group by s.ts
),
cursor_gap as (  -- FETCH, a snapshot older than any gap, or nothing but Execute: the parts of one result
  select g.session_id, g.statement_id, sum(g.weight_s) as gap_s,
         bool_or(q.query is not null and regexp_matches(q.query, '^\s*(fetch|move)\b', 'i'))
           or ((avg(coalesce(g.xmin < n.newest_xmin, false)::int) >= getvariable('old_snapshot_part')
                or g.session_id in (select session_id from portal_session))
               and coalesce(bool_and(not regexp_matches(q.query, '^\s*(insert|update|delete|merge|begin|start|commit|end|set|savepoint|release)\b', 'i')), true)) as is_cursor
  from (select * from step where in_gap) g
  asof left join newest_snapshot n on g.ts - getvariable('cursor_snapshot_s') * 1e9 >= n.ts
  left join statement q using (statement_id)
  group by g.session_id, g.statement_id
),
fetcher as (  -- FETCH-SIZE speaks of these
  select session_id from cursor_gap group by session_id
  having coalesce(sum(gap_s) filter (where is_cursor), 0) >= getvariable('cursor_part') * sum(gap_s)
),
talk as (select s.* from step s anti join fetcher f using (session_id)),
trip as (  -- of the whole session; each round trip reports its status twice or more and gives up the CPU once: both bound it
  select session_id, least(sum(status_changes) / 2, sum(voluntary_ctxt_switches)) as round_trips from session_delta group by session_id
),
client as (  -- over SQL the ages are off by the time of the query: there only what was seen counts
  select application_name, client_addr, sum(weight_s) as open_s, sum(weight_s) filter (where in_gap) as gap_s,
         count(distinct session_id) as sessions, count(*) filter (where in_gap) as samples, min(ts) as ts_from, max(ts) as ts_to,
         -- a sample falls into the middle of a gap
         case when tier = 'shm' then greatest(2 * median(state_age_s) filter (where in_gap), 1e-5) end as typical_gap_s,
         case when tier = 'shm' then 2 * median(xact_age_s) end as typical_xact_s,
         count(distinct (session_id, state_change)) filter (where in_gap) / count(distinct (session_id, xact_start)) as seen_gaps
  from talk cross join about group by application_name, client_addr, tier
),
counted as (  -- a pooler gives one connection to several applications
  select application_name, client_addr, sum(round_trips * part) as round_trips
  from (select application_name, client_addr, session_id, sum(weight_s) / sum(sum(weight_s)) over (partition by session_id) as part from talk group by application_name, client_addr, session_id)
  left join trip using (session_id)
  group by application_name, client_addr
),
estimated as (  -- one round trip takes the gap and the statement's own time
  select c.*, k.round_trips, gap_s / open_s as gap_share,
         greatest(1, seen_gaps, typical_xact_s * (gap_s / open_s) / typical_gap_s) as gaps
  from client c join counted k using (application_name, client_addr)
),
spent as (
  select application_name, client_addr, usename, statement_id, sum(weight_s) as gap_s, count(*) as samples, count(distinct session_id) as sessions
  from talk where in_gap group by all
),
proof as (
  select application_name, client_addr,
         to_json(list({after_statement_id: statement_id, after_statement: left(regexp_replace(q.query, '\s+', ' ', 'g'), 200), usename: usename,
                       gap_s: round(gap_s, 3), sessions: sessions, samples: samples} order by gap_s desc, statement_id, usename)[:20]) as evidence
  from spent left join statement q using (statement_id) group by all
)
select 'CHATTY-APP' as id,
       case when gap_s >= getvariable('chatty_medium_sessions') * c.window_s then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples, high := getvariable('samples_high'), medium := getvariable('samples_medium')) as confidence,
       'application ' || case when application_name = '' then 'without name' else application_name end || ' from ' || client_addr as subject,
       format('{} session{} of application {} held transactions open for {:.1f} s of which {:.1f} s ({:.0f} %) waiting for the next statement: {} per transaction{}; sending them together would save up to {:.1f} s',
              sessions, case when sessions = 1 then '' else 's' end,
              case when application_name = '' then 'without name' else application_name end,
              open_s, gap_s, 100 * gap_share,
              case when typical_gap_s is null then format('at least {:.1f} gaps', gaps) else format('about {:.1f} gaps of {:.1f} ms', gaps, 1000 * typical_gap_s) end,
              case when round_trips is not null then format(', about {:.0f} round trips a second', round_trips / observed_s) else '' end,
              gap_s * (1 - 1 / gaps)) as statement,
       gap_s as cost_s, null::double as share_of_db_time, samples, ts_from, ts_to, evidence
from estimated join proof using (application_name, client_addr) cross join observed cross join about c
where gap_share >= getvariable('chatty_share') and gaps >= getvariable('chatty_gaps')
  and gap_s >= greatest(getvariable('chatty_min_s'), getvariable('chatty_min_sessions') * observed_s)
order by cost_s desc, subject
