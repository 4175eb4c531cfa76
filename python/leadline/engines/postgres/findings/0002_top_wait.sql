-- id: TOP-WAIT
-- title: One class of waits takes most of the database time
-- question: Which class of waits takes more than 40 % of database time, and which event and statement in it?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds of database time
-- cost: none
-- threshold: top_wait_share = 0.4 (two fifths of database time; removing the wait makes the work at best 1.7 times as fast)
-- threshold: top_wait_sessions = 0.5 (sessions waiting on average; with fewer, the server is quiet)
-- threshold: samples_high = 1000 (a sampling error of 3 %; every active session counts, so there are many samples)
-- threshold: samples_medium = 100 (a sampling error of 10 %)
-- minimum: tick 30
-- wrong when: the wait is inherent in the work, such as the commit of small transactions on a disk that honours fsync
with about as (select window_s, tier, cpu_count from capture),
observed as (select sum(period_ns) / 1e9 as observed_s from tick),
base as (select sum(weight_s) as db_time_s from db_time),
wait as (  -- sleeps that were asked for are no driver, though they count in database time
  select * from db_time
  where wait_class <> 'CPU'
    and event not in ('PgSleep', 'VacuumDelay', 'VacuumTruncate', 'RecoveryApplyDelay', 'BaseBackupThrottle', 'WalSenderWaitForWAL', 'WalSenderWaitForWal')
),
top_class as (
  select wait_class, sum(weight_s) as class_s, sum(samples)::bigint as samples, min(ts) as ts_from, max(ts) as ts_to
  from wait group by wait_class
  order by class_s desc, wait_class limit 1
),
spent as (
  select w.event, w.statement_id, sum(w.weight_s) as seconds, sum(w.samples)::bigint as samples, count(distinct w.session_id) as sessions
  from wait w join top_class using (wait_class)
  group by all
),
top_event as (select event, sum(seconds) as event_s from spent group by event order by event_s desc, event limit 1),
top_statement as (
  select statement_id, sum(seconds) as statement_s from spent join top_event using (event)
  group by statement_id order by statement_s desc, statement_id limit 1
),
proof as (
  select to_json(list({event: event, statement_id: statement_id, query: left(regexp_replace(q.query, '\s+', ' ', 'g'), 200),
                       seconds: round(seconds, 3), sessions: sessions, samples: samples}
                      order by round(seconds, 3) desc, event, statement_id)[:20]) as evidence
  from spent left join statement q using (statement_id)
)
select 'TOP-WAIT' as id, 'info' as severity,
       confidence_of(c.tier, samples, high := getvariable('samples_high'), medium := getvariable('samples_medium')) as confidence,
       'wait ' || wait_class || ':' || event as subject,
       format('Waits of class {} took {:.1f} s ({:.1f} % of database time, {:.1f} sessions on average), {:.1f} s of it {}:{}{}',
              wait_class, class_s, 100 * class_s / db_time_s, class_s / observed_s, event_s, wait_class, event,
              case when q.query is not null then format('; {:.1f} s of that in: {}', statement_s, left(regexp_replace(q.query, '\s+', ' ', 'g'), 120))
                   else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples, ts_from, ts_to, evidence
from top_class cross join top_event cross join top_statement cross join observed cross join base cross join about c cross join proof
left join statement q on q.statement_id = top_statement.statement_id
where class_s >= getvariable('top_wait_share') * db_time_s and class_s >= getvariable('top_wait_sessions') * observed_s
order by subject
