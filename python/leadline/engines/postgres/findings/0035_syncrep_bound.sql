-- id: SYNCREP-BOUND
-- title: Commits wait for a standby
-- question: How much time do commits spend waiting for the answer of a synchronous standby?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds waited for IPC SyncRep
-- cost: database time
-- threshold: min_share = 0.1 (10 % of database time; a synchronous standby always costs some time)
-- threshold: min_sessions = 0.2 (sessions waiting on average; with fewer, the server is quiet and the share means little)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: part_readings = 10 (readings of the lags at which all was confirmed; with fewer their mean is chance)
-- threshold: part_share = 0.5 (of the time until the standby confirms: then this part is the one to change)
-- silent unless: exists (from wait_time where lower(wait_event) like 'syncrep%')
-- wrong when: the delay is intended, because it is the price for losing no commits
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait as (
  select * from sync_wait where not is_stuck  -- SYNC-STANDBY-GONE has the others
),
statement_cost as (
  select statement_id, sum(weight_s) as wait_s, count(distinct session_id) as sessions from wait group by statement_id
),
top_statement as (
  select to_json(list({statement_id: c.statement_id, wait_s: round(c.wait_s, 3), sessions: c.sessions,
                       query: left(regexp_replace(s.query, '\s+', ' ', 'g'), 120)} order by c.wait_s desc, c.statement_id)[:20]) as evidence
  from statement_cost c left join statement s using (statement_id)
),
standby as (  -- application_name/client_addr/pid of those that may be synchronous; without an address: over a local socket
  select string_agg(distinct name, ', ' order by name) as names
  from (select regexp_replace(regexp_replace(object, '/[^/]*$', ''), '/([^/]*)$', ' at \1') as with_address, regexp_replace(with_address, ' at $', '') as name
        from server_stat where view = 'pg_stat_replication' and metric = 'sync_priority' and value > 0)
),
level as (select max(setting) as setting from setting where name = 'synchronous_commit'),
-- What the server itself measured from its own flush until the standby confirmed that it had written, flushed, replayed the WAL. While a flush is
-- awaited, flush_lag shows what has passed so far: only readings count at which all that was written was confirmed. With more than one synchronous
-- standby nobody knows which of them a commit waited for.
confirmed as (
  select any_value(application_name) as name, avg(write_lag) filter (flush_lsn = write_lsn) / 1e6 as write_s, avg(flush_lag) filter (flush_lsn = write_lsn) / 1e6 as flush_s,
         avg(replay_lag) filter (flush_lsn = write_lsn and replay_lsn = write_lsn) / 1e6 as replay_s
  from walsender
  where not is_logical and state = 'streaming' and write_lag is not null and flush_lag is not null
    and coalesce(sync_state in ('sync', 'quorum'), lower(application_name) in (select lower(s.name) from sync_standby s))
  having count(distinct pid) = 1 and count(*) filter (flush_lsn = write_lsn) >= getvariable('part_readings')
),
part as (
  select c.name, c.write_s as way_s, case when l.setting in ('on', 'remote_apply') then greatest(c.flush_s - c.write_s, 0) end as disk_s,
         case when l.setting = 'remote_apply' then greatest(c.replay_s - c.flush_s, 0) end as apply_s, way_s + coalesce(disk_s, 0) + coalesce(apply_s, 0) as all_s
  from confirmed c cross join level l where l.setting in ('remote_write', 'on', 'remote_apply')
),
found as (
  select sum(weight_s) as cost_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to from wait
),
cost as (
  select f.*, t.evidence, s.names, l.setting, f.cost_s / b.db_time_s as share, p.name, p.way_s, p.disk_s, p.apply_s, p.all_s
  from found f cross join base b cross join top_statement t cross join standby s cross join level l left join part p on p.all_s > 0
)
select 'SYNCREP-BOUND' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of(c.tier, samples) as confidence,
       'synchronous replication' as subject,
       format('Commits of {} sessions waited {:.1f} s ({:.1f} % of database time) for a synchronous standby{}{}{}', sessions, cost_s, 100 * share,
              case when names is null then '' else ' (' || names || ')' end,
              case when setting is null then '' else '; synchronous_commit is ' || setting end,
              case when all_s is null then ''
                   else format('; {} took {:.1f} ms to confirm: {:.0f} % for the network round trip{}{}', name, 1e3 * all_s, 100 * way_s / all_s,
                               case when disk_s is null then '' else format(', {:.0f} % for its disk', 100 * disk_s / all_s) end,
                               case when apply_s is null then '' else format(', {:.0f} % for replay', 100 * apply_s / all_s) end) end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({is_way: way_s >= getvariable('part_share') * all_s, is_disk: disk_s >= getvariable('part_share') * all_s, is_apply: apply_s >= getvariable('part_share') * all_s,
                is_known: all_s is not null}) as facts
from cost cross join (select tier, window_s from capture) c cross join (select sum(period_ns) / 1e9 as observed_s from tick)
where share >= getvariable('min_share') and cost_s >= getvariable('min_sessions') * observed_s and samples >= getvariable('min_samples')
