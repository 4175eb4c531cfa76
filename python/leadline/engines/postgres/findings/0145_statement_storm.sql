-- id: STATEMENT-STORM
-- title: An application sends the same short statement again and again (N+1)
-- question: Which application runs one statement over and over, each in a transaction of its own, and how much of its time goes to round trips?
-- domain: postgres
-- needs: session_sample, session_delta, tick
-- unit: seconds that sessions were idle for a moment between two runs of the same statement; not database time
-- cost: round trips
-- threshold: storm_rate = 50 (statements a second of one connection; a person or a job that polls sends fewer)
-- threshold: storm_gap_s = 0.05 (seconds idle at most; a longer pause is no loop)
-- threshold: storm_same = 0.8 (of the samples of the connection: the same statement)
-- threshold: storm_idle = 0.5 (of the connection's time in the loop: the application waits more for round trips than for the server)
-- threshold: storm_in_transaction = 0.05 (of its samples; loops inside a transaction are CHATTY-APP)
-- threshold: storm_min_s = 1.0 (seconds in the window; with less there are too few samples)
-- threshold: storm_min_sessions = 0.1 (sessions idle on average; fewer are not worth a change of code)
-- threshold: storm_trip_part = 0.5 (of the gap: the network takes most of it)
-- threshold: storm_trip_us = 200 (microseconds of a round trip: longer than within a host)
-- threshold: samples_high = 500 (a sampling error of 5 %)
-- minimum: tick 30
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- wrong when: the application cannot know the values of the next statement before it has the answer
with about as (select window_s, tier from capture),
observed as (select sum(period_ns) / 1e9 as observed_s from tick),
step as (  -- the end of a transaction, or what a pooler sets and resets between two clients, is not what the application wants to know
  select s.session_id, s.pid, s.ts, s.application_name, s.client_addr, s.usename, s.datname, s.state, s.weight_s, s.state_age_s,
         case when not coalesce(regexp_matches(q.query, '(?i)^\s*(begin|start\s+transaction|commit|end|rollback|abort|discard|set|reset|deallocate)\b[^;]*;?\s*$'), false) then s.statement_id end as statement_id,
         s.state = 'idle' and s.wait_event = 'ClientRead' and s.state_age_s <= getvariable('storm_gap_s') as is_gap
  from session_sample s left join statement q using (statement_id) where s.backend_type = 'client backend'
),
loop as (  -- a long pause is not a part of it
  select * from step where is_gap or state <> 'idle'
),
most as (  -- a pooler gives one connection to one application after another, and tells the server the name of each
  select session_id, application_name, arg_max(statement_id, seconds order by statement_id) as statement_id, max(seconds) as same_s, sum(seconds) as all_s
  from (select session_id, application_name, statement_id, sum(weight_s) as seconds from loop where statement_id is not null group by all)
  group by session_id, application_name
),
part as (select session_id, application_name, sum(weight_s) / sum(sum(weight_s)) over (partition by session_id) as part from loop group by session_id, application_name),
queued as (  -- waiting for a CPU while the state still says idle is database time
  select session_id, sum(weight_s) as hidden_s from db_time where from_counter and state = 'idle' group by session_id
),
trip as (  -- each statement reports the status twice or more, and gives up the CPU once: both bound it
  select session_id, least(sum(status_changes) / 2, sum(voluntary_ctxt_switches)) / (sum(dt_ns) / 1e9) as per_s from session_delta group by session_id
),
network as (
  select s.session_id, median(t.rtt) as rtt_us, min(t.min_rtt) as min_rtt_us from session_socket s join tcp_sample t using (cookie) group by s.session_id
),
looping as (
  select l.session_id, any_value(l.pid) as pid, l.application_name, any_value(l.client_addr) as client_addr, any_value(l.usename) as usename,
         m.statement_id, sum(l.weight_s) as loop_s, greatest(sum(l.weight_s) filter (l.is_gap) - coalesce(any_value(q.hidden_s * p.part), 0), 0) as gap_s, count(*) filter (l.is_gap) as samples,
         2 * median(l.state_age_s) filter (l.is_gap) as typical_gap_s, any_value(t.per_s * p.part) as per_s, any_value(n.min_rtt_us) as min_rtt_us, any_value(n.rtt_us) as rtt_us,
         min(l.ts) filter (l.is_gap) as ts_from, max(l.ts) filter (l.is_gap) as ts_to,
         sum(l.weight_s) filter (l.state like 'idle in transaction%') as open_s
  from loop l join most m using (session_id, application_name) join part p using (session_id, application_name) join trip t using (session_id) left join queued q using (session_id) left join network n using (session_id)
  where m.same_s >= getvariable('storm_same') * m.all_s
  group by l.session_id, l.application_name, m.statement_id
),
chosen as (
  select * from looping
  where per_s >= getvariable('storm_rate') and gap_s >= getvariable('storm_idle') * loop_s and coalesce(open_s, 0) < getvariable('storm_in_transaction') * loop_s
),
calls as (  -- what the server counts, where it has pg_stat_statements
  select try_cast(object as bigint) as statement_id, max(delta) / max(dt_s) as per_s from server_stat_delta
  where view = 'pg_stat_statements' and metric = 'calls' and delta > 0 group by object
),
found as (
  select application_name, client_addr, statement_id, count(*) as sessions, sum(gap_s) as cost_s, sum(loop_s) as loop_s, sum(samples)::bigint as samples, sum(per_s) as per_s,
         median(typical_gap_s) as typical_gap_s, min(min_rtt_us) as min_rtt_us, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({pid: pid, usename: usename, statements_per_s: round(per_s, 1), gap_s: round(gap_s, 3), rtt_us: rtt_us} order by gap_s desc, pid)[:20]) as evidence
  from chosen group by all
),
rated as (  -- the server counts a statement once for all that run it
  select f.*, c.per_s * f.per_s / sum(f.per_s) over (partition by statement_id) as counted_per_s, count(*) over (partition by statement_id) = 1 as is_alone
  from found f left join calls c using (statement_id)
)
select 'STATEMENT-STORM' as id,
       case when min_rtt_us >= getvariable('storm_trip_us') and min_rtt_us / 1e6 >= getvariable('storm_trip_part') * f.cost_s / nullif(coalesce(f.counted_per_s, f.per_s) * window_s, 0) then 'medium' else 'low' end as severity,
       case when tier = 'shm' and samples >= getvariable('samples_high') then 'high' else 'medium' end as confidence,
       'application ' || case when application_name = '' then 'without name' else application_name end || ' from ' || client_addr || ', statement ' || f.statement_id as subject,
       format('Application {} from {} ran one statement {}{:.0f} times a second on {} connection{}, each time in a transaction of its own, and spent {:.1f} of {:.1f} s outside the database between two runs: {:.2f} ms each{}. Statement: {}',
              case when application_name = '' then 'without name' else application_name end, client_addr, case when f.counted_per_s is not null and is_alone then '' else 'about ' end, coalesce(f.counted_per_s, f.per_s),
              sessions, case when sessions = 1 then '' else 's' end, f.cost_s, f.loop_s, 1e3 * f.cost_s / (coalesce(f.counted_per_s, f.per_s) * window_s),
              case when min_rtt_us is null then '' else format(', of which the network takes at least {:.2f} ms', min_rtt_us / 1e3) end,
              left(regexp_replace(coalesce(q.query, 'not known'), '\s+', ' ', 'g'), 120)) as statement,
       f.cost_s, null::double as share_of_db_time, samples, f.ts_from, f.ts_to, evidence,
       to_json({application: case when application_name = '' then 'the application that has no name' else application_name end, rate: round(coalesce(f.counted_per_s, f.per_s))::bigint,
                rtt: case when min_rtt_us is not null then format('{:.2f} ms', min_rtt_us / 1e3) end}) as facts
from rated f left join statement q using (statement_id) cross join about cross join observed
where f.cost_s >= greatest(getvariable('storm_min_s'), getvariable('storm_min_sessions') * observed_s)
order by cost_s desc, subject
